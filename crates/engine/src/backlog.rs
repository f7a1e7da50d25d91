//! The tasks that wait outside the core's memory.
//!
//! Every task is in the store from the moment it is read. A plain one, which asks
//! for nothing itself, is also handed to the core if the core has few waiting;
//! otherwise it stays in the store alone, and is fetched when its turn comes
//! near. Plain tasks are all alike, so the order of their numbers is the order
//! in which they start, and a million of them take no memory.
//!
//! Any other task (with a priority, a name, tasks it comes after) goes to the core
//! at once: it may be more urgent than all that wait in the store. Two things keep a
//! less urgent one from overtaking them: the core never runs out of plain tasks while
//! some wait in the store, and a task that is fetched gets the place in line that it
//! had when it arrived.

use std::collections::VecDeque;
use std::time::Duration;

use packhorse_model::StoredTask;

/// How many plain tasks wait in the core before others stay in the store.
const MOST: usize = 4096;
/// How many bytes of their commands wait in the core before others stay in the store.
const MOST_BYTES: usize = 4 << 20;
/// More are fetched when fewer than this wait in the core.
const FEW: usize = 1024;
/// How many are fetched at once.
pub(crate) const FETCHED: u32 = 2048;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Plain tasks that are in the store alone.
    pub(crate) stored: u64,
    /// Those in the store alone have numbers above this.
    pub(crate) fed: u32,
    /// Plain tasks that wait in the core.
    waiting: usize,
    /// The bytes of their commands.
    bytes: usize,
    /// Whether some were asked for, and have not come.
    pub(crate) fetching: bool,
    /// What arrived together with the tasks in the store, and later.
    groups: VecDeque<ArrivalGroup>,
}

/// Tasks that arrived together.
#[derive(Debug)]
struct ArrivalGroup {
    /// The number of the first of them in its run.
    first: u32,
    place: ArrivalPlace,
}

/// When a task arrived, and its number among all tasks of the engine in the order of
/// their arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrivalPlace {
    pub(crate) at: Duration,
    pub(crate) number: u64,
}

impl Backlog {
    /// Whether the core should have the next plain task.
    pub(crate) fn has_room(&self) -> bool {
        self.stored == 0 && self.waiting < MOST && self.bytes < MOST_BYTES
    }

    /// How many more generated tasks the core should have, which has so many that are not
    /// over.
    pub(crate) fn room(&self, live: u64) -> usize {
        let live = usize::try_from(live).unwrap_or(usize::MAX);
        if self.stored == 0 && self.bytes < MOST_BYTES && live < FEW { MOST - live } else { 0 }
    }

    /// Tasks arrive, the first of which has the number `first` in its run.
    pub(crate) fn arrive(&mut self, first: u32, place: ArrivalPlace) {
        if self.stored == 0 {
            self.groups.clear();
        }
        // Only tasks that wait in the store are asked for later.
        while self.groups.get(1).is_some_and(|next| next.first <= self.fed.saturating_add(1)) {
            self.groups.pop_front();
        }
        self.groups.push_back(ArrivalGroup { first, place });
    }

    /// The place in line of a task that has arrived.
    pub(crate) fn place_of(&self, number: u32) -> ArrivalPlace {
        let behind = self.groups.partition_point(|group| group.first <= number);
        let group = behind.checked_sub(1).and_then(|at| self.groups.get(at));
        group.map_or_else(ArrivalPlace::default, |group| ArrivalPlace {
            at: group.place.at,
            number: group.place.number + u64::from(number - group.first),
        })
    }

    /// A task waits in the core from now on. The bytes that it takes here, if it is plain.
    pub(crate) fn enter(&mut self, task: &StoredTask, plain: bool) -> Option<usize> {
        let bytes = plain.then(|| task.spec.command.weight())?;
        self.fed = self.fed.max(task.id.number);
        self.waiting += 1;
        self.bytes += bytes;
        Some(bytes)
    }

    /// One of them waits no longer.
    pub(crate) fn exit(&mut self, bytes: usize) {
        self.waiting = self.waiting.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Whether it is time to fetch, and nobody has yet.
    pub(crate) fn is_due(&self) -> bool {
        !self.fetching && self.stored > 0 && self.waiting < FEW && self.bytes < MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::{Command, RunId, TaskId, TaskSpec};

    use super::*;

    fn plain(bytes: usize) -> StoredTask {
        StoredTask {
            id: TaskId::new(RunId(1), 1),
            spec: TaskSpec::new(Command::Line(vec![b'x'; bytes])),
            after: Vec::new(),
            outcome: None,
            attempts: 0,
        }
    }

    #[test]
    fn a_task_that_never_starts_gives_its_room_back() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.enter(&plain(MOST_BYTES), true), Some(MOST_BYTES));
        assert!(!backlog.has_room());
        backlog.exit(MOST_BYTES);
        assert!(backlog.has_room());
    }

    #[test]
    fn a_task_keeps_the_place_that_it_arrived_at() {
        let place = |at, number| ArrivalPlace { at: Duration::from_secs(at), number };
        let mut backlog = Backlog::default();
        backlog.arrive(1, place(5, 100));
        assert_eq!(backlog.place_of(3), place(5, 102));
        backlog.stored = 4;
        backlog.fed = 3;
        backlog.arrive(8, place(6, 200));
        backlog.arrive(10, place(7, 300));
        assert_eq!(backlog.place_of(4), place(5, 103));
        assert_eq!(backlog.place_of(9), place(6, 201));
        assert_eq!(backlog.place_of(10), place(7, 300));
        // What is not asked for any more is forgotten.
        backlog.fed = 9;
        backlog.arrive(11, place(8, 400));
        assert_eq!(backlog.groups.len(), 2);
        backlog.stored = 0;
        backlog.arrive(12, place(9, 500));
        assert_eq!(backlog.groups.len(), 1);
        assert_eq!(backlog.place_of(12), place(9, 500));
    }

    #[test]
    fn nothing_overtakes_what_was_left_in_the_store() {
        let mut backlog = Backlog::default();
        backlog.enter(&plain(1), true);
        backlog.stored += 1;
        assert!(!backlog.has_room());
        assert_eq!(backlog.room(0), 0);
        assert!(backlog.is_due());
        backlog.stored -= 1;
        assert!(!backlog.is_due());
        assert!(backlog.has_room());
    }
}
