use std::collections::VecDeque;
use std::time::Duration;

use packhorse_model::{Event, EventKind};

/// Events on their way to the observers. Each waits until the record that it goes with
/// is safe, and those behind it wait too, so that they stay in order.
///
/// A journal that is slow must neither keep people in the dark nor fill our memory:
/// what has waited too long, or is too much, is told all the same.
#[derive(Debug)]
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
            waiting: VecDeque::new(),
            since: None,
            bytes: 0,
            committed: 0,
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

    /// The next that may be told, or simply the next if `all` may be.
    pub(crate) fn pop(&mut self, all: bool) -> Option<Event> {
        let (place, _) = self.waiting.front()?;
        if !all && *place > self.committed {
            return None;
        }
        let (_, event) = self.waiting.pop_front()?;
        self.bytes -= bytes(&event);
        self.since = None;
        Some(event)
    }

    /// Takes note that what may be told has been.
    pub(crate) fn released(&mut self, now: Duration) {
        if self.waiting.is_empty() {
            self.since = None;
        } else {
            self.since.get_or_insert(now);
        }
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
