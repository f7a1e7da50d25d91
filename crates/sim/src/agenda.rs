//! What will happen, in the order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::{Bytes, TaskId};

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// An attempt is over, if it still runs.
    End { task: TaskId, start: usize },
    /// An attempt holds so much memory, if it still runs.
    Hold {
        task: TaskId,
        start: usize,
        memory: Bytes,
    },
    /// The scheduler is told something.
    Tell(Box<SchedulerEvent>),
}

impl Happening {
    /// At the same moment, what ends makes room for what grows, and the world
    /// moves before anybody is told something new.
    fn rank(&self) -> u8 {
        match self {
            Self::End { .. } => 0,
            Self::Hold { .. } => 1,
            Self::Tell(_) => 2,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    entries: BinaryHeap<Entry>,
    made: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    at: Duration,
    number: u64,
    happening: Happening,
}

impl Entry {
    fn key(&self) -> (Duration, u8, u64) {
        (self.at, self.happening.rank(), self.number)
    }
}

impl Ord for Entry {
    /// The other way round: a heap gives out its greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl Agenda {
    pub(crate) fn put(&mut self, at: Duration, happening: Happening) {
        self.entries.push(Entry {
            at,
            number: self.made,
            happening,
        });
        self.made += 1;
    }

    pub(crate) fn next(&mut self) -> Option<(Duration, Happening)> {
        let entry = self.entries.pop()?;
        Some((entry.at, entry.happening))
    }
}
