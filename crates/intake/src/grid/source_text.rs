//! The text of a file, in which errors find their lines.

use std::ops::Range;

use crate::input_error::{InputError, InputProblem};

/// The text of a file.
#[derive(Clone, Copy)]
pub(crate) struct SourceText<'a>(pub &'a str);

impl SourceText<'_> {
    /// The problem with the line that it is on.
    pub fn error<P: InputProblem>(self, span: Range<usize>, problem: P) -> InputError<P> {
        let text = self.0.as_bytes();
        let start = span.start.min(text.len());
        let before = &text[..start];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let line_end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |at| start + at);
        let line = 1 + memchr::memchr_iter(b'\n', before).count() as u64;
        let end = span.end.clamp(start, line_end);
        let shown = &text[line_start..line_end];
        let shown = shown.strip_suffix(b"\r").unwrap_or(shown);
        InputError::new(line, shown, start - line_start..end - line_start, problem)
    }
}
