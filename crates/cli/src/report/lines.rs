use packhorse_hands::Stream;
use packhorse_model::TaskId;
use rustc_hash::FxHashMap;

/// Puts the output of many tasks together in whole lines.
///
/// Each task has one half-finished line a stream at most; a line that grows past
/// [`LONGEST`] is passed on in parts.
#[derive(Default)]
pub struct Lines {
    open: FxHashMap<(TaskId, bool), Vec<u8>>,
}

const LONGEST: usize = 256 * 1024;

impl Lines {
    /// Takes a piece of output, and gives the lines that it completes, without
    /// their ends.
    pub fn push(
        &mut self,
        task: TaskId,
        stream: Stream,
        mut bytes: &[u8],
        mut line: impl FnMut(&[u8]),
    ) {
        let open = self
            .open
            .entry((task, stream == Stream::Stderr))
            .or_default();
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if open.is_empty() {
                line(&bytes[..end]);
            } else {
                open.extend_from_slice(&bytes[..end]);
                line(open);
                open.clear();
            }
            bytes = &bytes[end + 1..];
        }
        open.extend_from_slice(bytes);
        if open.len() > LONGEST {
            line(open);
            open.clear();
        }
    }

    /// Gives what the task left unfinished.
    pub fn end(&mut self, task: TaskId, mut line: impl FnMut(Stream, &[u8])) {
        for (stderr, stream) in [(false, Stream::Stdout), (true, Stream::Stderr)] {
            if let Some(rest) = self.open.remove(&(task, stderr))
                && !rest.is_empty()
            {
                line(stream, &rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::RunId;

    use super::*;

    #[test]
    fn lines_of_two_tasks_are_never_mixed() {
        let (a, b) = (TaskId::new(RunId(1), 1), TaskId::new(RunId(1), 2));
        let mut lines = Lines::default();
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for (task, piece) in [
            (a, "one "),
            (b, "three "),
            (a, "two\nthen "),
            (b, "four\n"),
            (a, "more"),
        ] {
            lines.push(task, Stream::Stdout, piece.as_bytes(), |line| {
                seen.push(line.to_vec());
            });
        }
        lines.end(a, |_, line| seen.push(line.to_vec()));
        lines.end(b, |_, line| seen.push(line.to_vec()));
        assert_eq!(seen, [&b"one two"[..], b"three four", b"then more"]);
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let task = TaskId::new(RunId(1), 1);
        let mut lines = Lines::default();
        let mut bytes = 0;
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..100 {
            lines.push(task, Stream::Stdout, &piece, |line| {
                bytes += line.len();
            });
        }
        assert!(bytes >= 99 * 64 * 1024 - LONGEST);
    }
}
