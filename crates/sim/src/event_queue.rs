//! Future events, in the order of their times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::{Bytes, TaskId};

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum SimulationEvent {
    /// An attempt ends, if it still runs.
    End { task: TaskId, start: usize },
    /// From now on an attempt needs this much memory, if it still runs.
    Memory {
        task: TaskId,
        start: usize,
        memory: Bytes,
    },
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
    events: BinaryHeap<QueuedEvent>,
    /// How many were ever put in.
    count: u64,
}

#[derive(Clone, Debug)]
struct QueuedEvent {
    at: Duration,
    number: u64,
    event: SimulationEvent,
}

impl QueuedEvent {
    fn key(&self) -> (Duration, u8, u64) {
        (self.at, self.event.rank(), self.number)
    }
}

impl Ord for QueuedEvent {
    /// Reversed: a heap returns its greatest element first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QueuedEvent {}

impl EventQueue {
    pub(crate) fn push(&mut self, at: Duration, event: SimulationEvent) {
        self.events.push(QueuedEvent {
            at,
            number: self.count,
            event,
        });
        self.count += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Duration, SimulationEvent)> {
        let next = self.events.pop()?;
        Some((next.at, next.event))
    }
}
