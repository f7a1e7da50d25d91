//! The names of result folders, and which tests would share one.

use std::collections::{HashMap, HashSet};

use super::config::{Block, SchedulerConfig};
use super::print::python_str;
use super::value::GridValue;

/// No file system has longer names, in bytes.
const LONGEST_NAME: usize = 255;

/// What is appended to a name that is not enough: `#` and sixteen digits. With eight, two of
/// a million tests of one name would have the same.
const SUFFIX: usize = 17;

/// So many hashes are compared at a time: 8 MiB of them. Tests have no time for as many.
const AT_ONCE: u64 = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Makes the names of folders out of pieces, one per value.
pub(super) struct FolderNames {
    blocks: Vec<Vec<NamePart>>,
    /// Texts of several characters that are taken out of a whole name.
    removed: Vec<String>,
    /// The hashes of names that several different tests would have.
    shared: HashSet<u64>,
    /// Tests that are there several times: the hash of what they are, and the first of them.
    repeated: HashMap<u64, u32>,
}

/// What one parameter adds to the names of a block's tests, in the order of the keys.
struct NamePart {
    /// Which of the block's parameters it is.
    axis: usize,
    /// A piece for each of its values; none if the key is ignored.
    pieces: Vec<String>,
}

/// What was found out about the names of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameReport {
    /// How many tests would share a folder with others.
    pub shared: u64,
    /// One such name.
    pub shared_example: Option<String>,
    /// How many tests have a name that cannot be that of a folder.
    pub unusable: u64,
    /// One such name.
    pub unusable_example: Option<String>,
    /// How many tests are there before.
    pub repeated: u64,
}

/// Where a test stands: its block, and which value each parameter has.
pub(super) trait Places {
    fn len(&self) -> u32;
    fn digits(&self, place: u32, digits: &mut Vec<usize>) -> usize;
    fn identity(&self, place: u32) -> String;
}

impl FolderNames {
    pub fn new(config: &SchedulerConfig, blocks: &[Block]) -> Self {
        // A character is taken out of each piece once and for all; longer texts may reach
        // from one piece into the next.
        let ignored = &config.ignored_characters;
        let in_pieces = ignored.iter().all(|text| text.chars().count() == 1);
        let piece = |key: &str, value: &GridValue| {
            let text = python_str(value);
            let until = config
                .longest_value
                .and_then(|longest| text.char_indices().nth(longest));
            let text = &text[..until.map_or(text.len(), |(at, _)| at)];
            let piece = format!("{key}{}{text}{}", config.indicator, config.separator);
            if in_pieces {
                without(piece, ignored)
            } else {
                piece
            }
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
            removed: if in_pieces {
                Vec::new()
            } else {
                ignored.clone()
            },
            shared: HashSet::new(),
            repeated: HashMap::new(),
        }
    }

    /// Finds out which tests would share a folder, and which are there twice.
    ///
    /// However many tests there are, only so many hashes are held at a time, and the names
    /// of those tests alone whose hashes are equal.
    pub fn compare(&mut self, places: &impl Places) -> NameReport {
        let mut report = NameReport::default();
        let (mut digits, mut name) = (Vec::new(), String::new());
        let count = places.len();
        let passes = u64::from(count).div_ceil(AT_ONCE).max(1);
        let mut hashes =
            Vec::with_capacity(usize::try_from(AT_ONCE.min(count.into())).unwrap_or(0));
        let mut suspects = HashSet::new();
        for pass in 0..passes {
            hashes.clear();
            for place in 0..count {
                self.make(places, place, &mut digits, &mut name);
                if pass == 0 && is_unusable(&name) {
                    report.unusable += 1;
                    report.unusable_example.get_or_insert_with(|| name.clone());
                }
                let hash = hash(name.as_bytes());
                if (u128::from(hash) * u128::from(passes)) >> 64 == u128::from(pass) {
                    hashes.push(hash);
                }
            }
            hashes.sort_unstable();
            let equal = hashes.windows(2).filter(|pair| pair[0] == pair[1]);
            suspects.extend(equal.map(|pair| pair[0]));
        }
        if !suspects.is_empty() {
            self.confirm(places, &suspects, &mut report);
        }
        report
    }

    /// Tells tests that are the same from those whose names alone are, or only the hashes of
    /// these.
    fn confirm(&mut self, places: &impl Places, suspects: &HashSet<u64>, report: &mut NameReport) {
        struct Group {
            name: String,
            first: (u64, u32),
            /// Tests of this name that are not the first.
            others: HashMap<u64, u32>,
            repeats: u64,
        }
        let mut groups: HashMap<u64, Group> = HashMap::new();
        let (mut digits, mut name) = (Vec::new(), String::new());
        for place in 0..places.len() {
            self.make(places, place, &mut digits, &mut name);
            let hashed = hash(name.as_bytes());
            if !suspects.contains(&hashed) {
                continue;
            }
            let identity = hash(places.identity(place).as_bytes());
            let Some(group) = groups.get_mut(&hashed) else {
                let group = Group {
                    name: name.clone(),
                    first: (identity, place),
                    others: HashMap::new(),
                    repeats: 0,
                };
                groups.insert(hashed, group);
                continue;
            };
            let first = if group.first.0 == identity {
                group.first.1
            } else {
                *group.others.entry(identity).or_insert(place)
            };
            if first != place {
                group.repeats += 1;
                self.repeated.insert(identity, first);
            } else if group.name != name {
                // The hashes are equal, and the names are not.
                group.others.remove(&identity);
            }
        }
        for (hashed, group) in groups {
            report.repeated += group.repeats;
            if !group.others.is_empty() {
                report.shared += 1 + group.others.len() as u64;
                let example = report
                    .shared_example
                    .get_or_insert_with(|| group.name.clone());
                // The same one, whatever the order in here.
                if group.name < *example {
                    *example = group.name;
                }
                self.shared.insert(hashed);
            }
        }
    }

    /// Whether the same test is there before.
    pub fn is_repeated(&self, places: &impl Places, place: u32) -> bool {
        if self.repeated.is_empty() {
            return false;
        }
        let identity = hash(places.identity(place).as_bytes());
        self.repeated
            .get(&identity)
            .is_some_and(|first| *first != place)
    }

    /// The name of a test's folder.
    pub fn name(&self, places: &impl Places, place: u32) -> String {
        let (mut digits, mut name) = (Vec::new(), String::new());
        self.make(places, place, &mut digits, &mut name);
        let is_shared = !self.shared.is_empty() && self.shared.contains(&hash(name.as_bytes()));
        if !is_shared && !is_unusable(&name) {
            return name;
        }
        let identity = hash(places.identity(place).as_bytes());
        let mut name = name.replace(['/', '\0'], "_");
        name.truncate(name.floor_char_boundary(LONGEST_NAME - SUFFIX));
        format!("{name}#{identity:016x}")
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

/// FNV-1a, mixed once more: the same in every version, as names of folders depend on it.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}
