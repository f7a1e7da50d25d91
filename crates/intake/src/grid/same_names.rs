//! Which of many names are the same, without holding the names.

use std::collections::{HashMap, HashSet};

/// So many hashes are compared at a time: 8 MiB of them. Tests have no time for as many.
const AT_ONCE: u64 = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Folders that have names by their places.
pub(crate) trait NamedPlaces {
    fn count(&self) -> u32;
    /// Replaces `name` by the name of a place. `digits` is room to work in.
    fn write_name(&self, place: u32, digits: &mut Vec<usize>, name: &mut String);
    /// What tells what is at this place from everything else, whatever its name.
    fn identity(&self, place: u32) -> String;
    /// Whether no folder can be called so.
    fn is_unusable(&self, name: &str) -> bool;
}

/// What was found out about the names of folders.
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

/// The names that several places have.
#[derive(Default)]
pub(crate) struct SameNames {
    /// The hashes of names that several different ones would have.
    shared: HashSet<u64>,
    /// What is there several times: the hash of what it is, and the first place.
    repeated: HashMap<u64, u32>,
}

impl SameNames {
    /// Finds out who would share a folder, and who is there twice.
    ///
    /// However many there are, only so many hashes are held at a time, and the names of
    /// those alone whose hashes are equal.
    pub fn compare(places: &impl NamedPlaces) -> (Self, NameReport) {
        let mut report = NameReport::default();
        let (mut digits, mut name) = (Vec::new(), String::new());
        let count = places.count();
        let passes = u64::from(count).div_ceil(AT_ONCE).max(1);
        let mut hashes =
            Vec::with_capacity(usize::try_from(AT_ONCE.min(count.into())).unwrap_or(0));
        let mut suspects = HashSet::new();
        for pass in 0..passes {
            hashes.clear();
            for place in 0..count {
                places.write_name(place, &mut digits, &mut name);
                if pass == 0 && places.is_unusable(&name) {
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
        let mut same = Self::default();
        if !suspects.is_empty() {
            same.confirm(places, &suspects, &mut report);
        }
        (same, report)
    }

    /// Tells those that are the same from those whose names alone are, or only the hashes
    /// of these.
    fn confirm(
        &mut self,
        places: &impl NamedPlaces,
        suspects: &HashSet<u64>,
        report: &mut NameReport,
    ) {
        struct NameGroup {
            name: String,
            first: (u64, u32),
            /// Those of this name that are not the first.
            others: HashMap<u64, u32>,
            repeats: u64,
        }
        let mut groups: HashMap<u64, NameGroup> = HashMap::new();
        let (mut digits, mut name) = (Vec::new(), String::new());
        for place in 0..places.count() {
            places.write_name(place, &mut digits, &mut name);
            let hashed = hash(name.as_bytes());
            if !suspects.contains(&hashed) {
                continue;
            }
            let identity = hash(places.identity(place).as_bytes());
            let Some(group) = groups.get_mut(&hashed) else {
                let group = NameGroup {
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
                let example = report.shared_example.get_or_insert_with(|| group.name.clone());
                // The same one, whatever the order in here.
                if group.name < *example {
                    *example = group.name;
                }
                self.shared.insert(hashed);
            }
        }
    }

    /// Whether others have this name that are something else.
    pub fn is_shared(&self, name: &str) -> bool {
        !self.shared.is_empty() && self.shared.contains(&hash(name.as_bytes()))
    }

    /// Whether the same is there before.
    pub fn is_repeated(&self, places: &impl NamedPlaces, place: u32) -> bool {
        if self.repeated.is_empty() {
            return false;
        }
        let identity = hash(places.identity(place).as_bytes());
        self.repeated.get(&identity).is_some_and(|first| *first != place)
    }
}

/// FNV-1a, mixed once more: the same in every version, as names of folders depend on it.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}
