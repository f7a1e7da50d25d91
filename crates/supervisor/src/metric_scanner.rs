//! Lines of metrics in what an attempt writes.
//!
//! Nearly all output has none, and must cost nothing for it: a piece is searched for the
//! words that such a line begins with, as fast as memory can be read, and not split into
//! lines. Only what follows them at the beginning of a line is kept and looked at.
//!
//! A line ends with a newline or a carriage return, since progress bars write over their
//! line with the latter alone.

use std::io;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr2, memrchr2};
use packhorse_model::{MetricLine, MetricLineError, ProcessEvent, Stream, TaskId};

use crate::LogReader;

/// How much of a wrong line is shown.
const SHOWN: usize = 80;

static PREFIX: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MetricLine::PREFIX));

/// Finds the metrics of one attempt, on both of its streams.
#[derive(Debug, Default)]
pub(crate) struct MetricScanner {
    streams: [LinePosition; 2],
    found: Vec<MetricLine>,
    wrong: MalformedLine,
}

/// Where in its lines a stream is.
#[derive(Debug)]
enum LinePosition {
    /// So many bytes into a line, all of which are the prefix's.
    InPrefix(usize),
    /// In a line that begins in another way.
    Elsewhere,
    /// Behind the prefix, with what followed it so far. What is too long is dropped.
    Metrics(Vec<u8>),
}

impl Default for LinePosition {
    fn default() -> Self {
        Self::InPrefix(0)
    }
}

/// Whether there was a line that is not right.
#[derive(Debug, Default)]
enum MalformedLine {
    #[default]
    None,
    /// It is to be told.
    Unreported(String),
    Reported,
}

impl MetricScanner {
    /// Looks at the next piece of a stream. Whether there is something to
    /// [`take`](Self::take).
    pub(crate) fn read(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        let place = &mut self.streams[stream as usize];
        let mut place = std::mem::take(place);
        let mut rest = bytes;
        while !rest.is_empty() {
            (place, rest) = self.advance(place, rest);
        }
        self.streams[stream as usize] = place;
        self.has_found()
    }

    /// The output is over: a last line needs no newline. Whether there is something to
    /// [`take`](Self::take).
    pub(crate) fn finish(&mut self) -> bool {
        for place in std::mem::take(&mut self.streams) {
            // One that is not right was cut off when the process was ended.
            if let LinePosition::Metrics(line) = place
                && let Some(metrics) = MetricLine::parse(&line)
            {
                self.add(metrics);
            }
        }
        self.has_found()
    }

    /// What was found.
    pub(crate) fn take(
        &mut self,
        task: TaskId,
        attempt: u32,
    ) -> impl Iterator<Item = ProcessEvent> + use<> {
        let wrong = match std::mem::take(&mut self.wrong) {
            MalformedLine::None => None,
            MalformedLine::Reported => {
                self.wrong = MalformedLine::Reported;
                None
            }
            MalformedLine::Unreported(message) => {
                self.wrong = MalformedLine::Reported;
                Some(ProcessEvent::WrongMetrics { task, message })
            }
        };
        let lines = std::mem::take(&mut self.found);
        let metrics = (!lines.is_empty()).then_some(ProcessEvent::Metrics { task, attempt, lines });
        metrics.into_iter().chain(wrong)
    }

    fn has_found(&self) -> bool {
        !self.found.is_empty() || matches!(self.wrong, MalformedLine::Unreported(_))
    }

    fn add(&mut self, metrics: MetricLine) {
        if !metrics.values.is_empty() {
            self.found.push(metrics);
        }
    }

