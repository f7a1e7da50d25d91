//! The piece of input that an error is about, quoted with a mark under it.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use packhorse_model::{printable, push_printable};

use crate::InputProblem;

/// How much is quoted on either side of the place, in bytes. A line may be
/// megabytes long.
const CONTEXT: usize = 56;

/// How much of the marked text is quoted.
const MARKED: usize = 24;

/// Whether a message may contain escape sequences for a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    #[default]
    Off,
    /// Coloured by ANSI escape sequences.
    On,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    /// It must be mended first.
    #[default]
    Error,
    /// It is probably not what was meant, and does no harm.
    Warning,
}

/// A line, or as much of it as fits, with the place that an error is about.
///
/// Its text is safe to print: whatever could move the cursor is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    text: String,
    /// In bytes of `text`.
    marked: Range<usize>,
    /// In characters of the whole line, from 1.
    column: u64,
}

impl Excerpt {
    /// Quotes `line` with a mark under the bytes `marked`.
    pub fn new(line: &[u8], marked: Range<usize>) -> Self {
        let start = marked.start.min(line.len());
        let end = marked.end.clamp(start, line.len());
        let from = next_character(line, start.saturating_sub(CONTEXT)).min(start);
        let marked_until = next_character(line, end.min(start + MARKED));
        let until = next_character(line, line.len().min(marked_until + CONTEXT));

        let mut text = String::new();
        if from > 0 {
            text.push('…');
        }
        push_printable(&mut text, &line[from..start]);
        let mark_start = text.len();
        push_printable(&mut text, &line[start..marked_until]);
        let mark_end = text.len();
        push_printable(&mut text, &line[marked_until..until]);
        if until < line.len() {
            text.push('…');
        }
        Self { text, marked: mark_start..mark_end, column: characters(&line[..start]) + 1 }
    }

    pub fn column(&self) -> u64 {
        self.column
    }

    /// The whole message about line number `line` of `source_name`, as people are used to
    /// it from compilers.
    pub fn render(
        &self,
        problem: &impl InputProblem,
        source_name: &str,
        line: u64,
        colour: Colour,
    ) -> String {
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        let source_name = printable(source_name);
        let level = match problem.severity() {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mark = AnnotationKind::Primary.span(self.marked.clone());
        let snippet = Snippet::source(self.text.as_str())
            .line_start(line)
            .path(source_name.as_ref())
            .annotation(mark.label(problem.label()));
        let hint = Level::HELP.with_name("hint");
        let group = level
            .primary_title(printable(&problem.to_string()).into_owned())
            .element(snippet)
            .element(hint.message(printable(&problem.hint()).into_owned()));
        let renderer = match colour {
            Colour::Off => Renderer::plain(),
            Colour::On => Renderer::styled(),
        };
        let message = renderer.render(&[group]);

        // The renderer counts the column in what it is shown, which may not
        // begin where the line begins.
        let shown = self.text[..self.marked.start].chars().count() + 1;
        let place = |column: &dyn fmt::Display| format!("{source_name}:{line}:{column}");
        message.replacen(&place(&shown), &place(&self.column), 1)
    }
}

/// The text as it may be printed within a message: no control characters, and
/// not much longer than a word.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::new();
    let until = next_character(bytes, bytes.len().min(CONTEXT));
    push_printable(&mut text, &bytes[..until]);
    if until < bytes.len() {
        text.push('…');
    }
    text
}

/// The first place at or after `at` that does not cut a character in two.
fn next_character(bytes: &[u8], at: usize) -> usize {
    let is_inside = |&&byte: &&u8| byte & 0b1100_0000 == 0b1000_0000;
    at + bytes[at..].iter().take(3).take_while(is_inside).count()
}

fn characters(bytes: &[u8]) -> u64 {
    let count: usize = bytes
        .utf8_chunks()
        .map(|chunk| chunk.valid().chars().count() + usize::from(!chunk.invalid().is_empty()))
        .sum();
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("this is wrong")]
    struct Wrong;

    impl InputProblem for Wrong {
        fn hint(&self) -> String {
            "do it right".to_owned()
        }

        fn label(&self) -> &'static str {
            "here"
        }
    }

    fn render(excerpt: &Excerpt, colour: Colour) -> String {
        excerpt.render(&Wrong, "jobs.txt", 7, colour)
    }

    #[test]
    fn the_message_quotes_the_line_and_marks_the_place() {
        let excerpt = Excerpt::new(b"one two three", 4..7);
        let wanted = "\
error: this is wrong
 --> jobs.txt:7:5
  |
7 | one two three
  |     ^^^ here
  |
  = hint: do it right";
        assert_eq!(render(&excerpt, Colour::Off), wanted);
    }

    #[test]
    fn colour_comes_only_when_asked_for() {
        let excerpt = Excerpt::new(b"one\x1b[31m two", 9..12);
        assert!(!render(&excerpt, Colour::Off).contains('\x1b'));
        assert!(render(&excerpt, Colour::On).contains('\x1b'));
    }

    #[test]
    fn a_line_of_megabytes_is_quoted_around_the_place_with_its_true_column() {
        let mut line = "ä".repeat(1 << 20).into_bytes();
        let at = line.len();
        line.extend_from_slice(b"BAD");
        line.extend(std::iter::repeat_n(b'x', 1 << 20));
        let excerpt = Excerpt::new(&line, at..at + 3);
        assert_eq!(excerpt.column(), (1 << 20) + 1);
        let message = render(&excerpt, Colour::Off);
        assert!(message.contains("jobs.txt:7:1048577"), "{message}");
        assert!(message.contains("äBADx"), "{message}");
        assert!(message.len() < 1000, "{message}");
        let coloured = render(&excerpt, Colour::On);
        assert!(coloured.contains("jobs.txt:7:1048577"), "{coloured}");
    }

    #[test]
    fn a_source_name_cannot_move_the_cursor() {
        let excerpt = Excerpt::new(b"x", 0..1);
        let message = excerpt.render(&Wrong, "a\n\x1b[2Jb", 7, Colour::Off);
        assert!(message.contains("a␊␛[2Jb:7:1"), "{message}");
    }

    #[test]
    fn a_place_past_the_end_is_marked_at_the_end() {
        let message = render(&Excerpt::new(b"ab", 5..9), Colour::Off);
        assert!(message.contains("jobs.txt:7:3"), "{message}");
    }
}
