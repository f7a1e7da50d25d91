//! Where in the file a byte is, as people count.

use std::ops::Range;

use super::error::{CsvError, CsvProblem};
use super::records::mark_length;

pub(super) struct Source<'a> {
    bytes: &'a [u8],
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let ends = memchr::memchr2_iter(b'\n', b'\r', bytes);
        // Of the two bytes that end a line elsewhere, the second counts.
        let ends = ends.filter(|&at| bytes[at] == b'\n' || bytes.get(at + 1) != Some(&b'\n'));
        let starts = std::iter::once(0).chain(ends.map(|at| at + 1)).collect();
        Self { bytes, starts }
    }

    /// The number of the line that a byte is on, from 1.
    pub fn line(&self, at: usize) -> u64 {
        self.starts.partition_point(|&start| start <= at) as u64
    }

    /// That there is a problem with some bytes. If they go over several lines,
    /// the first is quoted.
    pub fn mistake(&self, place: Range<usize>, problem: CsvProblem) -> CsvError {
        let index = self.starts.partition_point(|&start| start <= place.start) - 1;
        let start = self.starts[index];
        let end = self.starts.get(index + 1);
        let line = &self.bytes[start..end.copied().unwrap_or(self.bytes.len())];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A byte order mark is not part of the first line.
        let mark = if index == 0 { mark_length(line) } else { 0 };
        let from = place.start.saturating_sub(start + mark);
        let until = place.end.saturating_sub(start + mark);
        CsvError::new(index as u64 + 1, &line[mark..], from..until, problem)
    }
}
