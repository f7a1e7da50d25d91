//! Future events, in the order of their times.

use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::Bytes;

/// Something that will happen. Attempts are named by their places in the history.
#[derive(Clone, Debug)]
pub(crate) enum SimulationEvent {
    /// An attempt ends, if it still runs.
    End { attempt: usize },
    /// From now on an attempt needs this much memory, if it still runs.
    Memory { attempt: usize, memory: Bytes },
    /// The scheduler gets this event.
    Scheduler(Box<SchedulerEvent>),
}

impl SimulationEvent {
    /// At the same time, what ends makes room for what grows, and both come before the
    /// scheduler learns anything new.
    fn rank(&self) -> u8 {
        match self {
            Self::End { .. } => 0,
            Self::Memory { .. } => 1,
            Self::Scheduler(_) => 2,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct EventQueue {
    /// By their times, their ranks and the order in which they were put in.
    events: BTreeMap<(Duration, u8, u64), SimulationEvent>,
    /// How many were ever put in.
    count: u64,
}

impl EventQueue {
    pub(crate) fn push(&mut self, at: Duration, event: SimulationEvent) {
        self.events.insert((at, event.rank(), self.count), event);
        self.count += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Duration, SimulationEvent)> {
        let ((at, ..), event) = self.events.pop_first()?;
        Some((at, event))
    }
}
