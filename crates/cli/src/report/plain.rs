use std::borrow::Cow;
use std::time::{Duration, Instant};

use packhorse_model::{Event, EventKind, Outcome, Phase, Stranger, StrangersOn, TaskResult};
use packhorse_session::{Observer, QueueView};

use super::Sink;
use super::tally::Tally;
use crate::{terminal, wording};

/// One line per event, for files, pipes and logs.
pub struct Plain {
    sink: Sink,
    on_terminal: bool,
    tally: Tally,
    quiet: bool,
    idle: Idle,
}

/// How many columns of a command are shown where a task starts.
const LONGEST_COMMAND: usize = 1000;
/// How many columns of a command are shown where a task failed.
const BRIEF: usize = 100;

/// How long nothing may run before somebody is told why.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether nothing runs although something could.
#[derive(Clone, Copy)]
enum Idle {
    No,
    Since(Instant),
    Reported,
}

impl Plain {
    /// Writes to standard output; only what went wrong if `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self {
            sink: Sink::lines(),
            on_terminal: terminal::is_stdout(),
            tally: Tally::new(Instant::now()),
            quiet,
            idle: Idle::No,
        }
    }

    /// Says nothing of `retry` and `resume`.
    #[must_use]
    pub fn of_calls(mut self) -> Self {
        self.tally.can_go_on = false;
        self
    }
}

impl Observer for Plain {
    fn event(&mut self, event: &Event) {
        if let EventKind::Metrics { .. } = event.kind {
            // There may be a million of them. The last values are told at the end.
            return;
        }
        self.tally.event(event);
        for event in self.sink.pass(event, 0) {
            if let Some((weight, line)) = line_of(&event)
                && (weight == Weight::Important || !self.quiet)
            {
                self.sink.line(line);
            } else if let EventKind::Output { task, line, .. } = &event.kind {
                let line =
                    if self.on_terminal { wording::printable_output(line) } else { line.into() };
                self.sink.line(format_args!("{task} | {line}"));
            }
        }
        for line in closing_lines(event, &self.tally) {
            self.sink.line(line);
        }
    }

    fn show(&mut self, now: Instant, queue: &dyn QueueView) -> Option<Instant> {
        let told = self.update_idleness(now, queue);
        let flushed = self.sink.flush_now_and_then(now);
        [told, flushed].into_iter().flatten().min()
    }
}

impl Plain {
    /// If nothing runs for a while and somebody waits, says why, once.
    fn update_idleness(&mut self, now: Instant, queue: &dyn QueueView) -> Option<Instant> {
        let over = self.tally.done();
        if self.tally.running > 0 || over >= self.tally.known {
            self.idle = Idle::No;
            return None;
        }
        match self.idle {
            Idle::Reported => None,
            Idle::No => {
                self.idle = Idle::Since(now);
                Some(now + PATIENCE)
            }
            Idle::Since(since) if now < since + PATIENCE => Some(since + PATIENCE),
            Idle::Since(_) => {
                self.idle = Idle::Reported;
                if let Some(why) = queue.why_first_waits() {
                    let line = wording::message(format!("nothing runs: {why}"));
                    self.sink.line(line);
                }
                None
            }
        }
    }
}

/// How much a line matters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    Ordinary,
    Important,
}

/// The line for an event, if it has one, fit to be printed.
pub(super) fn line_of(event: &Event) -> Option<(Weight, String)> {
    let (weight, line) = text_of(event)?;
    Some((weight, wording::message(line)))
}

/// How many processes of a GPU are named before the rest is only counted.
const NAMED: usize = 3;

