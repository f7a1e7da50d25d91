//! Who is first in line of those who fit into what is free.
//!
//! A tree in the order of the line, whose every node knows the least that is
//! needed of each thing below it. Where that does not fit, nothing below it
//! does, so a search passes over thousands of others at once.

use crate::needs::{NeededAmounts, Rooms};
use crate::queue::ClassId;
use crate::queue_key::QueueKey;

/// A node that grows beyond this is split in two.
const CHILDREN: usize = 32;

/// The heads of classes that differ in amounts alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct FitIndex {
    root: Option<Node>,
}

/// A part of the line; never empty.
#[derive(Clone, Debug)]
struct Node {
    /// Nothing below it comes before this.
    start: QueueKey,
    /// Nothing below it needs less than this.
    least: NeededAmounts,
    below: Below,
}

#[derive(Clone, Debug)]
enum Below {
    /// The first of a class, alone.
    Head(ClassId),
    Nodes(Vec<Node>),
}

impl FitIndex {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Adds the first of `class`, which has the place `key` in line.
    pub(crate) fn insert(&mut self, key: QueueKey, class: ClassId, needs: NeededAmounts) {
        let head = Node { start: key, least: needs, below: Below::Head(class) };
        self.root = Some(match self.root.take() {
            None => head,
            Some(mut root) => match root.insert(head) {
                None => root,
                Some(second) => Node::new(vec![root, second]),
            },
        });
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
        self.root.as_ref()?.first(rooms)
    }

    /// Who is first of all.
    pub(crate) fn front(&self) -> Option<(QueueKey, ClassId)> {
        let mut node = self.root.as_ref()?;
        loop {
            match &node.below {
                Below::Head(class) => return Some((node.start, *class)),
                Below::Nodes(nodes) => node = nodes.first()?,
            }
        }
    }
}

impl Node {
    /// Over `nodes`, of which there is at least one.
    fn new(nodes: Vec<Self>) -> Self {
        let mut node =
            Self { start: nodes[0].start, least: nodes[0].least, below: Below::Nodes(nodes) };
        node.measure();
        node
    }

    /// Adds `head`. What comes behind this node, if that has become too large.
    fn insert(&mut self, head: Self) -> Option<Self> {
        let Below::Nodes(nodes) = &mut self.below else {
            // The later of two heads comes behind the other.
            return Some(if head.start < self.start {
                std::mem::replace(self, head)
            } else {
                head
            });
        };
        self.start = self.start.min(head.start);
        self.least = self.least.least(&head.least);
        let place = nodes.partition_point(|node| node.start <= head.start);
        let place = place.saturating_sub(1);
        let second = nodes[place].insert(head)?;
        nodes.insert(place + 1, second);
        if nodes.len() <= CHILDREN {
            return None;
        }
        // Most come to the end of the line: what is in front stays full.
        let from = if place + 2 == nodes.len() { place + 1 } else { CHILDREN / 2 };
        let second = Self::new(nodes.split_off(from));
        self.measure();
        Some(second)
    }

    /// Removes what has this key. Whether nothing is left.
    fn remove(&mut self, key: QueueKey) -> bool {
        let Below::Nodes(nodes) = &mut self.below else {
            return self.start == key;
        };
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
        self.measure();
        false
    }

    /// Finds `start` and `least` anew.
    fn measure(&mut self) {
        if let Below::Nodes(nodes) = &self.below
            && let [first, rest @ ..] = &nodes[..]
        {
            self.start = first.start;
            let least = rest.iter().map(|node| &node.least);
            self.least = least.fold(first.least, |one, other| one.least(other));
        }
    }

    fn first(&self, rooms: &Rooms) -> Option<(QueueKey, ClassId)> {
        if !rooms.admit(&self.least) {
            return None;
        }
        match &self.below {
            Below::Head(class) => Some((self.start, *class)),
            Below::Nodes(nodes) => nodes.iter().find_map(|node| node.first(rooms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use packhorse_model::{Bytes, GpuRequest, MemoryRequest, Milli, Priority, Request};

    use super::*;
    use crate::Now;
    use crate::device::DeviceRoom;
    use crate::ledger::Amounts;
    use crate::queue::Demand;
    use crate::time::{Bound, Length};

    struct Lcg(u64);

    impl Lcg {
        fn below(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            (self.0 >> 33) % below
        }
    }

    type Head = (QueueKey, ClassId, NeededAmounts);

    fn head(number: u64, random: &mut Lcg) -> Head {
        let request = Request {
            gpus: GpuRequest::Share(Milli(0)),
            memory: MemoryRequest::Bytes(Bytes(random.below(1000))),
            ram: Bytes(random.below(1000)),
            ..Request::default()
        };
        let bound = Bound::new(Length::new(None), Length::new(None));
        let priority = Priority(i32::try_from(random.below(50)).unwrap_or(0));
        let key = QueueKey::new(0, priority, None, Now::default(), number);
        let class = ClassId(u32::try_from(number).unwrap_or(0));
        (key, class, NeededAmounts::of(&Demand { request, bound }))
    }

    fn rooms(random: &mut Lcg) -> Rooms {
        let mut rooms = Rooms::default();
        for _ in 0..=random.below(3) {
            let free = Amounts { cores: 0, cpu: 0, ram: random.below(300) };
            let devices = (0..random.below(3))
                .map(|_| DeviceRoom { share: Milli(1000), memory: Bytes(random.below(300)) });
            let devices: Vec<DeviceRoom> = devices.collect();
            let gpus = GpuRequest::Share(Milli(0));
            rooms.add_machine(u64::MAX, free, gpus, devices.into_iter());
        }
        rooms
    }

    #[test]
    fn the_first_that_fits_is_found_among_thousands() {
        let mut random = Lcg(5);
        let mut index = FitIndex::default();
        let mut slow: BTreeMap<QueueKey, Head> = BTreeMap::new();
        let mut found = 0;
        for number in 0..30_000 {
            // It grows, shrinks to nothing, and grows again.
            let grows = number / 5000 % 2 == 0 || slow.is_empty();
            if grows && random.below(4) > 0 {
                let head = head(number, &mut random);
                let (key, class, needs) = head;
                index.insert(key, class, needs);
                slow.insert(key, head);
            } else if let Some((&first, _)) = slow.first_key_value() {
                let some =
                    slow.keys().nth(usize::try_from(random.below(slow.len() as u64)).unwrap_or(0));
                let key = some.copied().filter(|_| number % 3 == 0).unwrap_or(first);
                index.remove(key);
                slow.remove(&key);
            }
            assert_eq!(index.is_empty(), slow.is_empty());
            let front = slow.values().next().map(|&(key, class, _)| (key, class));
            assert_eq!(index.front(), front);
            if number % 10 == 0 {
                let rooms = rooms(&mut random);
                let mut fitting = slow.values().filter(|(.., needs)| rooms.admit(needs));
                let wanted = fitting.next().map(|&(key, class, _)| (key, class));
                assert_eq!(index.first(&rooms), wanted);
                found += u32::from(wanted.is_some());
            }
        }
        assert!(found > 100, "{found}");
        while let Some((key, _)) = slow.pop_first() {
            index.remove(key);
        }
        assert!(index.is_empty());
    }
}
