use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::{Event, Reporter};

/// Events on their way to the reporter. Each waits until the record it goes with
/// is safe, and those behind it wait too, so that their order stays.
///
/// A store that is slow must not keep people in the dark, nor fill our memory:
/// what has waited for too long, or is too much, is told all the same.
pub(crate) struct Told {
    patience: Duration,
    waiting: VecDeque<(u64, Event)>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// The bytes of output among them.
    bytes: usize,
}

/// After so long without a turn of the loop, the next may be far away.
pub(crate) const LULL: Duration = Duration::from_millis(5);
const MOST: usize = 10_000;
const MOST_BYTES: usize = 1 << 20;

impl Told {
    /// Nothing to tell yet. Events wait for `patience` at most.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            patience,
            waiting: VecDeque::new(),
            since: None,
            bytes: 0,
        }
    }

    /// An event that needs no record.
    pub(crate) fn tell(&mut self, reporter: &mut dyn Reporter, event: Event) {
        if self.waiting.is_empty() {
            reporter.event(&event);
        } else {
            self.tell_after(0, event);
            if self.waiting.len() > MOST || self.bytes > MOST_BYTES {
                self.release(u64::MAX, reporter);
            }
        }
    }

    /// An event to be told once the record at `place` is safe.
    pub(crate) fn tell_after(&mut self, place: u64, event: Event) {
        if let Event::Output { bytes, .. } = &event {
            self.bytes += bytes.len();
        }
        self.since.get_or_insert_with(Instant::now);
        self.waiting.push_back((place, event));
    }

    /// Tells what may be told by now.
    pub(crate) fn release(&mut self, committed: u64, reporter: &mut dyn Reporter) {
        let before = self.waiting.len();
        while let Some((place, _)) = self.waiting.front()
            && *place <= committed
            && let Some((_, event)) = self.waiting.pop_front()
        {
            if let Event::Output { bytes, .. } = &event {
                self.bytes -= bytes.len();
            }
            reporter.event(&event);
        }
        if self.waiting.is_empty() {
            self.since = None;
        } else if self.waiting.len() < before {
            self.since = Some(Instant::now());
        }
    }

    /// Whether there is anything to be told.
    pub(crate) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// When to look again: soon, or with the bell's help only when patience ends.
    pub(crate) fn deadline(&self, bell: bool, now: Instant) -> Option<Instant> {
        let end = self.since? + self.patience;
        Some(if bell { end } else { end.min(now + LULL) })
    }

    /// Whether patience has ended.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let end = self.deadline(true, now);
        end.is_some_and(|end| end <= now) || self.waiting.len() > MOST
    }
}
