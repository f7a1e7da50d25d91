//! A command becomes the words of an `execve`.
//!
//! A line in which the shell would do nothing but split at blanks is split
//! here, which saves starting a shell. Everything else is the shell's.

use std::ffi::c_char;
use std::ptr;

/// The words of one command, as `execve` wants them.
#[derive(Default)]
pub(crate) struct Argv {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers are to what it owns.
unsafe impl Send for Argv {}

impl Argv {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    /// Adds a word without a zero in it.
    pub(crate) fn add(&mut self, word: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(word);
        self.bytes.push(0);
    }

    /// How many bytes they take.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The first word, or nothing.
    pub(crate) fn first(&self) -> &[u8] {
        self.words().next().unwrap_or_default()
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let texts = self.bytes.split_inclusive(|&byte| byte == 0);
        texts.map(|text| &text[..text.len() - 1])
    }

    /// Puts other words in the place of the first.
    pub(crate) fn replace_first(&mut self, words: &[&[u8]]) {
        let mut changed = Self::default();
        for word in words.iter().copied().chain(self.words().skip(1)) {
            changed.add(word);
        }
        *self = changed;
    }

    /// The list for `execve`, valid until something is changed.
    pub(crate) fn as_ptr(&mut self) -> *const *const c_char {
        self.pointers.clear();
        for &start in &self.starts {
            self.pointers.push(self.bytes[start..].as_ptr().cast());
        }
        self.pointers.push(ptr::null());
        self.pointers.as_ptr()
    }
}

/// Bytes that mean something to a POSIX shell, wherever they stand.
const SPECIAL: &[u8] = b"|&;<>()$`\\\"'*?[]#~!{}\n\r\0";

/// First words that a shell understands itself. Some exist as programs too,
/// but behave differently there (`echo -e`, `kill %1`), so the shell has them.
const SHELL_WORDS: &[&str] = &[
    ".", ":", "alias", "bg", "break", "case", "cd", "command", "continue", "do", "done", "echo",
    "elif", "else", "esac", "eval", "exec", "exit", "export", "fc", "fg", "fi", "for", "function",
    "getopts", "hash", "if", "in", "jobs", "kill", "local", "printf", "pwd", "read", "readonly",
    "return", "select", "set", "shift", "source", "test", "then", "time", "times", "trap", "type",
    "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
];

/// The words of a line that needs no shell, or `None` if it needs one.
pub(crate) fn plain_words(line: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    if line.iter().any(|byte| SPECIAL.contains(byte)) {
        return None;
    }
    let words =
        || line.split(|&byte| byte == b' ' || byte == b'\t').filter(|word| !word.is_empty());
    let first = words().next()?;
    // `A=1 program` sets a variable.
    let is_shells = SHELL_WORDS.iter().any(|word| word.as_bytes() == first);
    if first.contains(&b'=') || is_shells {
        return None;
    }
    Some(words())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<Vec<&[u8]>> {
        plain_words(line).map(Iterator::collect)
    }

    #[test]
    fn a_line_without_shell_characters_is_split_at_blanks() {
        assert_eq!(
            words(b"python  train.py --lr=0.1\tout/a,b:c@d%e"),
            Some(vec![&b"python"[..], b"train.py", b"--lr=0.1", b"out/a,b:c@d%e"])
        );
    }

    #[test]
    fn a_line_with_shell_characters_is_left_to_the_shell() {
        for line in [
            &b"a | b"[..],
            b"a && b",
            b"a; b",
            b"a > b",
            b"a $B",
            b"a `b`",
            b"a \"b\"",
            b"a 'b'",
            b"a *",
            b"a ?",
            b"a [b]",
            b"a ~/b",
            b"(a)",
            b"a #b",
            b"a\\ b",
            b"! a",
            b"a {b,c}",
            b"A=1 b",
            b"cd x",
            b"exit 3",
            b"echo -e x",
            b"for i in a",
            b". env",
            b"a\nb",
        ] {
            assert_eq!(words(line), None, "{}", line.escape_ascii());
        }
    }
}
