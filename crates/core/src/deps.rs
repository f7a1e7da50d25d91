//! Who comes after whom.
//!
//! An edge stands in two ordered maps: what a task waits for, and who follows a
//! task. So an edge is added and removed in O(log n), also for a task that comes
//! after a million others, and a task without dependencies costs nothing.

use std::collections::BTreeMap;

use crate::tasks::Handle;

/// The tasks at the other ends of a task's edges, by that task and the edge's number.
type Edges = BTreeMap<(Handle, u64), Handle>;

/// The edges between unfinished tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deps {
    waits_for: Edges,
    followers: Edges,
    /// The next edge's number: a task's edges keep the order in which they came.
    next: u64,
}

/// The edges of one task, in the order in which they came.
fn of(edges: &Edges, task: Handle) -> impl Iterator<Item = (&(Handle, u64), &Handle)> {
    edges.range((task, 0)..=(task, u64::MAX))
}

fn first(edges: &Edges, task: Handle) -> Option<(u64, Handle)> {
    let (&(_, number), &other) = of(edges, task).next()?;
    Some((number, other))
}

impl Deps {
    /// `task` has to wait for `on`.
    pub(crate) fn add(&mut self, task: Handle, on: Handle) {
        self.waits_for.insert((task, self.next), on);
        self.followers.insert((on, self.next), task);
        self.next += 1;
    }

    /// Whether `task` waits for another.
    pub(crate) fn is_blocked(&self, task: Handle) -> bool {
        first(&self.waits_for, task).is_some()
    }

    /// Takes the first of those who follow `on`; it no longer waits for it.
    pub(crate) fn pop_follower(&mut self, on: Handle) -> Option<Handle> {
        let (number, task) = first(&self.followers, on)?;
        self.followers.remove(&(on, number));
        self.waits_for.remove(&(task, number));
        Some(task)
    }

    /// `task` waits for nobody any more.
    pub(crate) fn release(&mut self, task: Handle) {
        while let Some((number, on)) = first(&self.waits_for, task) {
            self.waits_for.remove(&(task, number));
            self.followers.remove(&(on, number));
        }
    }

    /// What `task` still waits for, in the order it was given.
    pub(crate) fn waits_for(&self, task: Handle) -> impl Iterator<Item = Handle> {
        of(&self.waits_for, task).map(|(_, &on)| on)
    }

    /// How many edges there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waits_for.len()
    }
}
