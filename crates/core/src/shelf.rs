//! The classes of one shape, by the memory they need.
//!
//! What a device has free is one number; who of a shape fits there is a prefix
//! of this shelf, and who of those goes first is the least order in that prefix.
//! The shelf stands in blocks that each know their least: so many classes are a
//! few dozen comparisons, and a new one moves a block at most.

use packhorse_model::Bytes;

use crate::queue::ClassId;
use crate::queue_key::QueueKey;

/// A block that grows past this is split in two.
const BLOCK: usize = 48;

#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    /// Neighbours stand in one block; none is empty.
    blocks: Vec<Vec<Item>>,
    /// The least of each block.
    leasts: Vec<QueueKey>,
    /// Where the least of all is.
    top: usize,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    memory: Bytes,
    class: ClassId,
    /// Who is first in the class's line.
    head: QueueKey,
}

fn least(items: &[Item]) -> QueueKey {
    let heads = items.iter().map(|item| item.head);
    heads.min().unwrap_or(QueueKey::NOBODY)
}

/// The one of `items` who is the `best` of them.
fn first(items: &[Item], best: QueueKey) -> Option<(QueueKey, ClassId)> {
    let item = items.iter().find(|item| item.head == best)?;
    (best != QueueKey::NOBODY).then_some((best, item.class))
}

impl Shelf {
    /// Says who is first in the line of `class`, which needs `memory`; nobody
    /// if the line is empty.
    pub(crate) fn set(&mut self, memory: Bytes, class: ClassId, head: Option<QueueKey>) {
        let head = head.unwrap_or(QueueKey::NOBODY);
        let item = Item {
            memory,
            class,
            head,
        };
        let place = self.blocks_up_to(memory).saturating_sub(1);
        let Some(block) = self.blocks.get_mut(place) else {
            self.blocks.push(vec![item]);
            self.leasts.push(head);
            return;
        };
        match block.binary_search_by_key(&memory, |item| item.memory) {
            Ok(index) => block[index] = item,
            Err(index) => block.insert(index, item),
        }
        if block.len() > BLOCK {
            let upper = block.split_off(BLOCK / 2);
            self.leasts.insert(place + 1, least(&upper));
            self.blocks.insert(place + 1, upper);
        }
        self.leasts[place] = least(&self.blocks[place]);
        let top = self
            .leasts
            .iter()
            .enumerate()
            .min_by_key(|&(_, least)| least);
        self.top = top.map_or(0, |(top, _)| top);
    }

    /// Who is first of all that need no more than `limit`.
    pub(crate) fn least(&self, limit: Bytes) -> Option<(QueueKey, ClassId)> {
        // The last of these may reach beyond the limit; the others do not.
        let last = self.blocks_up_to(limit).checked_sub(1)?;
        if self.top < last {
            return first(&self.blocks[self.top], self.leasts[self.top]);
        }
        let fitting = |block: &[Item]| block.partition_point(|item| item.memory <= limit);
        let tail = &self.blocks[last];
        let tail = &tail[..fitting(tail)];
        let (mut best, mut items) = (least(tail), tail);
        for (&least, block) in self.leasts[..last].iter().zip(&self.blocks) {
            if least < best {
                (best, items) = (least, block);
            }
        }
        first(items, best)
    }

    /// Whether nobody waits in any of these lines.
    pub(crate) fn is_empty(&self) -> bool {
        self.leasts
            .get(self.top)
            .is_none_or(|&least| least == QueueKey::NOBODY)
    }

    /// How many blocks begin no higher than `memory`.
    fn blocks_up_to(&self, memory: Bytes) -> usize {
        self.blocks
            .partition_point(|block| block.first().is_some_and(|item| item.memory <= memory))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use packhorse_model::Priority;

    use super::*;
    use crate::Now;

    #[test]
    fn the_least_of_a_prefix_is_found_among_thousands() {
        let mut shelf = Shelf::default();
        let mut slow: BTreeMap<Bytes, (Option<QueueKey>, ClassId)> = BTreeMap::new();
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (random >> 33) % below
        };
        for number in 0..6000 {
            let memory = Bytes(next(1500));
            let class = slow.get(&memory).map_or(
                ClassId(u32::try_from(slow.len()).unwrap()),
                |&(_, class)| class,
            );
            let rank = Priority(i32::try_from(next(1000)).unwrap());
            let order = QueueKey::new(0, rank, None, Now::default(), number);
            let head = (next(3) > 0).then_some(order);
            shelf.set(memory, class, head);
            slow.insert(memory, (head, class));
            let limit = Bytes(next(1600));
            let wanted = slow.range(..=limit);
            let wanted = wanted.filter_map(|(_, &(head, class))| Some((head?, class)));
            assert_eq!(shelf.least(limit), wanted.min_by_key(|&(order, _)| order));
            let nobody = slow.values().all(|(head, _)| head.is_none());
            assert_eq!(shelf.is_empty(), nobody);
        }
        assert!(shelf.blocks.len() > 8);
    }
}
