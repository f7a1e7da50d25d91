//! What is remembered of every task that has not finished.

use packhorse_model::TaskId;
use rustc_hash::FxHashMap;

use crate::queue::ClassId;
use crate::queue_key::QueueKey;
use crate::time::Length;
use crate::{OwnerId, ProbePlan};

/// Where a task's record is, while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(pub(crate) u32);

/// One task. There may be millions: every byte counts.
#[derive(Clone, Debug)]
pub(crate) struct TaskRecord {
    pub(crate) id: TaskId,
    pub(crate) key: QueueKey,
    /// What its running attempt needs, or else its next one. While a probe runs,
    /// what the attempt after it needs.
    pub(crate) class: ClassId,
    pub(crate) owner: OwnerId,
    /// How many more attempts a failure gets.
    pub(crate) retries: u32,
    /// Attempts made, the running one among them, probes not.
    pub(crate) attempts: u32,
    pub(crate) limit: Length,
    pub(crate) expected: Length,
    pub(crate) status: TaskStatus,
    /// How often an attempt ended through no fault of its own.
    pub(crate) collateral: u8,
    /// Whether its next start is a probe, or it waits for another task's.
    pub(crate) probe: ProbePlan,
    /// Whether it came into line since the last dispatch.
    pub(crate) fresh: bool,
}

impl TaskRecord {
    /// Which attempt the next one is; 0 is a probe.
    pub(crate) fn next_attempt(&self) -> u32 {
        match self.probe {
            ProbePlan::First => 0,
            ProbePlan::None | ProbePlan::Awaited => self.attempts.saturating_add(1),
        }
    }
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskStatus {
    /// A task it comes after has not finished, or a probe that it waits for; or
    /// its run is held.
    Blocked,
    /// It is in the queue.
    Waiting,
    /// It runs: its place in `SchedulerState::running`.
    Running(u32),
}

/// All records, found by handle or by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    records: Vec<TaskRecord>,
    vacant: Vec<Handle>,
    by_id: FxHashMap<TaskId, Handle>,
}

impl Tasks {
    pub(crate) fn insert(&mut self, record: TaskRecord) -> Handle {
        let id = record.id;
        let handle = if let Some(handle) = self.vacant.pop() {
            self.records[handle.0 as usize] = record;
            handle
        } else {
            let next = u32::try_from(self.records.len());
            self.records.push(record);
            Handle(next.expect("four thousand million records do not fit into memory"))
        };
        self.by_id.insert(id, handle);
        handle
    }

    pub(crate) fn remove(&mut self, handle: Handle) {
        let id = self.get(handle).id;
        self.by_id.remove(&id);
        self.vacant.push(handle);
    }

    pub(crate) fn find(&self, id: TaskId) -> Option<Handle> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, handle: Handle) -> &TaskRecord {
        &self.records[handle.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> &mut TaskRecord {
        &mut self.records[handle.0 as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Every task with its handle, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &TaskRecord)> {
        self.by_id.values().map(|&handle| (handle, self.get(handle)))
    }
}