/// Who else is on a GPU, to go on with the line.
fn strangers_on(strangers: &StrangersOn) -> String {
    let StrangersOn { gpu, memory, processes } = strangers;
    let name = |process: &Stranger| {
        let held = process.memory.map_or_else(String::new, |it| format!(", {it}"));
        let draws = if process.draws { ", only draws" } else { "" };
        format!("process {} ({}{held}{draws})", process.pid, process.who)
    };
    let mut names: Vec<String> = processes.iter().take(NAMED).map(name).collect();
    match processes.len() - names.len() {
        0 => {}
        more => names.push(format!("{more} more")),
    }
    let who = match names.len() {
        0 => ", and the driver does not tell who they are".to_owned(),
        _ => format!(": {}", names.join(", ")),
    };
    format!("; others hold {memory} of GPU {gpu}{who}")
}

fn text_of(event: &Event) -> Option<(Weight, String)> {
    use Weight::{Important, Ordinary};
    Some(match &event.kind {
        EventKind::RunStarted { run, gpus, slots, resumed, jobs, strangers } => {
            let numbers: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            let place = match (slots, jobs.as_slice()) {
                (Some(slots), _) => format!("{} at a time", wording::count(*slots, "task")),
                (None, []) => format!("on {}", wording::devices(gpus)),
                (None, [_]) => format!("on Slurm as job {}", numbers.join(", ")),
                (None, _) => format!("on Slurm as jobs {}", numbers.join(", ")),
            };
            let verb = if *resumed { "resumed" } else { "started" };
            let weight = if strangers.is_empty() { Ordinary } else { Important };
            let strangers: String = strangers.iter().map(strangers_on).collect();
            (weight, format!("run {run} {verb}, {place}{strangers}"))
        }
        EventKind::Started { task, attempt, command, gpus, node } => {
            let again = wording::attempt(*attempt);
            let place = wording::place(node.as_deref(), gpus);
            let place = place.map_or_else(String::new, |place| format!(" on {place}"));
            let command = wording::command(command);
            let command = wording::clipped(&command, LONGEST_COMMAND);
            (Ordinary, format!("{task} started{place}{again}: {command}"))
        }
        EventKind::Retrying { task, attempt, outcome, note, left } => {
            if let Some(note) = note {
                let what = match attempt {
                    0 => "probe".to_owned(),
                    attempt => format!("attempt {attempt}"),
                };
                return Some((Important, format!("{task} {what}: {note}")));
            }
            let left = match left {
                0 => "trying a last time".to_owned(),
                more => format!("trying again, {more} more after that"),
            };
            (Important, format!("{task} attempt {attempt} failed: {outcome}; {left}"))
        }
        EventKind::Finished(finished) => {
            let task = finished.task;
            let took = wording::duration(finished.took);
            match finished.outcome {
                Outcome::Succeeded => {
                    let metrics = wording::metrics(&finished.metrics);
                    let remark = finished.message.as_ref();
                    let remark = remark.map(|remark| format!(": {remark}"));
                    let remark = remark.unwrap_or_default();
                    let text = format!("{task} succeeded in {took}{metrics}{remark}");
                    (Ordinary, text)
                }
                Outcome::Interrupted => (Important, format!("{task} interrupted after {took}")),
                Outcome::Skipped => (Important, format!("{task} {}", why(finished))),
                Outcome::NotStarted => {
                    let failure = reason_and_command(finished);
                    (Important, format!("{task} not started: {failure}"))
                }
                _ => {
                    let failure = reason_and_command(finished);
                    (Important, format!("{task} failed after {took}: {failure}"))
                }
            }
        }
        EventKind::Warning { task, message } => match task {
            Some(task) => (Important, format!("{task} warning: {message}")),
            None => (Important, format!("warning: {message}")),
        },
        EventKind::Stopping { phase, running, .. } => (Important, stopping(*phase, *running)?),
        EventKind::Known { .. }
        | EventKind::Measured(_)
        | EventKind::Metrics { .. }
        | EventKind::Output { .. }
        | EventKind::RunEnded(_) => return None,
    })
}

