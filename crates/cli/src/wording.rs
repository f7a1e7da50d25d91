//! How values look to people: one wording for every command and reporter.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_model::{Command, MetricSummary};
pub use packhorse_model::{printable, printable_output};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A length of time in at most two units: `340ms`, `3.2s`, `2m10s`, `1h05m`, `2d03h`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if time.as_millis() < 1000 {
        format!("{}ms", time.as_millis())
    } else if seconds < 60 {
        format!("{}.{}s", seconds, time.subsec_millis() / 100)
    } else if seconds < 3600 {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    } else if seconds < 86_400 {
        format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60)
    } else {
        format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24)
    }
}

/// A command on one line, as a person would type it.
pub fn command(command: &Command) -> Cow<'_, str> {
    changed(command.to_text(), printable)
}

/// A name on one line.
pub fn name(text: String) -> String {
    changed(text.into(), printable).into_owned()
}

/// Lines with whatever somebody else wrote in them, which must not control the terminal.
pub fn lines(text: &str) -> Cow<'_, str> {
    let is_safe = |line| matches!(printable(line), Cow::Borrowed(_));
    if text.split('\n').all(is_safe) {
        return text.into();
    }
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n").into()
}

/// The same of a message. Nobody reads a word of a thousand letters.
pub fn message(text: String) -> String {
    let text = changed(text.into(), lines);
    changed(text, shorten_words).into_owned()
}

/// How many letters a word of a message may have.
const LONGEST_WORD: usize = 200;

fn shorten_words(text: &str) -> Cow<'_, str> {
    let is_short = |word: &str| word.chars().nth(LONGEST_WORD).is_none();
    let is_blank = |c: char| matches!(c, ' ' | '\n');
    if text.len() <= LONGEST_WORD || text.split(is_blank).all(is_short) {
        return text.into();
    }
    let words = text.split_inclusive(is_blank).map(|word| {
        let letters = word.chars().count();
        if letters <= LONGEST_WORD + 1 {
            return word.to_owned();
        }
        // A path is told from others by its end as well.
        let begin = word.chars().take(LONGEST_WORD / 2);
        let end = word.chars().skip(letters - LONGEST_WORD / 4);
        begin.chain(['…']).chain(end).collect()
    });
    words.collect::<String>().into()
}

/// The text itself, unless there is something to change.
fn changed(text: Cow<'_, str>, change: impl FnOnce(&str) -> Cow<'_, str>) -> Cow<'_, str> {
    match change(&text) {
        Cow::Owned(other) => Cow::Owned(other),
        Cow::Borrowed(_) => text,
    }
}

/// Text that takes at most `width` columns, with an ellipsis where it was cut.
pub fn clipped(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return text.into();
    }
    let mut taken = 0;
    let mut result = String::new();
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if taken + columns + 1 > width {
            break;
        }
        taken += columns;
        result.push(c);
    }
    if width > 0 {
        result.push('…');
    }
    result.into()
}

/// Devices by their labels: `GPU 0`, `GPUs 0, 1`, `GPU-5c2…`.
pub fn devices(labels: &[String]) -> String {
    let named = labels.iter().all(|label| label.contains('-'));
    match labels {
        _ if named => labels.join(", "),
        [one] => format!("GPU {one}"),
        several => format!("GPUs {}", several.join(", ")),
    }
}

/// Where an attempt runs, if there is anything to say of that.
pub fn place(node: Option<&str>, gpus: &[String]) -> Option<String> {
    match (node, gpus) {
        (None, []) => None,
        (None, gpus) => Some(devices(gpus)),
        (Some(node), []) => Some(node.to_owned()),
        (Some(node), gpus) => Some(format!("{node} {}", devices(gpus))),
    }
}

/// What there is, or a dash.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// What stands behind the name of a task that does not run for the first time.
pub fn attempt(number: u32) -> String {
    match number {
        0 => " (probe)".to_owned(),
        1 => String::new(),
        more => format!(" (attempt {more})"),
    }
}

/// How many metrics stand behind how a task came out.
const METRICS: usize = 3;

/// The last values of metrics, as they stand behind how a task came out:
/// ` (accuracy 0.93, loss 0.1)`.
pub fn metrics(metrics: &BTreeMap<String, MetricSummary>) -> String {
    if metrics.is_empty() {
        return String::new();
    }
    let shown = metrics.iter().take(METRICS);
    let mut shown: Vec<String> =
        shown.map(|(name, summary)| format!("{name} {}", number(summary.last))).collect();
    if metrics.len() > METRICS {
        shown.push("…".to_owned());
    }
    format!(" ({})", shown.join(", "))
}

/// A number with at most four digits that matter, or all digits of a whole one that is
/// not too long: `0.0312`, `1.5e-6`, `12345`.
pub fn number(number: f64) -> String {
    let size = number.abs();
    if size < 1e7 && number.fract() == 0.0 {
        // Not `-0`.
        return format!("{:.0}", number + 0.0);
    }
    let scientific = format!("{number:.3e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |digits: &str| digits.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..7).contains(&exponent) {
        let decimals = usize::try_from(3 - exponent).unwrap_or(0);
        let plain = format!("{number:.decimals$}");
        if decimals == 0 { plain } else { trimmed(&plain) }
    } else {
        format!("{}e{exponent}", trimmed(digits))
    }
}

/// `1 task`, `2 tasks`.
pub fn count(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_two_units_at_most() {
        for (millis, wanted) in [
            (0, "0ms"),
            (340, "340ms"),
            (3_240, "3.2s"),
            (130_000, "2m10s"),
            (3_900_000, "1h05m"),
            (183_600_000, "2d03h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), wanted);
        }
    }

    #[test]
    fn a_command_cannot_control_the_terminal() {
        let line = Command::Line(b"a\x1b[2Jb\nc\xff".to_vec());
        assert_eq!(command(&line), "a␛[2Jb␊c\u{fffd}");
    }

    #[test]
    fn a_message_keeps_its_lines_and_loses_the_middle_of_long_words() {
        let short = "no file `a b`\nhint: look for it";
        assert_eq!(message(short.to_owned()), short);
        let long = format!("no {}end\nhint: \x1b[1mlook", "x".repeat(1000));
        let wanted = format!("no {}…{}end\nhint: ␛[1mlook", "x".repeat(100), "x".repeat(46));
        assert_eq!(message(long), wanted);
    }

    #[test]
    fn numbers_have_four_digits_that_matter() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (3.0, "3"),
            (123_456.0, "123456"),
            (-20.0, "-20"),
            (0.1, "0.1"),
            (0.031_249, "0.03125"),
            (0.100_04, "0.1"),
            (1234.5678, "1235"),
            (12.345, "12.35"),
            (99_999.5, "100000"),
            (0.000_1, "0.0001"),
            (1.5e-6, "1.5e-6"),
            (-1e-5, "-1e-5"),
            (1e7, "1e7"),
            (1.23456e20, "1.235e20"),
            (f64::MAX, "1.798e308"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn clipping_counts_columns() {
        assert_eq!(clipped("train", 5), "train");
        assert_eq!(clipped("training", 5), "trai…");
        assert_eq!(clipped("学習学習", 5), "学習…");
        assert_eq!(clipped("x", 0), "");
    }
}
