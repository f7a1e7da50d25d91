use std::collections::VecDeque;

use packhorse_model::{Command, TaskSpec};

use super::Separator;
use super::directive::{Comment, Directives};
use super::error::{LineError, LineProblem};
use crate::Entry;
use crate::names::Names;
use crate::splitter::Splitter;

/// Commands out of a stream of bytes, each as soon as it is complete.
///
/// ```
/// use packhorse_intake::lines::{Lines, Separator};
/// use packhorse_model::Command;
///
/// let mut lines = Lines::new(Separator::Newline);
/// lines.push(b"python a.py\npython b");
/// let first = lines.next().unwrap()?.spec;
/// assert_eq!(first.command, Command::Line(b"python a.py".to_vec()));
/// assert!(lines.next().is_none(), "the second line has not arrived");
/// lines.push(b".py");
/// lines.finish();
/// let second = lines.next().unwrap()?.spec;
/// assert_eq!(second.command, Command::Line(b"python b.py".to_vec()));
/// # Ok::<(), packhorse_intake::lines::LineError>(())
/// ```
///
/// As an iterator it ends whenever it has to wait, and goes on when more has
/// been pushed.
#[derive(Debug)]
pub struct Lines {
    separator: Separator,
    splitter: Splitter,
    reader: LineReader,
}

#[derive(Debug, Default)]
struct LineReader {
    /// How many lines have ended.
    line: u64,
    joined: Option<Joined>,
    /// Boxed, because most commands have none.
    directives: Option<Box<Directives>>,
    errors: VecDeque<LineError>,
    /// What the commands handed out so far are called.
    names: Names,
}

/// Lines that go on in the next.
#[derive(Debug)]
struct Joined {
    text: Vec<u8>,
    line: u64,
    error: Option<LineError>,
}

impl Lines {
    /// A stream from which nothing has arrived yet.
    pub fn new(separator: Separator) -> Self {
        Self {
            separator,
            splitter: Splitter::default(),
            reader: LineReader::default(),
        }
    }

    /// Takes the next bytes, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.splitter.push(bytes);
    }

    /// The input has ended: what has no newline yet is its last line.
    pub fn finish(&mut self) {
        self.splitter.end();
    }

    /// Begins another source: lines are counted from 1 again, and the names of
    /// earlier tasks stay known. What has not been handed out is forgotten.
    pub fn next_source(&mut self) {
        self.splitter.clear();
        self.reader = LineReader {
            names: std::mem::take(&mut self.reader.names),
            ..LineReader::default()
        };
    }

    /// How many bytes of commands are held back, because their end has not
    /// arrived or nobody has asked for them.
    pub fn buffered(&self) -> usize {
        let joined = self.reader.joined.as_ref();
        self.splitter.held() + joined.map_or(0, |joined| joined.text.len())
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.splitter.capacity()
    }
}

impl Iterator for Lines {
    type Item = Result<Entry, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.reader.errors.pop_front() {
                return Some(Err(error));
            }
            let has_nul = self.splitter.has_nul();
            let Some(piece) = self.splitter.next(self.separator.byte()) else {
                return self.splitter.has_ended().then(|| self.reader.end())?;
            };
            let found = match self.separator {
                Separator::Newline => self.reader.line(piece, has_nul),
                Separator::Null => self.reader.item(piece),
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

impl LineReader {
    /// A line has come, without its newline. It has no NUL byte unless `has_nul`.
    fn line(&mut self, line: &[u8], has_nul: bool) -> Option<Result<Entry, LineError>> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = match self.line {
            0 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
            _ => line,
        };
        self.line += 1;
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
        let nul = if has_nul {
            memchr::memchr(0, part)
        } else {
            None
        };
        let error = nul.map(|at| LineError::new(self.line, line, at..at + 1, LineProblem::Nul));
        if !goes_on && self.joined.is_none() {
            return self.command(self.line, error, || part[first..trimmed(part)].to_vec());
        }
        self.join(part, error);
        if goes_on { None } else { self.joined_so_far() }
    }

    /// An item that ended in a NUL has come.
    fn item(&mut self, item: &[u8]) -> Option<Result<Entry, LineError>> {
        let line = self.line + 1;
        self.line += memchr::memchr_iter(b'\n', item).count() as u64;
        (!item.iter().all(u8::is_ascii_whitespace)).then(|| {
            let spec = TaskSpec::new(Command::Line(item.to_vec()));
            Ok(Entry { line, spec })
        })
    }

    /// The input has ended.
    fn end(&mut self) -> Option<Result<Entry, LineError>> {
        self.joined_so_far()
            .or_else(|| self.directives.take()?.into_unused().map(Err))
    }

    fn comment(&mut self, line: &[u8], start: usize) {
        let comment = Comment::of(&line[start..]);
        if let Comment::Remark = comment {
            return;
        }
        let number = self.line;
        let directives = self
            .directives
            .get_or_insert_with(|| Box::new(Directives::new(number, line, start)));
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
        if joined.error.is_none() {
            joined.text.extend_from_slice(part);
        } else {
            joined.text = Vec::new();
        }
    }

    /// Ends the command that went on over several lines, if there is one.
    fn joined_so_far(&mut self) -> Option<Result<Entry, LineError>> {
        let Joined {
            mut text,
            line,
            error,
        } = self.joined.take()?;
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
                spec: TaskSpec {
                    command: Command::Line(command()),
                    ..TaskSpec::default()
                },
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
