//! Ends that may be somebody else's doing.
//!
//! Whoever ends a whole job on a cluster signals all its processes, one after the other and in
//! any order: a task may have died, or even ended well because a program of its own died,
//! before we are told to end. Slurm sends SIGCONT to all of them first, then SIGTERM. So from
//! SIGCONT on nothing that ends is believed until it is clear what follows.

use std::time::{Duration, Instant};

use packhorse_engine::{AttemptEnd, Input};
use packhorse_model::{Outcome, ProcessEvent};

use super::Session;

/// How long after a task we may be signalled at the latest.
const HELD: Duration = Duration::from_millis(300);
/// How long after SIGCONT every end is held back.
const ALL_HELD: Duration = Duration::from_secs(1);

/// The ends that are held back, and until when.
#[derive(Debug, Default)]
pub(super) struct HeldEnds {
    ends: Vec<(Instant, AttemptEnd)>,
    /// Until then any end is held back.
    hold_all_until: Option<Instant>,
    /// Somebody has asked us to end.
    asked: bool,
}

impl HeldEnds {
    /// When the first of them is to be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.ends.iter().map(|(due, _)| *due).min()
    }
}

/// Whether an attempt may have ended because of a signal: of itself, or because its shell
/// tells so of its last command.
fn is_by_signal(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Killed { .. } | Outcome::Failed { code: 129..=159 })
}

impl Session<'_> {
    /// Holds an end back, if it may be somebody else's doing, or says whose it is.
    pub(super) fn hold_back(&mut self, event: ProcessEvent, now: Instant) -> Option<ProcessEvent> {
        let ProcessEvent::Ended(mut end) = event else {
            return Some(event);
        };
        if !self.parts.holds_failures {
            return Some(ProcessEvent::Ended(end));
        }
        let hold_all_until = self.held.hold_all_until.filter(|until| *until > now);
        if self.held.asked {
            end.outcome = Outcome::Interrupted;
        } else if let Some(until) = hold_all_until {
            self.held.ends.push((until, end));
            return None;
        } else if is_by_signal(end.outcome) {
            self.held.ends.push((now + HELD, end));
            return None;
        }
        Some(ProcessEvent::Ended(end))
    }

    /// Tells the ends that were nobody else's doing.
    pub(super) fn tell_held(&mut self, now: Instant) {
        while let Some(place) = self.held.ends.iter().position(|(due, _)| *due <= now) {
            let (_, end) = self.held.ends.remove(place);
            self.dispatch(Input::Process(ProcessEvent::Ended(end)));
        }
    }

    /// We are to go on: somebody may be about to end us and our tasks.
    pub(super) fn hold_all_ends(&mut self, now: Instant) {
        self.held.hold_all_until = Some(now + ALL_HELD);
    }

    /// We are asked to end, and so were our tasks.
    pub(super) fn blame_others(&mut self) {
        self.held.asked = self.parts.holds_failures;
        for (_, mut end) in std::mem::take(&mut self.held.ends) {
            end.outcome = Outcome::Interrupted;
            self.dispatch(Input::Process(ProcessEvent::Ended(end)));
        }
    }
}
