//! Something wrong with an input: what, where, and what to do about it.

use std::fmt;
use std::ops::Range;

use crate::excerpt::{Colour, Excerpt, Severity};

/// What can be wrong with one kind of input. Its `Display` says what it is.
pub trait InputProblem: fmt::Display {
    /// What to do about it.
    fn hint(&self) -> String;

    /// What stands beside the mark under the place.
    fn label(&self) -> &'static str;

    /// Whether it can be lived with.
    fn severity(&self) -> Severity {
        Severity::Error
    }

    /// Where it is, in words, for a message without the quoted line.
    fn place(line: u64, column: u64) -> String {
        format!("line {line}, column {column}")
    }
}

/// A problem at its place in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError<P>(Box<Inner<P>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner<P> {
    line: u64,
    problem: P,
    excerpt: Excerpt,
}

impl<P: InputProblem> InputError<P> {
    /// At the bytes `marked` of `text`, which is line number `line`.
    pub(crate) fn new(line: u64, text: &[u8], marked: Range<usize>, problem: P) -> Self {
        Self(Box::new(Inner { line, problem, excerpt: Excerpt::new(text, marked) }))
    }

    /// The same place with a problem made of this one.
    pub(crate) fn map<Q: InputProblem>(self, into: impl FnOnce(P) -> Q) -> InputError<Q> {
        let Inner { line, problem, excerpt } = *self.0;
        InputError(Box::new(Inner { line, problem: into(problem), excerpt }))
    }

    /// The line it is on, counted from 1.
    pub fn line(&self) -> u64 {
        self.0.line
    }

    /// The character of the line where it begins, counted from 1.
    pub fn column(&self) -> u64 {
        self.0.excerpt.column()
    }

    /// What is wrong.
    pub fn problem(&self) -> &P {
        &self.0.problem
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        self.0.problem.hint()
    }

    /// The whole message: what is wrong, the line of `source_name` with a mark
    /// under the place, and what to do.
    pub fn render(&self, source_name: &str, colour: Colour) -> String {
        let inner = &self.0;
        let (problem, line) = (&inner.problem, inner.line);
        inner.excerpt.render(problem, source_name, line, colour)
    }
}

impl<P: InputProblem> fmt::Display for InputError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = P::place(self.line(), self.column());
        write!(f, "{place}: {}\nhint: {}", self.0.problem, self.hint())
    }
}

impl<P: InputProblem + fmt::Debug> std::error::Error for InputError<P> {}
