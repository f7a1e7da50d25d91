use std::collections::VecDeque;

use super::diagnosis::{read_task, value_place};
use super::error::TaskLineError;
use crate::Entry;
use crate::names::Names;
use crate::spec_problem::check;
use crate::splitter::Splitter;

/// Tasks out of a stream of bytes, each as soon as its line is complete.
///
/// ```
/// use packhorse_intake::task_lines::TaskLines;
/// use packhorse_model::Command;
///
/// let mut tasks = TaskLines::default();
/// tasks.push(br#"{"command": "python a.py", "co"#);
/// assert!(tasks.next().is_none(), "the line has not arrived");
/// tasks.push(b"res\": 2}\n");
/// let task = tasks.next().unwrap()?.spec;
/// assert_eq!(task.command, Command::Line(b"python a.py".to_vec()));
/// assert_eq!(task.cores, Some(2));
/// # Ok::<(), packhorse_intake::task_lines::TaskLineError>(())
/// ```
///
/// As an iterator it ends whenever it has to wait, and goes on when more has
/// been pushed.
#[derive(Debug, Default)]
pub struct TaskLines {
    splitter: Splitter,
    /// How many lines have ended.
    line: u64,
    errors: VecDeque<TaskLineError>,
    /// What the tasks handed out so far are called.
    names: Names,
}

impl TaskLines {
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
        *self = Self {
            names: std::mem::take(&mut self.names),
            ..Self::default()
        };
    }

    /// How many bytes are held back, because the end of their line has not
    /// arrived or nobody has asked for it.
    pub fn buffered(&self) -> usize {
        self.splitter.held()
    }
}

impl Iterator for TaskLines {
    type Item = Result<Entry, TaskLineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.errors.pop_front() {
                return Some(Err(error));
            }
            let line = self.splitter.next(b'\n')?;
            let line = match self.line {
                0 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
                _ => line,
            };
            self.line += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let number = self.line;
            match read_task(line) {
                Ok(spec) => {
                    if let Err((key, problem)) = check(&spec, &self.names) {
                        let place = value_place(line, key);
                        let error = TaskLineError::new(number, line, place, problem.into());
                        return Some(Err(error));
                    }
                    self.names.insert(spec.name.as_ref());
                    return Some(Ok(Entry { line: number, spec }));
                }
                Err(problems) => {
                    let errors = problems
                        .into_iter()
                        .map(|(place, problem)| TaskLineError::new(number, line, place, problem));
                    self.errors.extend(errors);
                }
            }
        }
    }
}
