//! Finding the bracket that was never closed, when YAML makes no sense.

use super::quotes::{can_open, closing, is_comment, line_end};

/// The bracket before `error` that nothing closes in its document: that is where the mistake
/// is, and the error is only where it was noticed.
pub(super) fn unclosed_bracket(text: &str, error: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut open: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'#' if is_comment(bytes, at) => at = line_end(bytes, at),
            b'"' | b'\'' if can_open(bytes, at) => {
                at = closing(bytes, at).unwrap_or(bytes.len());
            }
            b'[' | b'{' if !open.is_empty() || begins_value(bytes, at) => open.push(at),
            close @ (b']' | b'}') => {
                let last = open.pop();
                let is_other = |open: &usize| (bytes[*open] == b'[') != (close == b']');
                if let Some(last) = last.filter(is_other) {
                    return (last <= error).then_some(last);
                }
            }
            b'\n' if bytes[at + 1..].starts_with(b"---") => {
                // At the end of its document an error may be told of the line that ends it.
                if at + 3 >= error {
                    break;
                }
                open.clear();
            }
            _ => {}
        }
        at += 1;
    }
    open.into_iter().rfind(|open| *open <= error)
}

/// Whether a value of a block begins here: in the middle of text, a bracket is just text.
fn begins_value(bytes: &[u8], at: usize) -> bool {
    let before = bytes[..at].trim_ascii_end().last();
    can_open(bytes, at) && !matches!(before, Some(b','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_bracket_that_nothing_closes_is_found() {
        for (text, error, wanted) in [
            ("a: [1, 2\nb: 3\n", 10, Some(3)),
            ("a: [1, 2]\nb: {c: [1]\nd: 3\n", 23, Some(13)),
            ("a: {b: [1, 2}\n", 12, Some(7)),
            ("a: {b: [1\nc: [1]\n", 12, Some(7)),
            ("a: [1,\n  @]\n", 9, None),
            ("a: '[' # [\nb: @\n", 14, None),
            ("a: x [1\nb: @\n", 11, None),
            ("a: 1\n---\nb: [1\n---\nc: [1\n", 15, Some(12)),
            ("a: @\nb: [1\n", 3, None),
        ] {
            assert_eq!(unclosed_bracket(text, error), wanted, "{text}");
        }
    }
}
