use packhorse_hands::Stream;
use packhorse_model::TaskId;
use packhorse_runner::{Event, Finished};
use rustc_hash::FxHashMap;

use crate::wording;

/// Puts the output of many tasks together in whole lines.
///
/// Each task has one half-finished line a stream at most; a line that grows past
/// [`LONGEST`] is passed on in parts. Lines for which there is no room are left
/// out and counted: the task's log has them.
#[derive(Default)]
pub struct Lines {
    open: FxHashMap<(TaskId, bool), Vec<u8>>,
    unshown: Unshown,
}

const LONGEST: usize = 256 * 1024;

/// What there is to show of a task's output.
pub enum Piece<'a> {
    /// A line, without its end.
    Line(Stream, &'a [u8]),
    /// A warning that lines were left out here.
    Gap(Event),
}

/// Whether there is room for what tasks write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Enough,
    None,
}

impl Lines {
    /// Takes an event, and gives the lines that it completes: with output those
    /// that end in it, with the end of an attempt what it left unfinished.
    pub fn event(&mut self, event: &Event, room: Room, mut show: impl FnMut(TaskId, Piece<'_>)) {
        match event {
            Event::Output {
                task,
                stream,
                bytes,
            } => {
                let open = self.open.entry((*task, *stream == Stream::Stderr));
                complete(open.or_default(), bytes, |line| {
                    let line = Piece::Line(*stream, line);
                    self.unshown.offer(*task, room, line, &mut show);
                });
            }
            Event::Retrying { task, .. } | Event::Finished(Finished { task, .. }) => {
                for (stderr, stream) in [(false, Stream::Stdout), (true, Stream::Stderr)] {
                    if let Some(rest) = self.open.remove(&(*task, stderr))
                        && !rest.is_empty()
                    {
                        let line = Piece::Line(stream, &rest);
                        self.unshown.offer(*task, room, line, &mut show);
                    }
                }
                self.unshown.tell(*task, &mut show);
            }
            _ => {}
        }
    }
}

/// Gives the lines that these bytes complete; `open` is what came before them,
/// and then what has no end yet.
fn complete(open: &mut Vec<u8>, mut bytes: &[u8], mut line: impl FnMut(&[u8])) {
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

/// How many lines of each task were left out and not yet told of.
#[derive(Default)]
struct Unshown(FxHashMap<TaskId, u64>);

impl Unshown {
    /// Shows a line if there is room, after what was left out before it.
    fn offer(
        &mut self,
        task: TaskId,
        room: Room,
        line: Piece<'_>,
        show: &mut impl FnMut(TaskId, Piece<'_>),
    ) {
        match room {
            Room::None => *self.0.entry(task).or_default() += 1,
            Room::Enough => {
                self.tell(task, show);
                show(task, line);
            }
        }
    }

    fn tell(&mut self, task: TaskId, show: &mut impl FnMut(TaskId, Piece<'_>)) {
        if let Some(lines) = self.0.remove(&task) {
            let message = format!(
                "{} of its output left out, not having been read in time; \
                 the log has everything: packhorse logs {task}",
                wording::count(lines, "line")
            );
            let warning = Event::Warning {
                task: Some(task),
                message,
            };
            show(task, Piece::Gap(warning));
        }
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::RunId;

    use super::*;

    fn output(task: TaskId, bytes: &[u8]) -> Event {
        Event::Output {
            task,
            stream: Stream::Stdout,
            bytes: bytes.to_vec(),
        }
    }

    fn end(task: TaskId) -> Event {
        Event::Retrying {
            task,
            attempt: 1,
            outcome: packhorse_model::Outcome::Interrupted,
            note: None,
            left: 0,
        }
    }

    fn text(piece: Piece<'_>) -> String {
        match piece {
            Piece::Line(_, line) => String::from_utf8_lossy(line).into_owned(),
            Piece::Gap(Event::Warning { message, .. }) => message,
            Piece::Gap(other) => panic!("no warning: {other:?}"),
        }
    }

    #[test]
    fn lines_of_two_tasks_are_never_mixed() {
        let (a, b) = (TaskId::new(RunId(1), 1), TaskId::new(RunId(1), 2));
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for event in [
            output(a, b"one "),
            output(b, b"three "),
            output(a, b"two\nthen "),
            output(b, b"four\n"),
            output(a, b"more"),
            end(a),
            end(b),
        ] {
            lines.event(&event, Room::Enough, |_, piece| seen.push(text(piece)));
        }
        assert_eq!(seen, ["one two", "three four", "then more"]);
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let task = TaskId::new(RunId(1), 1);
        let mut lines = Lines::default();
        let mut bytes = 0;
        let piece = output(task, &vec![b'x'; 64 * 1024]);
        for _ in 0..100 {
            lines.event(&piece, Room::Enough, |_, piece| bytes += text(piece).len());
        }
        assert!(bytes >= 99 * 64 * 1024 - LONGEST);
    }

    #[test]
    fn where_lines_are_left_out_there_is_a_warning_with_their_number() {
        let task = TaskId::new(RunId(1), 1);
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for (event, room) in [
            (output(task, b"one\ntwo"), Room::Enough),
            (output(task, b"\nthree\nfo"), Room::None),
            (output(task, b"ur\nfive"), Room::Enough),
            (end(task), Room::None),
        ] {
            lines.event(&event, room, |_, piece| {
                let text = text(piece);
                seen.push(text.split(" of its").next().unwrap().to_owned());
            });
        }
        assert_eq!(seen, ["one", "2 lines", "four", "1 line"]);
    }
}