    /// Goes on from a place by some of the bytes, at least one.
    fn advance<'b>(&mut self, place: LinePosition, bytes: &'b [u8]) -> (LinePosition, &'b [u8]) {
        match place {
            LinePosition::InPrefix(matched) => {
                let wanted = &MetricLine::PREFIX[matched..];
                let pairs = wanted.iter().zip(bytes);
                let common = pairs.take_while(|(wanted, byte)| wanted == byte).count();
                let rest = &bytes[common..];
                if common == wanted.len() {
                    (LinePosition::Metrics(Vec::new()), rest)
                } else if rest.is_empty() {
                    (LinePosition::InPrefix(matched + common), rest)
                } else {
                    find_line(rest)
                }
            }
            LinePosition::Elsewhere => find_line(bytes),
            LinePosition::Metrics(mut line) => {
                let end = memchr2(b'\n', b'\r', bytes);
                let part = &bytes[..end.unwrap_or(bytes.len())];
                // One byte more than is allowed says that it was too long.
                let room = (MetricLine::LONGEST + 1).saturating_sub(line.len());
                line.extend_from_slice(&part[..part.len().min(room)]);
                let Some(end) = end else {
                    return (LinePosition::Metrics(line), &[]);
                };
                self.line(&line);
                (LinePosition::InPrefix(0), &bytes[end + 1..])
            }
        }
    }

    /// Takes a whole line, without the prefix.
    fn line(&mut self, line: &[u8]) {
        let fits = line.len() <= MetricLine::LONGEST;
        let parsed = if fits { MetricLine::parse(line) } else { None };
        if let Some(metrics) = parsed {
            self.add(metrics);
        } else if matches!(self.wrong, MalformedLine::None) {
            let why = if fits { MetricLine::explain(line) } else { MetricLineError::TooLong };
            let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
            let dots = if line.len() > SHOWN { "…" } else { "" };
            let prefix = String::from_utf8_lossy(MetricLine::PREFIX);
            self.wrong = MalformedLine::Unreported(format!(
                "a line of metrics is ignored, and so are others like it: {why}: \
                 {prefix}{shown}{dots}"
            ));
        }
    }
}

impl LogReader {
    /// Reads what is left of the log, for the metrics in it.
    pub fn each_metric(&mut self, mut act: impl FnMut(MetricLine)) -> io::Result<()> {
        let mut scanner = MetricScanner::default();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let (stream, bytes) = self.read(&mut buffer)?;
            let is_over = bytes.is_empty();
            if is_over {
                scanner.finish();
            } else {
                scanner.read(stream, bytes);
            }
            scanner.found.drain(..).for_each(&mut act);
            if is_over {
                return Ok(());
            }
        }
    }
}

/// Looks for the next line of metrics, from the middle of a line.
fn find_line(bytes: &[u8]) -> (LinePosition, &[u8]) {
    let is_end = |byte: u8| matches!(byte, b'\n' | b'\r');
    let mut starts = PREFIX.find_iter(bytes);
    let start = starts.find(|&at| at > 0 && is_end(bytes[at - 1]));
    if let Some(start) = start {
        let rest = &bytes[start + MetricLine::PREFIX.len()..];
        return (LinePosition::Metrics(Vec::new()), rest);
    }
    let tail = &bytes[bytes.len().saturating_sub(MetricLine::PREFIX.len())..];
    let begun = memrchr2(b'\n', b'\r', tail).map(|end| &tail[end + 1..]);
    let place = match begun {
        Some(begun) if MetricLine::PREFIX.starts_with(begun) => LinePosition::InPrefix(begun.len()),
        _ => LinePosition::Elsewhere,
    };
    (place, &[])
}

#[cfg(test)]
mod tests {
    use packhorse_model::RunId;
    use proptest::prelude::*;

    use super::*;

    const TASK: TaskId = TaskId::new(RunId(1), 1);

