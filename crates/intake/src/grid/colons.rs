//! Finding the colon that YAML does not take for what it was meant as.

use std::ops::Range;

use super::problem::GridProblem;

/// Whether there is a colon that would begin a value, behind one that has done so on the same
/// line.
pub(super) fn is_colon_in_text(text: &str, at: usize) -> bool {
    let (Some(before), Some(rest)) = (text.get(..at), text.get(at..)) else {
        return false;
    };
    let line = before.rsplit('\n').next().unwrap_or_default();
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(char::is_whitespace);
    line.contains(": ") && rest.strip_prefix(':').is_some_and(ends)
}

/// A key without a blank after its colon, on the line of an error or on the one above.
pub(super) fn missing_blank(text: &str, error: usize) -> Option<(Range<usize>, GridProblem)> {
    let before = text.get(..error)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let above = before[..start].trim_end();
    let above = above.rfind('\n').map_or(0, |end| end + 1);
    let found = key_without_blank(text, start);
    found.or_else(|| key_without_blank(text, above).filter(|_| above < start))
}

/// The same where a line begins with `key:value`.
pub(crate) fn key_without_blank(text: &str, start: usize) -> Option<(Range<usize>, GridProblem)> {
    let line = text.get(start..)?.lines().next()?;
    let rest = line.trim_start();
    let rest = rest.strip_prefix("- ").map_or(rest, str::trim_start);
    let (key, value) = rest.split_once(':')?;
    let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let begins = key.chars().next().is_some_and(char::is_alphabetic);
    let value = value.trim_end();
    let is_key = begins && key.chars().all(is_name);
    if !is_key || value.is_empty() || value.starts_with([' ', '\t', '/', ':']) {
        return None;
    }
    let at = start + (line.len() - rest.len()) + key.len();
    let problem = GridProblem::NoBlank { key: key.to_owned(), value: value.to_owned() };
    Some((at..at + 1, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_a_blank_is_found_on_the_line_or_above() {
        for (text, error, wanted) in [
            ("a: 1\nreps:3\n", 5, Some(9)),
            ("reps:3\n\nb: 1\n", 9, Some(4)),
            ("c:\n  - lr:0.1\n    b: 2\n", 19, Some(9)),
            ("a: 12:30\nb: 1\n", 10, None),
            ("http://x\nb: 1\n", 10, None),
            ("12:30\nb: 1\n", 7, None),
            ("reps:3\na: 1\nb: @\n", 15, None),
        ] {
            let found = missing_blank(text, error).map(|(place, _)| place.start);
            assert_eq!(found, wanted, "{text}");
        }
    }
}
