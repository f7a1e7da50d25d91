//! Text from outside, made safe for a terminal.
//!
//! The output of tasks, names, command lines and quoted files come from anywhere, and a
//! terminal obeys the control sequences in them: they set its title, fill the clipboard,
//! move the cursor or turn the direction of writing. What could do so is printed as a
//! visible character. Only colours pass, and only where many lines are printed as they
//! are: [`TerminalFilter`].

use std::borrow::Cow;

/// The character that is printed for `c`: itself, if it is visible and nothing more.
fn shown(c: char) -> char {
    match c {
        '\t' => ' ',
        // Unicode has pictures of the control characters, in their order.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(' '),
        '\u{7f}' => '\u{2421}',
        // Invisible, or turning the direction of what follows. The joiners U+200C and U+200D
        // stay: Persian and Indian scripts, and many emoji, are wrong without them.
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

/// The text on one line, with nothing in it that could move the cursor, change colours or
/// turn the direction of writing.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| shown(c) == c) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.chars().map(shown).collect())
    }
}

/// Appends one printable character for every character of `bytes`.
pub fn push_printable(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().map(shown));
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// One line of a task's output: printable but for its colours, which end with the line.
/// Of a progress bar, which goes back to the start of the line, the last state is kept.
pub fn printable_output(line: &str) -> Cow<'_, str> {
    let line = line.trim_end_matches('\r');
    let line = line.rfind('\r').map_or(line, |end| &line[end + 1..]);
    if line.chars().all(|c| shown(c) == c) {
        return Cow::Borrowed(line);
    }
    let mut filter = TerminalFilter { layout: Layout::Line, ..TerminalFilter::default() };
    let mut out = Vec::new();
    filter.push(line.as_bytes(), &mut out);
    filter.finish(&mut out);
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// Makes a stream of bytes safe to print on a terminal that reads UTF-8.
///
/// Text passes, as do line ends, tabs, carriage returns and backspaces (progress bars are
/// made of them) and colours: `ESC [ numbers m`. Every other control character is printed
/// as a visible one, so that a sequence stands there as text and does nothing. Bytes may
/// come in any pieces.
#[derive(Debug, Default)]
pub struct TerminalFilter {
    layout: Layout,
    /// The beginning of a character or of a sequence, whose end has not come yet.
    pending: Vec<u8>,
    is_coloured: bool,
}

/// Which control characters pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Layout {
    /// Those that move within a line and to the next one.
    #[default]
    Lines,
    /// None: the text is part of a line.
    Line,
}

/// How long the numbers of a colour may be: nothing is kept back for longer.
const LONGEST_COLOUR: usize = 64;

/// What begins with an escape character.
enum Escape {
    /// A colour of so many bytes.
    Colour(usize),
    /// So far it may become a colour.
    Unfinished,
    Other,
}

impl Escape {
    fn read(bytes: &[u8]) -> Self {
        let Some(second) = bytes.get(1) else { return Self::Unfinished };
        if *second != b'[' {
            return Self::Other;
        }
        let numbers = bytes[2..].iter().take(LONGEST_COLOUR);
        let length = numbers.take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')).count();
        match bytes.get(2 + length) {
            Some(b'm') => Self::Colour(2 + length + 1),
            None => Self::Unfinished,
            _ => Self::Other,
        }
    }
}

impl TerminalFilter {
    /// Appends to `out` what of `bytes` can be printed by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.pending.is_empty() {
            let rest = self.print(bytes, out);
            self.pending.extend_from_slice(rest);
        } else {
            let mut joined = std::mem::take(&mut self.pending);
            joined.extend_from_slice(bytes);
            self.pending = self.print(&joined, out).to_vec();
        }
    }

    /// Nothing more comes: appends what was kept back, and ends the last colour.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let mut text = String::new();
        push_printable(&mut text, &std::mem::take(&mut self.pending));
        out.extend_from_slice(text.as_bytes());
        if std::mem::take(&mut self.is_coloured) {
            out.extend_from_slice(b"\x1b[0m");
        }
    }

    /// Returns what has to wait for more.
    fn print<'a>(&mut self, mut bytes: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        while let Some(&first) = bytes.first() {
            let length = match first {
                b' '..=b'~' => {
                    let plain = bytes.iter().take_while(|byte| matches!(byte, b' '..=b'~'));
                    let plain = plain.count();
                    out.extend_from_slice(&bytes[..plain]);
                    plain
                }
                b'\n' | b'\r' | b'\t' | b'\x08' if self.layout == Layout::Lines => {
                    out.push(first);
                    1
                }
                b'\x1b' => match Escape::read(bytes) {
                    Escape::Colour(length) => {
                        out.extend_from_slice(&bytes[..length]);
                        let numbers = &bytes[2..length - 1];
                        self.is_coloured = numbers.iter().any(|byte| matches!(byte, b'1'..=b'9'));
                        length
                    }
                    Escape::Unfinished => return bytes,
                    Escape::Other => {
                        push_shown('\x1b', out);
                        1
                    }
                },
                _ => match first_character(bytes) {
                    Some((c, length)) => {
                        push_shown(c, out);
                        length
                    }
                    None => return bytes,
                },
            };
            bytes = &bytes[length..];
        }
        bytes
    }
}

fn push_shown(c: char, out: &mut Vec<u8>) {
    out.extend_from_slice(shown(c).encode_utf8(&mut [0; 4]).as_bytes());
}

/// The first character and its length; bytes that are none are shown by a replacement.
/// `None` if the end of the character is missing.
fn first_character(bytes: &[u8]) -> Option<(char, usize)> {
    let bytes = &bytes[..bytes.len().min(4)];
    let (valid, error) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let valid = std::str::from_utf8(&bytes[..error.valid_up_to()]);
            (valid.unwrap_or_default(), Some(error))
        }
    };
    match valid.chars().next() {
        Some(c) => Some((c, c.len_utf8())),
        None => error?.error_len().map(|length| (char::REPLACEMENT_CHARACTER, length)),
    }
}

#[cfg(test)]
mod tests;
