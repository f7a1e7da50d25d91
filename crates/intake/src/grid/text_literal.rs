//! Strings as Python and JSON write them.

use super::literal::Dialect;

/// How a string begins and ends.
pub(super) struct StringForm {
    /// How many bytes stand before its text: prefix and quotes.
    pub opening: usize,
    /// What ends it.
    pub closing: &'static str,
    /// Backslashes stand for themselves.
    pub raw: bool,
    /// Why it cannot be taken, if it cannot.
    pub refused: Option<&'static str>,
}

/// The form of the string that `text` begins with, if it begins with one.
pub(super) fn string_form(text: &str) -> Option<StringForm> {
    // At most two letters stand before the quotes.
    let mut start = text.bytes().take(3);
    let quote = start.position(|byte| matches!(byte, b'"' | b'\''))?;
    let prefix = text[..quote].to_ascii_lowercase();
    let refused = match prefix.as_str() {
        "" | "u" | "r" => None,
        "b" | "br" | "rb" => Some("bytes cannot be a parameter"),
        "f" | "fr" | "rf" => Some("an f-string is an expression"),
        _ => return None,
    };
    let quoted = &text[quote..];
    let closing = ["\"\"\"", "'''", "\"", "'"];
    let closing = closing.into_iter().find(|mark| quoted.starts_with(mark))?;
    Some(StringForm { opening: quote + closing.len(), closing, raw: prefix.contains('r'), refused })
}

impl StringForm {
    /// How long the text is that `rest` begins with; nothing if it has no end.
    pub fn length(&self, rest: &str) -> Option<usize> {
        let mut at = 0;
        loop {
            let found = at + rest[at..].find(['\\', '\n', '"', '\''])?;
            if rest[found..].starts_with(self.closing) {
                return Some(found);
            }
            match rest.as_bytes()[found] {
                b'\\' => {
                    let escaped = rest[found + 1..].chars().next()?;
                    at = found + 1 + escaped.len_utf8();
                }
                b'\n' if self.closing.len() == 1 => return None,
                _ => at = found + 1,
            }
        }
    }
}

/// Appends what stands between the quotes, or says where it goes wrong.
pub(super) fn push_unescaped(
    body: &str,
    dialect: Dialect,
    out: &mut String,
) -> Result<(), (usize, &'static str)> {
    let mut at = 0;
    while let Some(found) = body[at..].find(['\\', '\r']) {
        out.push_str(&body[at..at + found]);
        at += found;
        if body[at..].starts_with('\r') {
            // Python reads every line end as one.
            at += if body[at..].starts_with("\r\n") { 2 } else { 1 };
            out.push('\n');
            continue;
        }
        let (length, c) = unescape(&body[at..], dialect).map_err(|message| (at, message))?;
        out.extend(c);
        at += length;
    }
    out.push_str(&body[at..]);
    Ok(())
}

/// The escape that `text` begins with: how long it is, and what it stands for.
fn unescape(text: &str, dialect: Dialect) -> Result<(usize, Option<char>), &'static str> {
    const SURROGATE: &str = "half of a surrogate pair is no character";
    let kind = text[1..].chars().next().unwrap_or('\\');
    let python = dialect == Dialect::Python;
    let plain = |c| Ok((2, Some(c)));
    let code = |digits: usize| {
        let hex = text.get(2..2 + digits).ok_or("this escape is not complete")?;
        u32::from_str_radix(hex, 16).map_err(|_| "this escape is not complete")
    };
    match kind {
        '\n' => Ok((2, None)),
        '\r' => Ok((if text.starts_with("\\\r\n") { 3 } else { 2 }, None)),
        '\\' | '"' => plain(kind),
        '\'' if python => plain(kind),
        '/' if !python => plain(kind),
        'n' => plain('\n'),
        't' => plain('\t'),
        'r' => plain('\r'),
        'b' => plain('\x08'),
        'f' => plain('\x0c'),
        'a' if python => plain('\x07'),
        'v' if python => plain('\x0b'),
        'x' if python => Ok((4, char::from_u32(code(2)?))),
        'u' => {
            let first = code(4)?;
            if let Some(c) = char::from_u32(first) {
                return Ok((6, Some(c)));
            }
            // JSON writes characters beyond the first 65536 as pairs.
            let second = text.get(6..8).filter(|escape| *escape == "\\u" && !python);
            let second = second.and_then(|_| text.get(8..12));
            let second = second.and_then(|hex| u32::from_str_radix(hex, 16).ok());
            let low = second.filter(|low| (0xdc00..0xe000).contains(low));
            match low.filter(|_| first < 0xdc00) {
                Some(low) => {
                    let c = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                    Ok((12, char::from_u32(c)))
                }
                None => Err(SURROGATE),
            }
        }
        'U' if python => match char::from_u32(code(8)?) {
            Some(c) => Ok((10, Some(c))),
            None => Err(SURROGATE),
        },
        'N' if python => Err("a character by its name (\\N{…}) is not known here"),
        '0'..='7' if python => {
            let octal = text[1..].bytes().take(3);
            let length = octal.take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let code = u32::from_str_radix(&text[1..=length], 8).unwrap_or(0);
            Ok((1 + length, char::from_u32(code)))
        }
        // Python leaves what it does not know as it is.
        _ => Ok((1, Some('\\'))),
    }
}
