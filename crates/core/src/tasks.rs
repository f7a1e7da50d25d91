//! What is remembered of every task that has not finished.

use std::time::Duration;

use packhorse_model::TaskId;
use rustc_hash::FxHashMap;

use crate::queue::{ClassId, Order};

/// Where a task's record is, while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) u32);

/// One task. There may be millions: every byte counts.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) id: TaskId,
    pub(crate) order: Order,
    pub(crate) class: ClassId,
    pub(crate) retries: u32,
    /// Attempts made, the running one among them.
    pub(crate) attempts: u32,
    pub(crate) limit: Limit,
    pub(crate) status: Status,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// A task it comes after has not finished.
    Blocked,
    /// It is in the queue.
    Waiting,
    /// It runs: its place in `State::running`.
    Running(u32),
}

/// A time limit in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(u64);

impl Limit {
    const UNLIMITED: u64 = u64::MAX;

    /// In nanoseconds. More than 584 years are no limit at all.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        let nanos = limit.and_then(|limit| u64::try_from(limit.as_nanos()).ok());
        Self(nanos.unwrap_or(Self::UNLIMITED))
    }

    pub(crate) fn get(self) -> Option<Duration> {
        (self.0 != Self::UNLIMITED).then(|| Duration::from_nanos(self.0))
    }
}

/// All records, found by handle or by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    records: Vec<Record>,
    vacant: Vec<Handle>,
    by_id: FxHashMap<TaskId, Handle>,
}

impl Tasks {
    pub(crate) fn insert(&mut self, record: Record) -> Handle {
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

    pub(crate) fn get(&self, handle: Handle) -> &Record {
        &self.records[handle.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> &mut Record {
        &mut self.records[handle.0 as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Every task with its handle, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &Record)> {
        self.by_id
            .values()
            .map(|&handle| (handle, self.get(handle)))
    }
}
