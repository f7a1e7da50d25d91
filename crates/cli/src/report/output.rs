use std::borrow::Cow;

use packhorse_model::{Event, EventKind, TaskId, TaskResult};
use rustc_hash::FxHashMap;

use crate::wording;

/// Lets the output and the metrics of tasks through while there is room for them. Lines for
/// which there is none are left out and counted: the task's log has them.
#[derive(Default)]
pub struct OutputGate {
    /// How much of each task was left out and not yet told of.
    left_out: FxHashMap<TaskId, LeftOut>,
}

#[derive(Default)]
struct LeftOut {
    lines: u64,
    /// Lines of metrics.
    metrics: u64,
}

/// Whether there is room for what tasks write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Enough,
    None,
}

impl OutputGate {
    /// Takes an event, and says what there is to show: a warning that lines were left out
    /// before it, and the event, unless it is left out itself.
    pub fn pass<'a>(
        &mut self,
        event: &'a Event,
        room: Room,
    ) -> impl Iterator<Item = Cow<'a, Event>> + use<'a> {
        let (task, shown) = match &event.kind {
            EventKind::Output { task, .. } if room == Room::None => {
                self.left_out.entry(*task).or_default().lines += 1;
                (None, None)
            }
            EventKind::Metrics { task, .. } if room == Room::None => {
                self.left_out.entry(*task).or_default().metrics += 1;
                (None, None)
            }
            EventKind::Output { task, .. }
            | EventKind::Metrics { task, .. }
            | EventKind::Retrying { task, .. }
            | EventKind::Finished(TaskResult { task, .. }) => (Some(*task), Some(event)),
            _ => (None, Some(event)),
        };
        let gap = task.and_then(|task| self.gap(task, event));
        let gap = gap.map(Cow::Owned).into_iter();
        gap.chain(shown.map(Cow::Borrowed))
    }

    fn gap(&mut self, task: TaskId, event: &Event) -> Option<Event> {
        let LeftOut { lines, metrics } = self.left_out.remove(&task)?;
        let lines = (lines > 0).then(|| format!("{} of its output", wording::count(lines, "line")));
        let metrics = (metrics > 0).then(|| wording::count(metrics, "event") + " with its metrics");
        let what: Vec<String> = lines.into_iter().chain(metrics).collect();
        let message = format!(
            "{} left out: not read in time; \
             the log has everything: packhorse logs {task}",
            what.join(" and ")
        );
        Some(Event { time: event.time, kind: EventKind::Warning { task: Some(task), message } })
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::{Outcome, RunId, Stream, Timestamp};

    use super::*;

    #[test]
    fn where_lines_are_left_out_there_is_a_warning_with_their_number() {
        let task = TaskId::new(RunId(1), 1);
        let event = |kind| Event { time: Timestamp(0), kind };
        let line = |text: &str| {
            event(EventKind::Output { task, stream: Stream::Stdout, line: text.to_owned() })
        };
        let metrics = event(EventKind::Metrics {
            task,
            attempt: 1,
            values: std::collections::BTreeMap::new(),
            step: None,
        });
        let end = event(EventKind::Retrying {
            task,
            attempt: 1,
            outcome: Outcome::Interrupted,
            note: None,
            left: 0,
        });
        let mut gate = OutputGate::default();
        let mut seen = Vec::new();
        for (event, room) in [
            (line("one"), Room::Enough),
            (line("two"), Room::None),
            (line("three"), Room::None),
            (line("four"), Room::Enough),
            (metrics.clone(), Room::None),
            (metrics, Room::Enough),
            (line("five"), Room::None),
            (end, Room::None),
        ] {
            for event in gate.pass(&event, room) {
                seen.push(match &event.kind {
                    EventKind::Output { line, .. } => line.clone(),
                    EventKind::Metrics { .. } => "metrics".to_owned(),
                    EventKind::Warning { message, .. } => {
                        message.split(" left out").next().unwrap().to_owned()
                    }
                    _ => "end".to_owned(),
                });
            }
        }
        let wanted = [
            "one",
            "2 lines of its output",
            "four",
            "1 event with its metrics",
            "metrics",
            "1 line of its output",
            "end",
        ];
        assert_eq!(seen, wanted);
    }
}
