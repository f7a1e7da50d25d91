//! Who comes after whom.
//!
//! An edge stands in two linked lists: what a task waits for, and who follows a
//! task. So an edge is added and removed in O(1), also for a task that comes
//! after a million others, and a task without dependencies costs nothing.

use crate::tasks::Handle;

const NIL: u32 = u32::MAX;

/// The edges between unfinished tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deps {
    edges: Vec<Edge>,
    vacant: Vec<u32>,
    /// By the task's handle; shorter than the handles go if the rest has none.
    ends: Vec<[ListEnds; 2]>,
}

/// Which of a task's two lists.
#[derive(Clone, Copy, Debug)]
enum EdgeList {
    WaitsFor,
    Followers,
}

#[derive(Clone, Debug)]
struct Edge {
    task: Handle,
    on: Handle,
    links: [Link; 2],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

#[derive(Clone, Copy, Debug)]
struct ListEnds {
    first: u32,
    last: u32,
}

impl Edge {
    fn owner(&self, list: EdgeList) -> Handle {
        match list {
            EdgeList::WaitsFor => self.task,
            EdgeList::Followers => self.on,
        }
    }
}

impl Deps {
    /// `task` has to wait for `on`.
    pub(crate) fn add(&mut self, task: Handle, on: Handle) {
        let nowhere = Link {
            before: NIL,
            behind: NIL,
        };
        let edge = Edge {
            task,
            on,
            links: [nowhere; 2],
        };
        let index = if let Some(index) = self.vacant.pop() {
            self.edges[index as usize] = edge;
            index
        } else {
            let next = u32::try_from(self.edges.len());
            self.edges.push(edge);
            next.expect("four thousand million edges do not fit into memory")
        };
        self.append(index, EdgeList::WaitsFor);
        self.append(index, EdgeList::Followers);
    }

    /// Whether `task` waits for another.
    pub(crate) fn is_blocked(&self, task: Handle) -> bool {
        self.first(task, EdgeList::WaitsFor).is_some()
    }

    /// Takes the first of those who follow `on`; it no longer waits for it.
    pub(crate) fn pop_follower(&mut self, on: Handle) -> Option<Handle> {
        let index = self.first(on, EdgeList::Followers)?;
        let task = self.edges[index as usize].task;
        self.cut(index);
        Some(task)
    }

    /// `task` waits for nobody any more.
    pub(crate) fn release(&mut self, task: Handle) {
        while let Some(index) = self.first(task, EdgeList::WaitsFor) {
            self.cut(index);
        }
    }

    /// What `task` still waits for, in the order it was given.
    pub(crate) fn waits_for(&self, task: Handle) -> impl Iterator<Item = Handle> {
        let step = |&index: &u32| {
            let behind = self.edges[index as usize].links[EdgeList::WaitsFor as usize].behind;
            (behind != NIL).then_some(behind)
        };
        let indices = std::iter::successors(self.first(task, EdgeList::WaitsFor), step);
        indices.map(|index| self.edges[index as usize].on)
    }

    /// How many edges there are.
    pub(crate) fn len(&self) -> usize {
        self.edges.len() - self.vacant.len()
    }

    fn first(&self, task: Handle, list: EdgeList) -> Option<u32> {
        let ends = self.ends.get(task.0 as usize)?;
        let first = ends[list as usize].first;
        (first != NIL).then_some(first)
    }

    fn ends(&mut self, task: Handle, list: EdgeList) -> &mut ListEnds {
        let place = task.0 as usize;
        if self.ends.len() <= place {
            let empty = ListEnds {
                first: NIL,
                last: NIL,
            };
            self.ends.resize(place + 1, [empty; 2]);
        }
        &mut self.ends[place][list as usize]
    }

    fn append(&mut self, index: u32, list: EdgeList) {
        let owner = self.edges[index as usize].owner(list);
        let ends = self.ends(owner, list);
        let before = ends.last;
        ends.last = index;
        if before == NIL {
            ends.first = index;
        } else {
            self.edges[before as usize].links[list as usize].behind = index;
        }
        self.edges[index as usize].links[list as usize].before = before;
    }

    fn cut(&mut self, index: u32) {
        for list in [EdgeList::WaitsFor, EdgeList::Followers] {
            let owner = self.edges[index as usize].owner(list);
            let Link { before, behind } = self.edges[index as usize].links[list as usize];
            if before == NIL {
                self.ends(owner, list).first = behind;
            } else {
                self.edges[before as usize].links[list as usize].behind = behind;
            }
            if behind == NIL {
                self.ends(owner, list).last = before;
            } else {
                self.edges[behind as usize].links[list as usize].before = before;
            }
        }
        self.vacant.push(index);
    }
}
