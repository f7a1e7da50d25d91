use std::time::Instant;

use packhorse_hands::Stream;
use packhorse_model::TaskId;
use packhorse_runner::{Event, Line, Phase, Reporter};
use serde_json::{Value, json};

use super::Sink;
use super::lines::{Lines, Piece};
use crate::wording;

/// One JSON object a line, for programs.
///
/// Every object has `event` and `time` (seconds since the epoch). Members are
/// only ever added.
pub struct Json {
    sink: Sink,
    lines: Lines,
}

impl Json {
    /// Writes to standard output.
    pub fn new() -> Self {
        Self {
            sink: Sink::stdout(),
            lines: Lines::default(),
        }
    }

    fn write(&mut self, name: &str, mut members: Value) {
        members["event"] = name.into();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        members["time"] = now.unwrap_or_default().as_secs_f64().into();
        self.sink.line(members);
    }
}

impl Reporter for Json {
    fn event(&mut self, event: &Event) {
        let mut output = Vec::new();
        self.lines
            .event(event, self.sink.room(0), |task, piece| match piece {
                Piece::Line(stream, line) => output.push(("output", line_of(task, stream, line))),
                Piece::Gap(warning) => output.extend(object(&warning)),
            });
        for (name, members) in output {
            self.write(name, members);
        }
        if let Some((name, members)) = object(event) {
            self.write(name, members);
        }
    }

    fn show(&mut self, now: Instant, _line: &dyn Line) -> Option<Instant> {
        self.sink.flush_now_and_then(now)
    }
}

/// A line of output.
fn line_of(task: TaskId, stream: Stream, line: &[u8]) -> Value {
    let stream = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    json!({"task": task.to_string(), "stream": stream, "line": String::from_utf8_lossy(line)})
}

/// An event's name and members, if it is an object by itself.
fn object(event: &Event) -> Option<(&'static str, Value)> {
    Some(match event {
        Event::RunStarted {
            run,
            devices,
            slots,
            resumed,
        } => (
            "run-started",
            json!({"run": run.0, "gpus": devices, "slots": slots, "resumed": resumed}),
        ),
        Event::Known { tasks, complete } => {
            let tasks = u64::try_from(*tasks).unwrap_or(u64::MAX);
            ("known", json!({"tasks": tasks, "complete": complete}))
        }
        Event::Started {
            task,
            attempt,
            command,
            devices,
            ..
        } => (
            "started",
            json!({
                "task": task.to_string(),
                "attempt": attempt,
                "command": wording::command(command),
                "gpus": &**devices,
            }),
        ),
        Event::Retrying {
            task,
            attempt,
            outcome,
            note,
            left,
        } => (
            "retrying",
            json!({
                "task": task.to_string(),
                "attempt": attempt,
                "outcome": outcome.word(),
                "detail": outcome.detail(),
                "note": note,
                "left": left,
            }),
        ),
        Event::Measured {
            task,
            attempt,
            seen,
        } => (
            "measured",
            json!({
                "task": task.to_string(),
                "attempt": attempt,
                "peak": seen.peak.0,
                "error": seen.error.0,
                "samples": seen.samples,
                "interval_seconds": seen.interval.as_secs_f64(),
                "utilisation_percent": seen.busy.map(|(mean, most)| json!({"mean": mean, "most": most})),
            }),
        ),
        Event::Finished(finished) => (
            "finished",
            json!({
                "task": finished.task.to_string(),
                "attempts": finished.attempts,
                "outcome": finished.outcome.word(),
                "detail": finished.outcome.detail(),
                "message": finished.message,
                "seconds": finished.took.as_secs_f64(),
                "log": finished.log(),
            }),
        ),
        Event::Warning { task, message } => (
            "warning",
            json!({"task": task.map(|task| task.to_string()), "message": message}),
        ),
        Event::Stopping { phase, running } => (
            "stopping",
            json!({"phase": word(*phase), "running": running}),
        ),
        Event::RunEnded(summary) => (
            "run-ended",
            json!({
                "run": summary.run.0,
                "succeeded": summary.succeeded,
                "failed": summary.failed,
                "left": u64::try_from(summary.left).unwrap_or(u64::MAX),
                "stored": summary.stored,
                "rejected": summary.rejected,
                "seconds": summary.took.as_secs_f64(),
                "exit": summary.exit.code(),
            }),
        ),
        Event::Output { .. } | Event::Resized => return None,
    })
}

const fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Running => "running",
        Phase::Draining => "draining",
        Phase::Terminating => "terminating",
        Phase::Killing => "killing",
    }
}
