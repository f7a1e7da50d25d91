//! Ends that may be somebody else's doing: whoever ends a whole job on a cluster sends the
//! same signal to us and to our tasks, and a task may have died of it before we hear of it.

use std::time::{Duration, Instant};

use packhorse_engine::{AttemptEnd, Input};
use packhorse_model::{Outcome, ProcessEvent};

use super::Session;

/// How long after a task we may be signalled at the latest.
const HELD: Duration = Duration::from_millis(300);

/// The ends that are held back, and until when.
#[derive(Debug, Default)]
pub(super) struct HeldEnds {
    ends: Vec<(Instant, AttemptEnd)>,
    /// Somebody has asked us to end.
    asked: bool,
}

impl HeldEnds {
    /// When the first of them is to be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.ends.first().map(|(due, _)| *due)
    }
}

/// Whether an attempt may have ended because of a signal: of itself, or because its shell
/// tells so of its last command.
fn is_by_signal(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Killed { .. } | Outcome::Failed { code: 129..=159 }
    )
}

impl Session<'_> {
    /// Holds an end back, if it may be somebody else's doing.
    pub(super) fn hold_back(&mut self, event: ProcessEvent, now: Instant) -> Option<ProcessEvent> {
        match event {
            ProcessEvent::Ended(end)
                if self.parts.holds_failures && !self.held.asked && is_by_signal(end.outcome) =>
            {
                self.held.ends.push((now + HELD, end));
                None
            }
            event => Some(event),
        }
    }

    /// Tells the ends that were nobody else's doing.
    pub(super) fn tell_held(&mut self, now: Instant) {
        let due = self.held.ends.partition_point(|(due, _)| *due <= now);
        let ends: Vec<_> = self.held.ends.drain(..due).collect();
        for (_, end) in ends {
            self.feed(Input::Process(ProcessEvent::Ended(end)));
        }
    }

    /// We are asked to end, and so were our tasks.
    pub(super) fn blame_others(&mut self) {
        self.held.asked = true;
        for (_, mut end) in std::mem::take(&mut self.held.ends) {
            end.outcome = Outcome::Interrupted;
            self.feed(Input::Process(ProcessEvent::Ended(end)));
        }
    }
}
