//! What holds at every step, whatever a test is about.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use packhorse_engine::{Action, Input, LeasedDevice, OutputMode};
use packhorse_model::{EventKind, Record, TaskId};

use super::PATIENCE;

#[derive(Default)]
pub(super) struct Promises {
    /// How many records were sent.
    records: u64,
    /// The records that have to be safe before something is told, and when they were sent.
    places: BTreeMap<String, (u64, Duration)>,
    /// The journal cannot or need not be waited for.
    pub(super) impatient: bool,
    finished: BTreeSet<TaskId>,
    /// What others were told that we hold.
    published: Vec<LeasedDevice>,
}

impl Promises {
    pub(super) fn note(&mut self, input: &Input) {
        match input {
            Input::Committed { trouble, .. } => self.impatient = trouble.is_some(),
            Input::AddRun(new) if new.output == OutputMode::Inherit => self.impatient = true,
            // What waits is told now.
            Input::Stored { .. } | Input::Stalled(_) => self.places.clear(),
            _ => {}
        }
    }

    /// The start and the end of an attempt are told when the journal has them, unless it
    /// takes too long; and every task ends once.
    #[track_caller]
    pub(super) fn check(&mut self, action: &Action, now: Duration, committed: u64) {
        match action {
            Action::Record(entry) => {
                self.records += 1;
                let what = match entry {
                    Record::Started(start) => {
                        format!("start of {} {}", start.task, start.attempt)
                    }
                    Record::AttemptEnded(end) if end.is_final => {
                        format!("end of {}", end.task)
                    }
                    Record::AttemptEnded(end) => {
                        format!("end of {} {}", end.task, end.attempt)
                    }
                    Record::TaskFinished { task, .. } => format!("end of {task}"),
                    _ => return,
                };
                self.places.insert(what, (self.records, now));
            }
            Action::Tell(event) => match &event.kind {
                EventKind::Started { task, attempt, .. } => {
                    self.is_safe(&format!("start of {task} {attempt}"), now, committed);
                }
                EventKind::Retrying { task, attempt, .. } => {
                    self.is_safe(&format!("end of {task} {attempt}"), now, committed);
                }
                EventKind::Finished(result) => {
                    let once = self.finished.insert(result.task);
                    assert!(once, "{} has ended twice", result.task);
                    self.is_safe(&format!("end of {}", result.task), now, committed);
                }
                _ => {}
            },
            _ => {}
        }
    }

    #[track_caller]
    fn is_safe(&mut self, what: &str, now: Duration, committed: u64) {
        let Some(&(place, sent)) = self.places.get(what) else {
            return;
        };
        if place > committed && !self.impatient {
            assert!(sent + PATIENCE <= now, "the {what} was told too early");
            // All that waits is told with it.
            self.places.clear();
        }
    }

    /// More is held than others know: no attempt may be among it that was started without
    /// their lock.
    #[track_caller]
    pub(super) fn raised(&mut self, lease: &[LeasedDevice], locked: bool) {
        for held in lease.iter().filter(|_| !locked) {
            let before = self.published.iter().find(|it| it.device == held.device);
            let before = before.cloned().unwrap_or_default();
            let more = held.attempts > before.attempts || held.share > before.share;
            assert!(
                // Nobody else could take anything of one that is all ours.
                !more || before.whole,
                "{held:?} was taken without the lock, after {before:?}"
            );
        }
        self.published = lease.to_vec();
    }

    pub(super) fn lowered(&mut self, lease: &[LeasedDevice]) {
        self.published = lease.to_vec();
    }
}
