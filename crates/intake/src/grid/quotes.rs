//! Finding the quote that was never closed, when YAML makes no sense.

/// The quote before `error` that nothing closes on its own line, if what is between it and
/// the next such quote reaches to the place of the error: that is where the mistake is,
/// and the error is only where it was noticed.
pub(super) fn unclosed_quote(text: &str, error: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len().min(error + 1) {
        match bytes[at] {
            b'#' if is_comment(bytes, at) => at = line_end(bytes, at),
            b'"' | b'\'' if can_open(bytes, at) => {
                let close = closing(bytes, at);
                let end = close.unwrap_or(bytes.len());
                let spans_lines = bytes[at..end].contains(&b'\n');
                if spans_lines && error <= line_end(bytes, end) {
                    return Some(at);
                }
                at = end + 1;
            }
            _ => at += 1,
        }
    }
    None
}

/// Whether a `#` begins a comment.
pub(super) fn is_comment(bytes: &[u8], at: usize) -> bool {
    at == 0 || bytes[at - 1].is_ascii_whitespace()
}

pub(super) fn line_end(bytes: &[u8], at: usize) -> usize {
    let at = at.min(bytes.len());
    memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |end| at + end)
}

/// Whether quoted text may begin here: at the start of a line, or behind what begins a
/// value.
pub(super) fn can_open(bytes: &[u8], at: usize) -> bool {
    let line = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |start| start + 1);
    let before = bytes[line..at].trim_ascii_end();
    let has_blank = before.len() < at - line;
    match before.last() {
        None | Some(b'[' | b'{' | b',') => true,
        Some(b':' | b'-' | b'?') => has_blank,
        Some(_) => false,
    }
}

/// The quote that closes the one at `open`. A new document closes nothing.
pub(super) fn closing(bytes: &[u8], open: usize) -> Option<usize> {
    let quote = bytes[open];
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote => {
                if quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') {
                    at += 1;
                } else {
                    return Some(at);
                }
            }
            b'\n' if bytes[at + 1..].starts_with(b"---") => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}
