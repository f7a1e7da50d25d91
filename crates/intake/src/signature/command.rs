//! A line is several commands: which of them matter, and where they run.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use packhorse_model::Command;

use super::program::{base_name, skip_openers, variable};
use crate::shell;

/// A command of `bash -c "bash -c …"` beyond this depth is not looked into.
const DEEPEST: usize = 4;

/// Commands that need no GPU, and come before, behind or around those that do.
const LIGHT: &[&str] = &[
    ".", ":", "[", "cat", "cd", "cp", "date", "declare", "done", "echo", "esac", "exit", "export",
    "false", "fi", "for", "grep", "head", "hostname", "ln", "mkdir", "module", "mv", "popd",
    "printf", "pushd", "pwd", "rm", "rsync", "set", "sleep", "sort", "source", "tail", "tee",
    "test", "touch", "trap", "true", "ts", "typeset", "ulimit", "umask", "unset", "wait", "wc",
    "}",
];

/// Shells, whose `-c` is a line of its own.
const SHELLS: &[&str] = &["bash", "dash", "ksh", "sh", "zsh"];

/// The commands of a line and the folder they run in.
pub(super) struct ParsedLine {
    pub folder: PathBuf,
    /// Each as its words, and the folder it runs in. Never empty if the line is not.
    pub commands: Vec<(PathBuf, Vec<String>)>,
    /// The variables that are set for what comes next.
    set: Vec<String>,
}

impl ParsedLine {
    /// `env` is set before any of it runs.
    pub fn of(command: &Command, env: Vec<String>, folder: &Path) -> Self {
        let commands = match command {
            Command::Line(line) => commands_of(line),
            Command::Words(words) => vec![texts(words)],
        };
        let mut work = Self { folder: normal(folder), commands: Vec::new(), set: env };
        work.add(commands.clone(), 0);
        if work.commands.is_empty() {
            let folder = &work.folder;
            let commands = commands.into_iter();
            work.commands = commands.map(|words| (folder.clone(), words)).collect();
        }
        work
    }

    fn add(&mut self, commands: Vec<Vec<String>>, depth: usize) {
        for words in commands {
            let start = skip_openers(&words);
            let Some(program) = words.get(start) else {
                self.set(&words);
                continue;
            };
            let arguments = &words[start + 1..];
            let name = base_name(program);
            let activates = matches!(name, "conda" | "mamba" | "micromamba")
                && arguments.first().is_some_and(|word| word == "activate");
            match name {
                "cd" | "pushd" => self.enter(arguments),
                "export" | "declare" | "typeset" => self.set(arguments),
                _ => {}
            }
            if LIGHT.binary_search(&name).is_ok() || activates {
                continue;
            }
            let inner = inner_line(name, arguments).filter(|_| depth < DEEPEST);
            let before = self.set.clone();
            self.set(&words[..start]);
            if let Some(line) = inner {
                self.add(commands_of(line.as_bytes()), depth + 1);
            } else {
                let rest = words.into_iter().skip(start);
                let words = self.set.iter().cloned().chain(rest);
                self.commands.push((self.folder.clone(), words.collect()));
            }
            self.set = before;
        }
    }

    /// Takes note of the variables among these words. The last value of each counts.
    fn set(&mut self, words: &[String]) {
        for word in words {
            if let Some((name, _)) = variable(word) {
                let same = |other: &String| variable(other).is_some_and(|other| other.0 == name);
                self.set.retain(|other| !same(other));
                self.set.push(word.clone());
            }
        }
    }

    fn enter(&mut self, arguments: &[String]) {
        if let Some(folder) = arguments.iter().find(|word| !word.starts_with('-')) {
            self.folder = normal(&self.folder.join(folder));
        }
    }
}

/// Whether a program is a shell.
pub(super) fn is_shell(program: &str) -> bool {
    SHELLS.binary_search(&program).is_ok()
}

/// What `bash -lc LINE` runs.
fn inner_line<'a>(program: &str, arguments: &'a [String]) -> Option<&'a String> {
    let arguments = is_shell(program).then_some(arguments)?;
    let options = arguments.iter().take_while(|word| word.starts_with('-'));
    let at = options.clone().position(|word| !word.starts_with("--") && word.ends_with('c'))?;
    arguments.get(at + 1)
}

/// The path without `.` and `..`, as far as the text tells.
fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                found.pop();
            }
            other => found.push(other),
        }
    }
    found
}

fn commands_of(line: &[u8]) -> Vec<Vec<String>> {
    let commands = shell::commands(line);
    commands.iter().map(|words| texts(words)).collect()
}

fn texts(words: &[Vec<u8>]) -> Vec<String> {
    let words = words.iter().map(|word| String::from_utf8_lossy(word));
    words.map(Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_tables_is_found_in_them() {
        for table in [LIGHT, SHELLS] {
            assert!(table.is_sorted(), "{table:?}");
        }
    }
}
