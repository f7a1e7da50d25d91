use packhorse_model::{EventKind, Stream, TaskId};
use rustc_hash::FxHashMap;

/// Puts the output of many tasks together in whole lines.
///
/// Each task has at most one unfinished line for each stream; a line that grows past
/// [`LONGEST`] is passed on in parts.
#[derive(Debug, Default)]
pub(crate) struct OutputLines {
    open: FxHashMap<(TaskId, Stream), Vec<u8>>,
}

const LONGEST: usize = 256 * 1024;

impl OutputLines {
    /// Adds what a task wrote, and gives the lines that it completes.
    pub(crate) fn push(
        &mut self,
        task: TaskId,
        stream: Stream,
        mut bytes: &[u8],
    ) -> Vec<EventKind> {
        let open = self.open.entry((task, stream)).or_default();
        let mut lines = Vec::new();
        let mut tell = |text: &[u8]| lines.push(output(task, stream, text));
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if open.is_empty() {
                tell(&bytes[..end]);
            } else {
                open.extend_from_slice(&bytes[..end]);
                tell(open);
                open.clear();
            }
            bytes = &bytes[end + 1..];
        }
        open.extend_from_slice(bytes);
        if open.len() > LONGEST {
            tell(open);
            open.clear();
        }
        lines
    }

    /// What an attempt that is over has left unfinished.
    pub(crate) fn finish(&mut self, task: TaskId) -> Vec<EventKind> {
        let streams = [Stream::Stdout, Stream::Stderr].into_iter();
        let rests = streams.filter_map(|stream| {
            let rest = self.open.remove(&(task, stream))?;
            (!rest.is_empty()).then(|| output(task, stream, &rest))
        });
        rests.collect()
    }
}

fn output(task: TaskId, stream: Stream, text: &[u8]) -> EventKind {
    let line = String::from_utf8_lossy(text).into_owned();
    EventKind::Output { task, stream, line }
}

#[cfg(test)]
mod tests {
    use packhorse_model::RunId;

    use super::*;

    fn text(kind: EventKind) -> String {
        match kind {
            EventKind::Output { line, .. } => line,
            other => panic!("no output: {other:?}"),
        }
    }

    #[test]
    fn lines_of_two_tasks_are_never_mixed() {
        let (a, b) = (TaskId::new(RunId(1), 1), TaskId::new(RunId(1), 2));
        let mut lines = OutputLines::default();
        let mut seen = Vec::new();
        for (task, bytes) in
            [(a, &b"one "[..]), (b, b"three "), (a, b"two\nthen "), (b, b"four\n"), (a, b"more")]
        {
            seen.extend(lines.push(task, Stream::Stdout, bytes));
        }
        seen.extend(lines.finish(a));
        seen.extend(lines.finish(b));
        let seen: Vec<String> = seen.into_iter().map(text).collect();
        assert_eq!(seen, ["one two", "three four", "then more"]);
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let task = TaskId::new(RunId(1), 1);
        let mut lines = OutputLines::default();
        let mut bytes = 0;
        for _ in 0..100 {
            let piece = vec![b'x'; 64 * 1024];
            let completed = lines.push(task, Stream::Stdout, &piece);
            bytes += completed.into_iter().map(|kind| text(kind).len()).sum::<usize>();
        }
        assert!(bytes >= 99 * 64 * 1024 - LONGEST);
    }
}