/// The command of a task, as much of it as tells it from others.
fn brief(finished: &TaskResult) -> String {
    let command = wording::command(&finished.command);
    wording::clipped(&command, BRIEF).into_owned()
}

/// Why a task failed, and what its command was, unless the reason ends with it.
fn reason_and_command(finished: &TaskResult) -> String {
    let (why, command) = (why(finished), brief(finished));
    if why.ends_with(&format!(": {command}")) {
        return why.into_owned();
    }
    format!("{why}: {command}")
}

/// Why a task came out as it did.
fn why(finished: &TaskResult) -> Cow<'_, str> {
    match &finished.message {
        Some(message) => message.into(),
        None => finished.outcome.to_string().into(),
    }
}

fn stopping(phase: Phase, running: u64) -> Option<String> {
    let tasks = wording::count(running, "running task");
    Some(match phase {
        Phase::Running => return None,
        Phase::Draining if running == 0 => "stopping: no new tasks are started".to_owned(),
        Phase::Draining => format!(
            "stopping: no new tasks are started, {tasks} may finish (Ctrl-C again to end them)"
        ),
        Phase::Terminating => format!("ending {tasks} (Ctrl-C again to kill them)"),
        Phase::Killing => format!("killing {tasks} (Ctrl-C again to leave without them)"),
    })
}

/// What is said when the run is over.
pub(super) fn closing_lines(event: &Event, tally: &Tally) -> Vec<String> {
    let EventKind::RunEnded(summary) = &event.kind else {
        return Vec::new();
    };
    let run = summary.run;
    let mut lines = Vec::new();
    if summary.failed > 0 {
        lines.push(format!("{}:", wording::count(summary.failed, "failure")));
        let mut failures: Vec<_> = tally.failures.iter().collect();
        failures.sort_by_key(|failure| failure.task);
        for failure in failures {
            let line = format!("  {}  {}", failure.task, reason_and_command(failure));
            lines.push(wording::message(line));
        }
        let unlisted = tally.failed.saturating_sub(tally.failures.len() as u64);
        let earlier = summary.failed.saturating_sub(tally.failed);
        let others = [(unlisted, "more"), (earlier, "from before")];
        for (many, which) in others.into_iter().filter(|&(many, _)| many > 0) {
            let and = if lines.len() > 1 { "and " } else { "" };
            lines.push(format!("  {and}{many} {which} (packhorse show {run} --failed)"));
        }
    }
    let mut counts = format!("{} succeeded", summary.succeeded);
    if summary.failed > 0 {
        counts += &format!(", {} failed", summary.failed);
    }
    let (all, now) = (summary.succeeded + summary.failed, tally.done());
    // Earlier sessions count, but their time does not.
    let is_resumed = all > now;
    if is_resumed {
        counts += &format!(" in all, {now} of them now");
    }
    if summary.left > 0 {
        counts += &format!(", {} left", summary.left);
    }
    if summary.rejected > 0 {
        counts += &format!(", {} not run", wording::count(summary.rejected, "line"));
    }
    let comma = if is_resumed { "," } else { "" };
    let took = wording::duration(summary.took);
    lines.push(format!("run {run} ended: {counts}{comma} in {took}"));
    if summary.failed > 0 && summary.stored {
        let mut failures = tally.failures.iter();
        let logged = failures.find(|failure| failure.log.as_ref().is_some_and(|log| log.exists()));
        let logs = logged.map(|TaskResult { task, .. }| {
            format!("`packhorse logs {task}` shows what a task wrote")
        });
        let again =
            tally.can_go_on.then(|| format!("`packhorse retry {run}` runs the failed ones again"));
        let hints: Vec<String> = logs.into_iter().chain(again).collect();
        if !hints.is_empty() {
            lines.push(format!("hint: {}", hints.join(", ")));
        }
    }
    if summary.left > 0 && summary.stored && tally.can_go_on {
        lines.push(format!("hint: `packhorse resume {run}` runs the rest"));
    }
    lines
}
