use std::collections::{BTreeSet, VecDeque};

use super::Separator;
use super::directive::{Comment, Directives, Verdict};
use super::error::{LineError, LineProblem};
use super::options::Options;
use super::splitter::Splitter;

/// Commands out of a stream of bytes, each as soon as it is complete.
///
/// ```
/// use packhorse_intake::lines::{Lines, Separator};
///
/// let mut lines = Lines::new(Separator::Newline);
/// lines.push(b"python a.py\npython b");
/// assert_eq!(lines.next().unwrap().unwrap().command, b"python a.py");
/// assert!(lines.next().is_none(), "the second line has not arrived");
/// lines.push(b".py");
/// lines.finish();
/// assert_eq!(lines.next().unwrap().unwrap().command, b"python b.py");
/// ```
///
/// As an iterator it ends whenever it has to wait, and goes on when more has
/// been pushed.
#[derive(Debug)]
pub struct Lines {
    separator: Separator,
    splitter: Splitter,
    reader: Reader,
}

/// A command of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The command. Bytes, because file names need not be UTF-8.
    pub command: Vec<u8>,
    /// The line it began on, counted from 1.
    pub line: u64,
    /// What its directives said.
    pub options: Options,
}

#[derive(Debug, Default)]
struct Reader {
    /// How many lines have ended.
    line: u64,
    joined: Option<Joined>,
    directives: Directives,
    errors: VecDeque<LineError>,
    /// What the commands handed out so far are called.
    names: BTreeSet<String>,
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
            reader: Reader::default(),
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
        self.reader = Reader {
            names: std::mem::take(&mut self.reader.names),
            ..Reader::default()
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
            let Some(piece) = self.splitter.next(self.separator.byte()) else {
                return self.splitter.has_ended().then(|| self.reader.end())?;
            };
            let found = match self.separator {
                Separator::Newline => self.reader.line(piece),
                Separator::Null => self.reader.item(piece),
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

impl Reader {
    /// A line has come, without its newline.
    fn line(&mut self, line: &[u8]) -> Option<Result<Entry, LineError>> {
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
        let error = memchr::memchr(0, part)
            .map(|at| LineError::new(self.line, line, at..at + 1, LineProblem::Nul));
        if !goes_on && self.joined.is_none() {
            let line = self.line;
            return self.command(error, || (part[first..trimmed(part)].to_vec(), line));
        }
        self.join(part, error);
        if goes_on { None } else { self.joined_so_far() }
    }

    /// An item that ended in a NUL has come.
    fn item(&mut self, item: &[u8]) -> Option<Result<Entry, LineError>> {
        let line = self.line + 1;
        self.line += memchr::memchr_iter(b'\n', item).count() as u64;
        (!item.iter().all(u8::is_ascii_whitespace)).then(|| {
            Ok(Entry {
                command: item.to_vec(),
                line,
                options: Options::default(),
            })
        })
    }

    /// The input has ended.
    fn end(&mut self) -> Option<Result<Entry, LineError>> {
        self.joined_so_far()
            .or_else(|| self.directives.end().map(Err))
    }

    fn comment(&mut self, line: &[u8], start: usize) {
        match Comment::of(&line[start..]) {
            Comment::Remark => {}
            Comment::Directive => self.directives.read(
                self.line,
                line,
                start..line.len(),
                &self.names,
                &mut self.errors,
            ),
            Comment::Misspelt => {
                let word = line[start..].iter().take_while(|&&b| !is_blank(b)).count();
                let place = start..start + word;
                let problem = LineProblem::MisspeltDirective;
                self.directives.note_broken(self.line, line, start);
                self.errors
                    .push_back(LineError::new(self.line, line, place, problem));
            }
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
        self.command(error, || {
            text.truncate(trimmed(&text));
            let first = text.iter().position(|&b| !is_blank(b));
            text.drain(..first.unwrap_or(0));
            text.shrink_to_fit();
            (text, line)
        })
    }

    /// A command is complete.
    fn command(
        &mut self,
        error: Option<LineError>,
        command: impl FnOnce() -> (Vec<u8>, u64),
    ) -> Option<Result<Entry, LineError>> {
        let verdict = self.directives.take();
        if let Some(error) = error {
            return Some(Err(error));
        }
        let Verdict::Run(options) = verdict else {
            return None;
        };
        if let Some(name) = &options.name {
            self.names.insert(name.clone());
        }
        let (command, line) = command();
        Some(Ok(Entry {
            command,
            line,
            options,
        }))
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
