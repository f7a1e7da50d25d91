//! The tasks that wait outside the core's memory.
//!
//! Every task is in the store from the moment it is read. A plain one, with no
//! wishes of its own, is also handed to the core if the core has few waiting;
//! otherwise it stays in the store alone, and is fetched when its turn comes
//! near. Plain tasks are all alike, so the order of their numbers is the order
//! in which they start, and a million of them take no memory.
//!
//! A task with wishes (a priority, a name, tasks it comes after) goes to the core
//! at once: it may be more urgent than all that wait in the store. That the core
//! never runs out of plain tasks while some wait in the store keeps a less urgent
//! one from overtaking them.

/// How many tasks wait in the core before others stay in the store.
const MOST: usize = 1024;
/// How many bytes of commands wait in the core before others stay in the store.
const MOST_BYTES: usize = 4 << 20;
/// More are fetched when fewer than this wait in the core.
const FEW: usize = 256;
/// How many are fetched at once.
pub(crate) const FETCHED: u32 = 512;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Plain tasks that are in the store alone.
    stored: u64,
    /// Those in the store alone have numbers above this.
    pub(crate) fed: u32,
    /// Bytes of commands that wait in the core.
    pub(crate) bytes: usize,
}

impl Backlog {
    /// Whether the core should have the next plain task, given how many wait
    /// there.
    pub(crate) fn has_room(&self, waiting: usize) -> bool {
        self.stored == 0 && waiting < MOST && self.bytes < MOST_BYTES
    }

    /// A plain task stays in the store.
    pub(crate) fn leave(&mut self) {
        self.stored += 1;
    }

    /// A plain task was fetched.
    pub(crate) fn fetched(&mut self, number: u32) {
        self.fed = number;
        self.stored = self.stored.saturating_sub(1);
    }

    /// Whether it is time to fetch.
    pub(crate) fn is_due(&self, waiting: usize) -> bool {
        self.stored > 0 && waiting < FEW && self.bytes < MOST_BYTES
    }

    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }
}