    /// What is found if the output comes in these pieces.
    fn found<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<f64>, Option<String>) {
        let mut scanner = MetricScanner::default();
        let mut events = Vec::new();
        for piece in pieces {
            let some = scanner.read(Stream::Stdout, piece);
            let new: Vec<_> = scanner.take(TASK, 1).collect();
            assert_eq!(some, !new.is_empty());
            events.extend(new);
        }
        scanner.finish();
        events.extend(scanner.take(TASK, 1));
        let mut values = Vec::new();
        let mut wrong = None;
        for event in events {
            match event {
                ProcessEvent::Metrics { lines, .. } => {
                    values.extend(lines.into_iter().flat_map(|line| line.values.into_values()));
                }
                ProcessEvent::WrongMetrics { message, .. } => {
                    assert_eq!(wrong.replace(message), None, "told once");
                }
                other => panic!("{other:?}"),
            }
        }
        (values, wrong)
    }

    fn values(text: &str) -> Vec<f64> {
        let (values, wrong) = found([text.as_bytes()]);
        assert_eq!(wrong, None, "{text:?}");
        values
    }

    #[test]
    fn only_the_beginning_of_a_line_counts() {
        for (text, wanted) in [
            ("packhorse: {\"a\": 1}\n", &[1.0][..]),
            ("x\npackhorse: {\"a\": 1, \"step\": 9}\nx\n", &[1.0]),
            ("see packhorse: {\"a\": 1}\n", &[]),
            (" packhorse: {\"a\": 1}\n", &[]),
            ("Packhorse: {\"a\": 1}\npackhorse; {\"a\": 1}\n", &[]),
            ("packhorse: {}\npackhorse: {\"step\": 1}\n", &[]),
            ("", &[]),
            ("\n\n\r\n", &[]),
        ] {
            assert_eq!(values(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_line_ends_in_any_usual_way() {
        for text in [
            "packhorse: {\"a\": 1}\r\npackhorse: {\"a\": 2}\r\n",
            " 10%|##   |\rpackhorse: {\"a\": 1}\r 20%|###  |\rpackhorse: {\"a\": 2}\n",
            "packhorse: {\"a\": 1}\n\npackhorse: {\"a\": 2}",
        ] {
            assert_eq!(values(text), [1.0, 2.0], "{text:?}");
        }
    }

    #[test]
    fn a_last_line_that_was_cut_off_is_no_mistake() {
        assert_eq!(values("packhorse: {\"a\": 1}\npackhorse: {\"a\": "), [1.0]);
        assert_eq!(values("packhorse: "), [] as [f64; 0]);
    }

    #[test]
    fn the_streams_do_not_mix() {
        let mut scanner = MetricScanner::default();
        scanner.read(Stream::Stdout, b"packhorse: {\"a\":");
        scanner.read(Stream::Stderr, b"oops\npackhor");
        scanner.read(Stream::Stdout, b" 1}\n");
        scanner.read(Stream::Stderr, b"se: {\"a\": 2}\n");
        let events: Vec<_> = scanner.take(TASK, 3).collect();
        let [ProcessEvent::Metrics { attempt: 3, lines, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        let values: Vec<f64> = lines.iter().map(|line| line.values["a"]).collect();
        assert_eq!(values, [1.0, 2.0]);
    }

    #[test]
    fn what_is_wrong_is_told_once_and_the_rest_is_found() {
        let text = "packhorse: {\"a\": \"x\"}\npackhorse: hello\npackhorse: {\"a\": 1}\n";
        let (values, wrong) = found([text.as_bytes()]);
        assert_eq!(values, [1.0]);
        assert!(wrong.unwrap().ends_with("a number: packhorse: {\"a\": \"x\"}"));
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let mut scanner = MetricScanner::default();
        scanner.read(Stream::Stdout, b"packhorse: ");
        let piece = vec![b' '; 64 * 1024];
        for _ in 0..100 {
            scanner.read(Stream::Stdout, &piece);
        }
        let [LinePosition::Metrics(line), _] = &scanner.streams else {
            panic!("it still reads the line");
        };
        assert!(line.capacity() <= 4 * MetricLine::LONGEST);
        assert!(scanner.read(Stream::Stdout, b"{\"a\": 1}\npackhorse: {\"a\": 2}\n"));
        let events: Vec<_> = scanner.take(TASK, 1).collect();
        let [ProcessEvent::Metrics { lines, .. }, ProcessEvent::WrongMetrics { message, .. }] =
            &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(lines.len(), 1);
        assert!(message.contains("longer than 64 KiB"), "{message}");
    }

    /// What is meant, without any thought of speed.
    fn model(bytes: &[u8]) -> Vec<f64> {
        let ended = bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        let ended = ended.map_or(0, |at| at + 1);
        let mut lines: Vec<&[u8]> =
            bytes[..ended].split(|byte| matches!(byte, b'\n' | b'\r')).collect();
        lines.push(&bytes[ended..]);
        let texts = lines.into_iter().filter_map(|line| line.strip_prefix(MetricLine::PREFIX));
        let lines = texts.filter_map(MetricLine::parse);
        lines.flat_map(|line| line.values.into_values()).collect()
    }

    proptest! {
        #[test]
        fn however_the_output_comes_in_pieces_the_same_is_found(
            parts in prop::collection::vec(
                prop_oneof![
                    Just("\n"), Just("\r"), Just("\r\n"), Just("p"), Just("pack"),
                    Just("packhorse: "), Just("packhorse:"), Just("horse: "), Just(" "),
                    Just("{\"a\": 1}"), Just("{\"b\": 2.5}\n"), Just("{\"a\""), Just(": 3}"),
                    Just("packhorse: {\"a\": 4}\n"), Just("NaN"), Just("x"),
                ],
                0..40,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let text = parts.concat();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut from = 0;
            let pieces = cuts.into_iter().map(|to| &bytes[std::mem::replace(&mut from, to)..to]);
            let (values, _) = found(pieces.collect::<Vec<_>>());
            prop_assert_eq!(values, model(bytes), "{:?}", text);
        }
    }
}
