//! What a program is started with, laid out as the kernel reads it.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;
use std::rc::Rc;

/// How many variables one start may add to the prepared environment.
const ADDED: usize = 24;

/// The environment of children: a part that is the same for all of them, laid
/// out once, and room in front of it for what each gets of its own. A copy shares
/// the unchanging part.
#[derive(Clone)]
pub(crate) struct Environment {
    /// Owns what `pointers` points to, behind the room for the added ones.
    _fixed: Rc<[CString]>,
    pointers: Vec<*mut c_char>,
    added: Vec<u8>,
    starts: Vec<usize>,
}

impl Environment {
    pub(crate) fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let fixed: Rc<[CString]> = variables
            .filter_map(|(name, value)| {
                let mut entry = name.into_vec();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                CString::new(entry).ok()
            })
            .collect();
        let mut pointers = vec![ptr::null_mut(); ADDED];
        pointers.extend(fixed.iter().map(|entry| entry.as_ptr().cast_mut()));
        pointers.push(ptr::null_mut());
        Self {
            _fixed: fixed,
            pointers,
            added: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Starts anew with the fixed part alone.
    pub(crate) fn clear(&mut self) {
        self.added.clear();
        self.starts.clear();
    }

    /// Adds a variable for the next start. A value with a NUL in it cannot be
    /// passed to any program and is cut there.
    pub(crate) fn add(&mut self, name: &str, value: &OsStr) {
        debug_assert!(self.starts.len() < ADDED);
        if self.starts.len() == ADDED {
            return;
        }
        self.starts.push(self.added.len());
        self.added.extend_from_slice(name.as_bytes());
        self.added.push(b'=');
        self.added
            .extend(value.as_bytes().iter().take_while(|&&byte| byte != 0));
        self.added.push(0);
    }

    pub(crate) fn as_ptr(&mut self) -> *const *mut c_char {
        let first = ADDED - self.starts.len();
        for (place, &start) in self.pointers[first..ADDED].iter_mut().zip(&self.starts) {
            *place = self.added[start..].as_mut_ptr().cast();
        }
        self.pointers[first..].as_ptr()
    }
}

/// The words of one command line, as `execve` wants them.
#[derive(Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    pointers: Vec<*mut c_char>,
}

impl Words {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    pub(crate) fn add(&mut self, word: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(word);
        self.bytes.push(0);
    }

    /// How many bytes they take.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Puts other words in the place of the first.
    pub(crate) fn replace_first(&mut self, words: &[&[u8]]) {
        let mut changed = Self::default();
        for word in words {
            changed.add(word);
        }
        for &start in self.starts.iter().skip(1) {
            let word = &self.bytes[start..];
            let end = word.iter().position(|&byte| byte == 0);
            changed.add(&word[..end.unwrap_or(word.len())]);
        }
        *self = changed;
    }

    pub(crate) fn as_ptr(&mut self) -> *const *mut c_char {
        self.pointers.clear();
        for &start in &self.starts {
            self.pointers.push(self.bytes[start..].as_mut_ptr().cast());
        }
        self.pointers.push(ptr::null_mut());
        self.pointers.as_ptr()
    }
}
