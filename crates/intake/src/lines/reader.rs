use std::collections::VecDeque;

use packhorse_model::{Command, TaskSpec};

use super::directive::{Comment, Directives};
use super::error::{LineError, LineProblem};
use crate::Entry;
use crate::names::Names;
use crate::splitter::LONGEST;

/// How many bytes of a line that is too long are shown.
const SHOWN: usize = 60;

/// How far a source of tasks has been read, in whichever language.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    /// How many lines have ended.
    line: u64,
    joined: Option<Joined>,
    /// Boxed, because most commands have none.
    directives: Option<Box<Directives>>,
    pub errors: VecDeque<LineError>,
    /// What the tasks handed out so far are called.
    pub names: Names,
}

/// Lines that go on in the next.
#[derive(Debug)]
struct Joined {
    text: Vec<u8>,
    line: u64,
    error: Option<LineError>,
}

impl LineReader {
    /// Begins another source.
    pub fn next_source(&mut self) {
        *self = Self { names: std::mem::take(&mut self.names), ..Self::default() };
    }

    /// How many bytes of a command are held back, because it goes on.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.joined.as_ref().map_or(0, |joined| joined.text.len())
    }

    /// Counts a line. A byte order mark is not part of the first.
    pub fn count<'a>(&mut self, line: &'a [u8]) -> (u64, &'a [u8]) {
        self.line += 1;
        let marked = line.strip_prefix(b"\xef\xbb\xbf");
        (self.line, marked.filter(|_| self.line == 1).unwrap_or(line))
    }

    /// A line has come, without its newline. It has no NUL byte unless `has_nul`.
    pub fn line(&mut self, line: &[u8], has_nul: bool) -> Option<Result<Entry, LineError>> {
        let (_, line) = self.count(line.strip_suffix(b"\r").unwrap_or(line));
        let Some(first) = line.iter().position(|&b| !is_blank(b)) else {
            return self.joined_so_far();
        };
        // Within a command a `#` is the shell's to understand.
        if line[first] == b'#' && self.joined.is_none() {
            self.comment(line, first);
            return None;
        }

        let goes_on = ends_in_escape(line);
        let part = &line[..line.len() - usize::from(goes_on)];
        let nul = if has_nul { memchr::memchr(0, part) } else { None };
        let error = nul.map(|at| LineError::new(self.line, line, at..at + 1, LineProblem::Nul));
        if !goes_on && self.joined.is_none() {
            return self.command(self.line, error, || part[first..trimmed(part)].to_vec());
        }
        self.join(part, error);
        if goes_on { None } else { self.joined_so_far() }
    }

    /// An item that ended in a NUL has come.
    pub fn item(&mut self, item: &[u8]) -> Option<Result<Entry, LineError>> {
        let line = self.line + 1;
        self.line += memchr::memchr_iter(b'\n', item).count() as u64;
        (!item.iter().all(u8::is_ascii_whitespace)).then(|| {
            let spec = TaskSpec::new(Command::Line(item.to_vec()));
            Ok(Entry { line, spec })
        })
    }

    /// A line or item has come that is longer than any may be. It is given up, with what
    /// belongs to it.
    pub fn too_long(&mut self, piece: &[u8]) -> LineError {
        self.joined = None;
        self.directives = None;
        let (number, line) = self.count(piece);
        let shown = line.len().min(SHOWN);
        LineError::new(number, &line[..shown], 0..shown, LineProblem::TooLong)
    }

    /// The input has ended.
    pub fn end(&mut self) -> Option<Result<Entry, LineError>> {
        self.joined_so_far().or_else(|| self.directives.take()?.into_unused().map(Err))
    }

    fn comment(&mut self, line: &[u8], start: usize) {
        let comment = Comment::of(&line[start..]);
        if let Comment::Remark = comment {
            return;
        }
        let number = self.line;
        let directives =
            self.directives.get_or_insert_with(|| Box::new(Directives::new(number, line, start)));
        if let Comment::Directive = comment {
            directives.read(number, line, start, &self.names, &mut self.errors);
        } else {
            directives.mark_broken();
            let word = line[start..].iter().take_while(|&&b| !is_blank(b)).count();
            let problem = LineProblem::MisspeltDirective;
            let error = LineError::new(number, line, start..start + word, problem);
            self.errors.push_back(error);
        }
    }

    fn join(&mut self, part: &[u8], error: Option<LineError>) {
        // Blanks in front of a command do not count, nor do lines of them.
        if self.joined.is_none() && part.iter().all(|&b| is_blank(b)) {
            return;
        }
        let joined = self.joined.get_or_insert_with(|| Joined {
            text: Vec::new(),
            line: self.line,
            error: None,
        });
        if joined.error.is_none() {
            joined.error = error;
        }
        if joined.error.is_none() && joined.text.len() + part.len() > LONGEST {
            let shown = part.len().min(SHOWN);
            let problem = LineProblem::TooLong;
            joined.error = Some(LineError::new(self.line, &part[..shown], 0..shown, problem));
        }
        if joined.error.is_none() {
            joined.text.extend_from_slice(part);
        } else {
            joined.text = Vec::new();
        }
    }

    /// Ends the command that went on over several lines, if there is one.
    fn joined_so_far(&mut self) -> Option<Result<Entry, LineError>> {
        let Joined { mut text, line, error } = self.joined.take()?;
        self.command(line, error, || {
            text.truncate(trimmed(&text));
            let first = text.iter().position(|&b| !is_blank(b));
            text.drain(..first.unwrap_or(0));
            text.shrink_to_fit();
            text
        })
    }

    /// A command is complete.
    fn command(
        &mut self,
        line: u64,
        error: Option<LineError>,
        command: impl FnOnce() -> Vec<u8>,
    ) -> Option<Result<Entry, LineError>> {
        let directives = self.directives.take();
        if let Some(error) = error {
            return Some(Err(error));
        }
        let Some(directives) = directives else {
            // Most commands: made where it is returned, not moved there.
            return Some(Ok(Entry {
                line,
                spec: TaskSpec { command: Command::Line(command()), ..TaskSpec::default() },
            }));
        };
        let mut spec = directives.into_spec()?;
        spec.command = Command::Line(command());
        self.names.insert(spec.name.as_ref());
        Some(Ok(Entry { line, spec }))
    }
}

pub(super) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Whether the last backslash is not itself escaped.
fn ends_in_escape(text: &[u8]) -> bool {
    let backslashes = text.iter().rev().take_while(|&&b| b == b'\\').count();
    !backslashes.is_multiple_of(2)
}

/// How much of the text is left without the blanks at its end. One that is
/// escaped belongs to the command.
fn trimmed(text: &[u8]) -> usize {
    let blanks = text.iter().rev().take_while(|&&b| is_blank(b)).count();
    let end = text.len() - blanks;
    end + usize::from(blanks > 0 && ends_in_escape(&text[..end]))
}
