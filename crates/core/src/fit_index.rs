//! Who is first in line of those who fit into what is free.
//!
//! A tree in the order of the line, whose every node knows the least that is
//! needed of each thing below it. Where that does not fit, nothing below it
//! does, so a search passes over thousands of others at once.

use crate::needs::{Needs, Rooms};
use crate::queue::ClassId;
use crate::queue_key::QueueKey;

/// A node that grows beyond this is split in two.
const CHILDREN: usize = 32;

/// The heads of classes that differ in amounts alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct FitIndex {
    root: Option<Node>,
}

/// The first of a class, and what it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) key: QueueKey,
    pub(crate) class: ClassId,
    pub(crate) needs: Needs,
}

/// A part of the line; never empty.
#[derive(Clone, Debug)]
struct Node {
    /// Nothing below it comes before this.
    start: QueueKey,
    /// Nothing below it needs less than this.
    least: Needs,
    below: Below,
}

#[derive(Clone, Debug)]
enum Below {
    Heads(Vec<Head>),
    Nodes(Vec<Node>),
}

impl FitIndex {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub(crate) fn insert(&mut self, head: Head) {
        let Some(root) = &mut self.root else {
            self.root = Some(Node::new(Below::Heads(vec![head]), head.key, head.needs));
            return;
        };
        if let Some(second) = root.insert(head) {
            let (start, least) = (root.start, root.least.least(&second.least));
            let below = Below::Nodes(Vec::new());
            let first = std::mem::replace(root, Node::new(below, start, least));
            root.below = Below::Nodes(vec![first, second]);
        }
    }

    pub(crate) fn remove(&mut self, key: QueueKey) {
        let Some(root) = &mut self.root else {
            return;
        };
        if root.remove(key) {
            self.root = None;
        } else if let Below::Nodes(nodes) = &mut root.below
            && nodes.len() == 1
        {
            self.root = nodes.pop();
        }
    }

    /// Who is first of those who fit into `rooms`.
    pub(crate) fn first(&self, rooms: &Rooms) -> Option<(QueueKey, ClassId)> {
        let head = self.root.as_ref()?.first(rooms)?;
        Some((head.key, head.class))
    }

    /// Who is first of all.
    pub(crate) fn front(&self) -> Option<(QueueKey, ClassId)> {
        let mut node = self.root.as_ref()?;
        loop {
            match &node.below {
                Below::Heads(heads) => return heads.first().map(|head| (head.key, head.class)),
                Below::Nodes(nodes) => node = nodes.first()?,
            }
        }
    }
}

impl Node {
    fn new(below: Below, start: QueueKey, least: Needs) -> Self {
        Self {
            start,
            least,
            below,
        }
    }

    /// Adds `head`. The second half, if this has become too large.
    fn insert(&mut self, head: Head) -> Option<Self> {
        self.start = self.start.min(head.key);
        self.least = self.least.least(&head.needs);
        match &mut self.below {
            Below::Heads(heads) => {
                let place = heads.partition_point(|other| other.key < head.key);
                heads.insert(place, head);
                if heads.len() <= CHILDREN {
                    return None;
                }
                // Most come to the end of the line: what is in front stays full.
                let from = if place + 1 == heads.len() {
                    place
                } else {
                    CHILDREN / 2
                };
                let second = heads.split_off(from);
                let second = Self::new(Below::Heads(second), self.start, self.least).measured();
                self.measure();
                Some(second)
            }
            Below::Nodes(nodes) => {
                let place = nodes.partition_point(|node| node.start <= head.key);
                let place = place.saturating_sub(1);
                let second = nodes[place].insert(head)?;
                nodes.insert(place + 1, second);
                if nodes.len() <= CHILDREN {
                    return None;
                }
                let from = if place + 2 == nodes.len() {
                    place + 1
                } else {
                    CHILDREN / 2
                };
                let second = nodes.split_off(from);
                let second = Self::new(Below::Nodes(second), self.start, self.least).measured();
                self.measure();
                Some(second)
            }
        }
    }

    /// Removes what has this key. Whether nothing is left.
    fn remove(&mut self, key: QueueKey) -> bool {
        match &mut self.below {
            Below::Heads(heads) => {
                if let Ok(place) = heads.binary_search_by_key(&key, |head| head.key) {
                    heads.remove(place);
                }
                if heads.is_empty() {
                    return true;
                }
            }
            Below::Nodes(nodes) => {
                let place = nodes.partition_point(|node| node.start <= key);
                let Some(place) = place.checked_sub(1) else {
                    return false;
                };
                if nodes[place].remove(key) {
                    nodes.remove(place);
                }
                if nodes.is_empty() {
                    return true;
                }
            }
        }
        self.measure();
        false
    }

    /// Finds `start` and `least` anew.
    fn measure(&mut self) {
        let found = match &self.below {
            Below::Heads(heads) => {
                let needs = heads.iter().map(|head| head.needs);
                let least = needs.reduce(|one, other| one.least(&other));
                heads.first().map(|head| head.key).zip(least)
            }
            Below::Nodes(nodes) => {
                let needs = nodes.iter().map(|node| node.least);
                let least = needs.reduce(|one, other| one.least(&other));
                nodes.first().map(|node| node.start).zip(least)
            }
        };
        if let Some((start, least)) = found {
            (self.start, self.least) = (start, least);
        }
    }

    fn measured(mut self) -> Self {
        self.measure();
        self
    }

    fn first(&self, rooms: &Rooms) -> Option<&Head> {
        if !rooms.admit(&self.least) {
            return None;
        }
        match &self.below {
            Below::Heads(heads) => heads.iter().find(|head| rooms.admit(&head.needs)),
            Below::Nodes(nodes) => nodes.iter().find_map(|node| node.first(rooms)),
        }
    }
}
