use std::collections::VecDeque;
use std::time::Duration;

use packhorse_model::{Event, EventKind};

/// Events on their way to the observers. Each waits until the record that it goes with
/// is safe, and those behind it wait too, so that they stay in order.
///
/// A journal that is slow must neither keep people in the dark nor fill our memory:
/// what has waited too long, or is too much, is told all the same.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    patience: Duration,
    waiting: VecDeque<(u64, Event)>,
    /// Since when the first of them waits.
    since: Option<Duration>,
    /// The bytes of output among them.
    bytes: usize,
    /// Records up to this are safe.
    pub(crate) committed: u64,
}

const MOST: usize = 10_000;
const MOST_BYTES: usize = 1 << 20;

fn bytes(event: &Event) -> usize {
    match &event.kind {
        EventKind::Output { line, .. } => line.len(),
        _ => 0,
    }
}

impl Outbox {
    /// Nothing to tell yet. Events wait for `patience` at most.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            patience,
            ..Self::default()
        }
    }

    /// An event to be told once the record at `place` is safe. If that is now, it comes
    /// back.
    pub(crate) fn push(&mut self, place: u64, event: Event, now: Duration) -> Option<Event> {
        if self.waiting.is_empty() && place <= self.committed {
            return Some(event);
        }
        self.bytes += bytes(&event);
        self.since.get_or_insert(now);
        self.waiting.push_back((place, event));
        None
    }

    /// Those that may be told now, or simply `all`.
    pub(crate) fn release(&mut self, all: bool, now: Duration) -> impl Iterator<Item = Event> {
        let waits = |(place, _): &(u64, Event)| !all && *place > self.committed;
        let safe = self.waiting.iter().position(waits);
        let safe = safe.unwrap_or(self.waiting.len());
        if safe > 0 {
            self.since = (safe < self.waiting.len()).then_some(now);
        }
        self.waiting.drain(..safe).map(|(_, event)| {
            self.bytes -= bytes(&event);
            event
        })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When patience ends.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        Some(self.since?.saturating_add(self.patience))
    }

    /// Whether patience has ended, or too much waits.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        self.deadline().is_some_and(|end| end <= now)
            || self.waiting.len() > MOST
            || self.bytes > MOST_BYTES
    }
}
