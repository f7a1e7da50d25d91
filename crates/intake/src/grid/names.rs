//! The names of result folders.

use super::config::{Block, SchedulerConfig};
use super::print::python_str;
use super::same_names::{NameReport, NamedPlaces, SameNames, hash};
use super::value::GridValue;

/// No file system has longer names, in bytes.
pub(crate) const LONGEST_NAME: usize = 255;

/// What is appended to a name that is not enough: `#` and sixteen digits. With eight, two of
/// a million tests of one name would have the same.
const SUFFIX: usize = 17;

/// Makes the names of folders out of pieces, one per value.
pub(super) struct FolderNames {
    blocks: Vec<Vec<NamePart>>,
    /// Texts of several characters that are taken out of a whole name.
    removed: Vec<String>,
    same: SameNames,
}

/// What one parameter adds to the names of a block's tests, in the order of the keys.
struct NamePart {
    /// Which of the block's parameters it is.
    axis: usize,
    /// A piece for each of its values; none if the key is ignored.
    pieces: Vec<String>,
}

/// Where a test stands: its block, and which value each parameter has.
pub(super) trait Places {
    fn len(&self) -> u32;
    fn digits(&self, place: u32, digits: &mut Vec<usize>) -> usize;
    fn identity(&self, place: u32) -> String;
}

/// The tests of a grid with their names.
struct NamedTests<'a, P>(&'a FolderNames, &'a P);

impl<P: Places> NamedPlaces for NamedTests<'_, P> {
    fn count(&self) -> u32 {
        self.1.len()
    }

    fn write_name(&self, place: u32, digits: &mut Vec<usize>, name: &mut String) {
        self.0.make(self.1, place, digits, name);
    }

    fn identity(&self, place: u32) -> String {
        self.1.identity(place)
    }

    fn is_unusable(&self, name: &str) -> bool {
        is_unusable(name)
    }
}

impl FolderNames {
    pub fn new(config: &SchedulerConfig, blocks: &[Block]) -> Self {
        // A character is taken out of each piece once and for all; longer texts may reach
        // from one piece into the next.
        let ignored = &config.ignored_characters;
        let in_pieces = ignored.iter().all(|text| text.chars().count() == 1);
        let piece = |key: &str, value: &GridValue| {
            let text = python_str(value);
            let until = config.longest_value.and_then(|longest| text.char_indices().nth(longest));
            let text = &text[..until.map_or(text.len(), |(at, _)| at)];
            let piece = format!("{key}{}{text}{}", config.indicator, config.separator);
            if in_pieces { without(piece, ignored) } else { piece }
        };
        let parts = |block: &Block| {
            let mut axes: Vec<usize> = (0..block.len()).collect();
            axes.sort_by(|&a, &b| block[a].0.cmp(&block[b].0));
            let is_shown = |axis: &usize| !config.ignored_keys.contains(&block[*axis].0);
            let parts = axes.into_iter().filter(is_shown).map(|axis| {
                let (key, values) = &block[axis];
                let pieces = values.iter().map(|value| piece(key, value)).collect();
                NamePart { axis, pieces }
            });
            parts.collect()
        };
        Self {
            blocks: blocks.iter().map(parts).collect(),
            removed: if in_pieces { Vec::new() } else { ignored.clone() },
            same: SameNames::default(),
        }
    }

    /// Finds out which tests would share a folder, and which are there twice.
    pub fn compare(&mut self, places: &impl Places) -> NameReport {
        let (same, report) = SameNames::compare(&NamedTests(self, places));
        self.same = same;
        report
    }

    /// Whether the same test is there before.
    pub fn is_repeated(&self, places: &impl Places, place: u32) -> bool {
        self.same.is_repeated(&NamedTests(self, places), place)
    }

    /// The name of a test's folder.
    pub fn name(&self, places: &impl Places, place: u32) -> String {
        let (mut digits, mut name) = (Vec::new(), String::new());
        self.make(places, place, &mut digits, &mut name);
        if !self.same.is_shared(&name) && !is_unusable(&name) {
            return name;
        }
        let name = name.replace(['/', '\0'], "_");
        with_hash(name, &places.identity(place))
    }

    /// The name as the original makes it.
    #[cfg(test)]
    pub(super) fn original(&self, places: &impl Places, place: u32) -> String {
        let mut name = String::new();
        self.make(places, place, &mut Vec::new(), &mut name);
        name
    }

    fn make(&self, places: &impl Places, place: u32, digits: &mut Vec<usize>, name: &mut String) {
        let block = places.digits(place, digits);
        name.clear();
        for part in &self.blocks[block] {
            name.push_str(&part.pieces[digits[part.axis]]);
        }
        if !self.removed.is_empty() {
            *name = without(std::mem::take(name), &self.removed);
        }
    }
}

/// A name that is not enough, cut if it is too long, with a hash of what it stands for.
pub(crate) fn with_hash(mut name: String, identity: &str) -> String {
    name.truncate(name.floor_char_boundary(LONGEST_NAME - SUFFIX));
    format!("{name}#{:016x}", hash(identity.as_bytes()))
}

fn without(mut text: String, removed: &[String]) -> String {
    for removed in removed.iter().filter(|removed| !removed.is_empty()) {
        if text.contains(removed.as_str()) {
            text = text.replace(removed.as_str(), "");
        }
    }
    text
}

/// Whether no folder can be called so.
fn is_unusable(name: &str) -> bool {
    name.len() > LONGEST_NAME
        || memchr::memchr2(b'/', 0, name.as_bytes()).is_some()
        || matches!(name, "." | "..")
}
