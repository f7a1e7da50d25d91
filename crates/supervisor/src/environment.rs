//! The environment of a child, laid out as the kernel reads it.

use std::ffi::{CStr, CString, OsString, c_char};
use std::fmt::Display;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::ptr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// A part that is the same for all children, laid out once, and what each gets of
/// its own on top. A copy shares the unchanging part.
#[derive(Clone)]
pub(crate) struct Environment {
    shared: Arc<Shared>,
    /// The shared variables, then those of its own that are not among them, then
    /// a null.
    pointers: Vec<*const c_char>,
    /// Which of the shared ones have a value of its own in their place.
    replaced: Vec<usize>,
    own: Vec<u8>,
    entries: Vec<VariablePosition>,
}

struct Shared {
    entries: Vec<CString>,
    by_name: FxHashMap<Box<[u8]>, usize>,
}

/// Where a variable of its own is in `own`.
#[derive(Clone, Copy)]
struct VariablePosition {
    start: usize,
    name_end: usize,
}

// SAFETY: the pointers are to what it owns or shares unchanged.
unsafe impl Send for Environment {}

impl Environment {
    /// Of several variables with the same name the last one counts.
    pub(crate) fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut shared = Shared { entries: Vec::new(), by_name: FxHashMap::default() };
        for (name, value) in variables {
            let key = name.as_bytes().into();
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            let Ok(entry) = CString::new(entry) else {
                continue;
            };
            if let Some(&at) = shared.by_name.get(&key) {
                shared.entries[at] = entry;
            } else {
                shared.by_name.insert(key, shared.entries.len());
                shared.entries.push(entry);
            }
        }
        Self {
            pointers: shared.entries.iter().map(|entry| entry.as_ptr()).collect(),
            shared: Arc::new(shared),
            replaced: Vec::new(),
            own: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Starts anew with the shared part alone.
    pub(crate) fn clear(&mut self) {
        self.own.clear();
        self.entries.clear();
    }

    /// Adds a variable for the next start. Neither may hold a zero.
    pub(crate) fn add(&mut self, name: &[u8], value: impl Display) {
        self.begin(name);
        // Writing to memory cannot fail.
        let _ = write!(self.own, "{value}\0");
    }

    /// As [`Self::add`], with a value that need not be text.
    pub(crate) fn add_bytes(&mut self, name: &[u8], value: &[u8]) {
        self.begin(name);
        self.own.extend_from_slice(value);
        self.own.push(0);
    }

    fn begin(&mut self, name: &[u8]) {
        let start = self.own.len();
        self.own.extend_from_slice(name);
        let name_end = self.own.len();
        self.own.push(b'=');
        self.entries.push(VariablePosition { start, name_end });
    }

    /// The value that a variable has for the next start, if it is not the shared
    /// one.
    pub(crate) fn own_value(&self, name: &[u8]) -> Option<&[u8]> {
        let entry =
            self.entries.iter().rfind(|entry| &self.own[entry.start..entry.name_end] == name)?;
        let value = &self.own[entry.name_end + 1..];
        let end = memchr::memchr(0, value)?;
        Some(&value[..end])
    }

    /// The variables of its own, with their values; of several with the same name the
    /// last one counts.
    pub(crate) fn own(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| {
            let value = &self.own[entry.name_end + 1..];
            let end = memchr::memchr(0, value).unwrap_or(value.len());
            (&self.own[entry.start..entry.name_end], &value[..end])
        })
    }

    /// All variables for the next start, each as `NAME=VALUE`.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &[u8]> {
        self.as_ptr();
        let pointers = self.pointers.iter().filter(|pointer| !pointer.is_null());
        // SAFETY: all but the null at the end are texts with a final zero, which stay as
        // they are as long as this is borrowed.
        pointers.map(|&pointer| unsafe { CStr::from_ptr(pointer) }.to_bytes())
    }

    /// The list for `execve`, valid until something is changed.
    pub(crate) fn as_ptr(&mut self) -> *const *const c_char {
        for at in self.replaced.drain(..) {
            self.pointers[at] = self.shared.entries[at].as_ptr();
        }
        self.pointers.truncate(self.shared.entries.len());
        let name = |entry: &VariablePosition| &self.own[entry.start..entry.name_end];
        self.entries.sort_unstable_by(|a, b| name(a).cmp(name(b)).then(a.start.cmp(&b.start)));
        for (index, entry) in self.entries.iter().enumerate() {
            let next = self.entries.get(index + 1);
            if next.is_some_and(|next| name(next) == name(entry)) {
                continue;
            }
            let pointer = self.own[entry.start..].as_ptr().cast();
            match self.shared.by_name.get(name(entry)) {
                Some(&at) => {
                    self.pointers[at] = pointer;
                    self.replaced.push(at);
                }
                None => self.pointers.push(pointer),
            }
        }
        self.pointers.push(ptr::null());
        self.pointers.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter();
        Environment::new(variables.map(|&(name, value)| (name.into(), value.into())))
    }

    fn listed(environment: &mut Environment) -> Vec<String> {
        let list = environment.as_ptr();
        let mut entries = Vec::new();
        for at in 0.. {
            // SAFETY: the list ends in a null, before which all are texts.
            unsafe {
                let entry = *list.add(at);
                if entry.is_null() {
                    break;
                }
                entries.push(CStr::from_ptr(entry).to_str().unwrap().to_owned());
            }
        }
        entries.sort();
        entries
    }

    #[test]
    fn the_last_of_a_name_counts_and_is_there_once() {
        let mut environment = shared(&[("A", "1"), ("B", "2"), ("A", "3")]);
        assert_eq!(listed(&mut environment), ["A=3", "B=2"]);
        environment.add(b"B", 4);
        environment.add(b"C", 5);
        environment.add_bytes(b"C", b"6");
        environment.add(b"AB", 7);
        assert_eq!(listed(&mut environment), ["A=3", "AB=7", "B=4", "C=6"]);
        // Looking does not change it, and the next start has the shared ones back.
        assert_eq!(listed(&mut environment), ["A=3", "AB=7", "B=4", "C=6"]);
        assert_eq!(environment.own_value(b"C"), Some(&b"6"[..]));
        assert_eq!(environment.own_value(b"A"), None);
        environment.clear();
        assert_eq!(listed(&mut environment), ["A=3", "B=2"]);
    }

    #[test]
    fn a_copy_has_the_shared_part_and_its_own() {
        let mut first = shared(&[("A", "1")]);
        let mut second = first.clone();
        first.add(b"A", 2);
        assert_eq!(listed(&mut first), ["A=2"]);
        assert_eq!(listed(&mut second), ["A=1"]);
    }
}
