//! Tasks out of a stream of bytes.

use crate::lines::{LineError, LineReader, Separator};
use crate::splitter::{LONGEST, Splitter};
use crate::{Entry, task_lines};

/// How tasks are written in files, pipes and terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskLanguage {
    /// A command per line, with directives.
    Lines(Separator),
    /// A JSON object per line.
    TaskLines,
}

/// Tasks out of a stream of bytes, each as soon as it is complete.
///
/// ```
/// use packhorse_intake::lines::Separator;
/// use packhorse_intake::{TaskLanguage, TaskReader};
/// use packhorse_model::Command;
///
/// let mut lines = TaskReader::new(TaskLanguage::Lines(Separator::Newline));
/// lines.push(b"python a.py\npython b");
/// let first = lines.next().unwrap()?.spec;
/// assert_eq!(first.command, Command::Line(b"python a.py".to_vec()));
/// assert!(lines.next().is_none(), "the second line has not arrived");
/// lines.push(b".py");
/// lines.finish();
/// let second = lines.next().unwrap()?.spec;
/// assert_eq!(second.command, Command::Line(b"python b.py".to_vec()));
///
/// let mut tasks = TaskReader::new(TaskLanguage::TaskLines);
/// tasks.push(br#"{"command": "python a.py", "co"#);
/// assert!(tasks.next().is_none(), "the line has not arrived");
/// tasks.push(b"res\": 2}\n");
/// let task = tasks.next().unwrap()?.spec;
/// assert_eq!(task.command, Command::Line(b"python a.py".to_vec()));
/// assert_eq!(task.cores, Some(2));
/// # Ok::<(), packhorse_intake::lines::LineError>(())
/// ```
///
/// As an iterator it ends whenever it has to wait, and goes on when more has
/// been pushed.
#[derive(Debug)]
pub struct TaskReader {
    language: TaskLanguage,
    splitter: Splitter,
    lines: LineReader,
}

impl TaskReader {
    /// A stream from which nothing has arrived yet.
    pub fn new(language: TaskLanguage) -> Self {
        Self { language, splitter: Splitter::default(), lines: LineReader::default() }
    }

    /// Takes the next bytes, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.splitter.push(bytes);
    }

    /// Whether the input is in the middle of a line so long that no end of it is to be
    /// expected: more than 256 MiB.
    pub fn is_endless(&self) -> bool {
        self.splitter.is_endless()
    }

    /// The input has ended: what has no newline yet is its last line.
    pub fn finish(&mut self) {
        self.splitter.end();
    }

    /// Begins another source: lines are counted from 1 again, and the names of
    /// earlier tasks stay known. What has not been handed out is forgotten.
    pub fn next_source(&mut self) {
        self.splitter = Splitter::default();
        self.lines.next_source();
    }

    /// How many bytes are held back, because the end of their task has not
    /// arrived or nobody has asked for it.
    #[cfg(test)]
    pub(crate) fn buffered(&self) -> usize {
        self.splitter.held() + self.lines.held()
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.splitter.capacity()
    }
}

impl Iterator for TaskReader {
    type Item = Result<Entry, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let separator = match self.language {
            TaskLanguage::Lines(separator) => separator.byte(),
            TaskLanguage::TaskLines => b'\n',
        };
        loop {
            if let Some(error) = self.lines.errors.pop_front() {
                return Some(Err(error));
            }
            let has_nul = self.splitter.has_nul();
            let Some(piece) = self.splitter.next(separator) else {
                return self.splitter.has_ended().then(|| self.lines.end())?;
            };
            if piece.len() > LONGEST {
                return Some(Err(self.lines.too_long(piece)));
            }
            let found = match self.language {
                TaskLanguage::Lines(Separator::Newline) => self.lines.line(piece, has_nul),
                TaskLanguage::Lines(Separator::Null) => self.lines.item(piece),
                TaskLanguage::TaskLines => task_lines::read_line(&mut self.lines, piece),
            };
            if found.is_some() {
                return found;
            }
        }
    }
}
