//! Which attempts' pipes and logs a process holds.
//!
//! The names of the outputs are collected once for all orphans, and the descriptors of an orphan
//! are read once for all attempts.

use std::path::PathBuf;

use rustc_hash::FxHashMap;

/// Slots by the names of their outputs, as the links in `/proc/PID/fd` call them.
#[derive(Debug, Default)]
pub(crate) struct SlotOutputs(FxHashMap<PathBuf, Vec<usize>>);

impl SlotOutputs {
    pub(crate) fn add(&mut self, slot: usize, names: impl IntoIterator<Item = PathBuf>) {
        for name in names {
            self.0.entry(name).or_default().push(slot);
        }
    }

    /// The slots that one of these files is an output of.
    pub(crate) fn slots_of(&self, files: impl IntoIterator<Item = PathBuf>) -> Vec<usize> {
        let slots = files.into_iter().filter_map(|file| self.0.get(&file)).flatten();
        slots.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_each_slot_that_writes_to_it() {
        let mut outputs = SlotOutputs::default();
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        outputs.add(0, paths(&["pipe:[1]", "pipe:[2]", "/a.log"]));
        outputs.add(3, paths(&["/a.log"]));
        for (files, slots) in [
            (&["pipe:[2]"][..], &[0][..]),
            (&["pipe:[12]", "/b.log"], &[]),
            (&["/dev/pts/1", "/a.log"], &[0, 3]),
            (&[], &[]),
        ] {
            assert_eq!(outputs.slots_of(paths(files)), slots, "{files:?}");
        }
    }
}
