use std::collections::VecDeque;

use crate::{Event, Reporter};

/// Events on their way to the reporter. Each waits until the record it goes with
/// is safe, and those behind it wait too, so that their order stays.
#[derive(Default)]
pub(crate) struct Told {
    waiting: VecDeque<(u64, Event)>,
}

impl Told {
    /// An event that needs no record.
    pub(crate) fn tell(&mut self, reporter: &mut dyn Reporter, event: Event) {
        if self.waiting.is_empty() {
            reporter.event(&event);
        } else {
            self.waiting.push_back((0, event));
        }
    }

    /// An event to be told once the record at `place` is safe.
    pub(crate) fn tell_after(&mut self, place: u64, event: Event) {
        self.waiting.push_back((place, event));
    }

    /// Tells what may be told by now.
    pub(crate) fn release(&mut self, committed: u64, reporter: &mut dyn Reporter) {
        while let Some((place, _)) = self.waiting.front()
            && *place <= committed
            && let Some((_, event)) = self.waiting.pop_front()
        {
            reporter.event(&event);
        }
    }
}
