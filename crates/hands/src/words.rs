//! A command becomes the words of an `execve`.
//!
//! A line in which the shell would do nothing but split at blanks is split
//! here, which saves starting a shell. Everything else is the shell's.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes that mean something to a POSIX shell, wherever they stand.
const SPECIAL: &[u8] = b"|&;<>()$`\\\"'*?[]#~!{}\n\r\0";

/// First words that a shell understands itself. Some exist as programs too,
/// but behave differently there (`echo -e`, `kill %1`), so the shell has them.
const SHELL_WORDS: &[&[u8]] = &[
    b".",
    b":",
    b"alias",
    b"bg",
    b"break",
    b"case",
    b"cd",
    b"command",
    b"continue",
    b"do",
    b"done",
    b"echo",
    b"elif",
    b"else",
    b"esac",
    b"eval",
    b"exec",
    b"exit",
    b"export",
    b"fc",
    b"fg",
    b"fi",
    b"for",
    b"function",
    b"getopts",
    b"hash",
    b"if",
    b"in",
    b"jobs",
    b"kill",
    b"local",
    b"printf",
    b"pwd",
    b"read",
    b"readonly",
    b"return",
    b"select",
    b"set",
    b"shift",
    b"source",
    b"test",
    b"then",
    b"time",
    b"times",
    b"trap",
    b"type",
    b"ulimit",
    b"umask",
    b"unalias",
    b"unset",
    b"until",
    b"wait",
    b"while",
];

/// The words of a line that needs no shell, or `None` if it needs one.
pub(crate) fn plain_words(line: &[u8]) -> Option<Vec<&[u8]>> {
    if line.iter().any(|byte| SPECIAL.contains(byte)) {
        return None;
    }
    let words: Vec<&[u8]> = line
        .split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|word| !word.is_empty())
        .collect();
    let first = *words.first()?;
    // `A=1 program` sets a variable.
    if first.contains(&b'=') || SHELL_WORDS.contains(&first) {
        return None;
    }
    Some(words)
}

/// How many programs are remembered to have been started.
const PROVEN: usize = 1024;

/// Finds programs on the `PATH`, and remembers where they were.
pub(crate) struct Programs {
    path: Vec<PathBuf>,
    found: FxHashMap<Vec<u8>, CString>,
    /// Those that could be executed.
    proven: FxHashSet<Vec<u8>>,
}

impl Programs {
    /// Looks in the folders of this process's `PATH`.
    pub(crate) fn from_env() -> Self {
        // What a C library assumes when there is no PATH at all.
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        Self {
            path: std::env::split_paths(&path).collect(),
            found: FxHashMap::default(),
            proven: FxHashSet::default(),
        }
    }

    /// Whether it could be executed the last time.
    pub(crate) fn is_proven(&self, name: &[u8]) -> bool {
        self.proven.contains(name)
    }

    /// It can be executed.
    pub(crate) fn prove(&mut self, name: &[u8]) {
        if self.proven.len() < PROVEN && !self.is_proven(name) {
            self.proven.insert(name.to_owned());
        }
    }

    /// The file to execute for `name`. A name with a slash is the file.
    pub(crate) fn find(&mut self, name: &[u8]) -> Option<CString> {
        if name.contains(&b'/') {
            return CString::new(name).ok();
        }
        if !self.found.contains_key(name) {
            let file = self.search(name)?;
            self.found.insert(name.to_owned(), file);
        }
        self.found.get(name).cloned()
    }

    /// Forgets where `name` was: it is not there any more.
    pub(crate) fn forget(&mut self, name: &[u8]) {
        self.proven.remove(name);
        self.found.remove(name);
    }

    fn search(&self, name: &[u8]) -> Option<CString> {
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        self.path
            .iter()
            .map(|folder| folder.join(name))
            .find(|file| {
                file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
            })
            .and_then(|file| CString::new(file.into_os_string().as_bytes()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_shell_characters_is_split_at_blanks() {
        assert_eq!(
            plain_words(b"python  train.py --lr=0.1\tout/a,b:c@d%e"),
            Some(vec![
                &b"python"[..],
                b"train.py",
                b"--lr=0.1",
                b"out/a,b:c@d%e"
            ])
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
            assert_eq!(plain_words(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn programs_are_found_on_the_path() {
        let mut programs = Programs::from_env();
        assert!(programs.find(b"sh").is_some());
        assert!(programs.find(b"no-such-program-anywhere").is_none());
        assert_eq!(programs.find(b"./x").unwrap().as_bytes(), b"./x");
    }
}
