//! Sets of one node's cores, by their place in the node's list.

/// A set of cores: one bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreSet {
    words: Box<[u64]>,
}

impl CoreSet {
    /// The empty set, with room for `len` cores.
    pub(crate) fn none(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)].into(),
        }
    }

    /// All of `len` cores.
    pub(crate) fn all(len: usize) -> Self {
        let mut set = Self::none(len);
        (0..len).for_each(|core| set.insert(core));
        set
    }

    pub(crate) fn insert(&mut self, core: usize) {
        self.words[core / 64] |= 1 << (core % 64);
    }

    pub(crate) fn remove(&mut self, core: usize) {
        self.words[core / 64] &= !(1 << (core % 64));
    }

    pub(crate) fn contains(&self, core: usize) -> bool {
        self.words[core / 64] & (1 << (core % 64)) != 0
    }

    /// Adds all of `other`, a set of the same node.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Up to `wanted` cores of this set, those in `near` first; in ascending
    /// order.
    pub(crate) fn pick(&self, wanted: usize, near: &Self) -> Vec<usize> {
        let mut picked = Vec::with_capacity(wanted);
        let passes: [fn(u64, u64) -> u64; 2] =
            [|free, near| free & near, |free, near| free & !near];
        for pass in passes {
            for (index, (&free, &near)) in self.words.iter().zip(&near.words).enumerate() {
                let mut word = pass(free, near);
                while word != 0 && picked.len() < wanted {
                    picked.push(index * 64 + word.trailing_zeros() as usize);
                    word &= word - 1;
                }
            }
        }
        picked.sort_unstable();
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_cores_are_picked_before_others_across_words() {
        let mut near = CoreSet::none(130);
        near.insert(70);
        near.insert(129);
        let mut free = CoreSet::all(130);
        assert_eq!(free.pick(1, &near), [70]);
        assert_eq!(free.pick(4, &near), [0, 1, 70, 129]);
        free.remove(70);
        assert_eq!(free.pick(2, &near), [0, 129]);
    }
}
