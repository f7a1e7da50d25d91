//! Words as a shell would make them, without doing anything that it would do
//! with them: no variables, no patterns, no substitutions.

/// The words of a text, quotes taken off; none if a quote is never closed.
///
/// Nothing but quotes, backslashes and blanks means anything: there are no
/// operators and no comments.
pub(crate) fn words(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut scanner = Scanner { text, at: 0 };
    let mut word: Option<Vec<u8>> = None;
    while let Some(byte) = scanner.peek() {
        if byte.is_ascii_whitespace() {
            scanner.at += 1;
            found.extend(word.take());
        } else {
            scanner.piece(word.get_or_insert_default()).ok()?;
        }
    }
    found.extend(word);
    Some(found)
}

/// The simple commands of a line, each as its words: what stands between `&&`,
/// `||`, `|`, `;`, `&`, parentheses and ends of lines. Redirections and
/// comments are left out, substitutions stay as they were written. A quote that
/// is never closed is closed by the end.
pub(crate) fn commands(line: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut command: Vec<Vec<u8>> = Vec::new();
    let mut scanner = Scanner { text: line, at: 0 };
    while let Some(byte) = scanner.peek() {
        match byte {
            b'&' if scanner.text[scanner.at + 1..].starts_with(b">") => scanner.redirection(),
            b'\n' | b';' | b'|' | b'&' | b'(' | b')' => {
                scanner.at += 1;
                end(&mut command, &mut found);
            }
            b'<' | b'>' => scanner.redirection(),
            b'#' => scanner.skip_while(|byte| byte != b'\n'),
            _ if byte.is_ascii_whitespace() => scanner.at += 1,
            _ => {
                let start = scanner.at;
                let word = scanner.shell_word();
                let raw = &scanner.text[start..scanner.at];
                // The 2 of `2>&1`.
                let is_redirected = matches!(scanner.peek(), Some(b'<' | b'>'));
                if !(is_redirected && raw.iter().all(u8::is_ascii_digit)) {
                    command.push(word);
                }
            }
        }
    }
    end(&mut command, &mut found);
    found
}

fn end(command: &mut Vec<Vec<u8>>, found: &mut Vec<Vec<Vec<u8>>>) {
    if !command.is_empty() {
        found.push(std::mem::take(command));
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// The text ended within quotes.
struct Unclosed;

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_while(&mut self, mut holds: impl FnMut(u8) -> bool) {
        while self.peek().is_some_and(&mut holds) {
            self.at += 1;
        }
    }

    /// Appends what stands here: a quoted part, an escaped byte, or a byte.
    fn piece(&mut self, word: &mut Vec<u8>) -> Result<(), Unclosed> {
        let Some(first) = self.peek() else {
            return Ok(());
        };
        self.at += 1;
        match first {
            b'\'' => {
                let rest = &self.text[self.at..];
                let length = memchr::memchr(b'\'', rest);
                word.extend_from_slice(&rest[..length.unwrap_or(rest.len())]);
                self.at += length.map_or(rest.len(), |length| length + 1);
                length.map(drop).ok_or(Unclosed)
            }
            b'"' => loop {
                let Some(byte) = self.peek() else {
                    return Err(Unclosed);
                };
                self.at += 1;
                match (byte, self.peek()) {
                    (b'"', _) => return Ok(()),
                    (b'\\', Some(escaped @ (b'"' | b'\\' | b'$' | b'`'))) => {
                        self.at += 1;
                        word.push(escaped);
                    }
                    _ => word.push(byte),
                }
            },
            b'\\' => {
                let escaped = self.peek();
                self.at += usize::from(escaped.is_some());
                word.push(escaped.unwrap_or(b'\\'));
                Ok(())
            }
            byte => {
                word.push(byte);
                Ok(())
            }
        }
    }

    /// A word up to the next blank or operator.
    fn shell_word(&mut self) -> Vec<u8> {
        let mut word = Vec::new();
        while let Some(byte) = self.peek() {
            if byte.is_ascii_whitespace()
                || matches!(byte, b';' | b'|' | b'&' | b'(' | b')' | b'<' | b'>')
            {
                break;
            }
            if byte == b'`' || self.text[self.at..].starts_with(b"$(") {
                let start = self.at;
                self.substitution();
                word.extend_from_slice(&self.text[start..self.at]);
            } else if self.piece(&mut word).is_err() {
                break;
            }
        }
        word
    }

    /// Moves past `` `…` `` or `$(…)`.
    fn substitution(&mut self) {
        if self.peek() == Some(b'`') {
            self.at += 1;
            self.skip_while(|byte| byte != b'`');
            self.at = (self.at + 1).min(self.text.len());
            return;
        }
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'(' => depth += 1,
                b')' if depth <= 1 => return,
                b')' => depth -= 1,
                _ => {}
            }
        }
    }

    /// Moves past `> file`, `2>&1`, `&>> file`, `< file`.
    fn redirection(&mut self) {
        self.skip_while(|byte| matches!(byte, b'<' | b'>' | b'&' | b'|'));
        self.skip_while(|byte| matches!(byte, b' ' | b'\t'));
        self.shell_word();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Option<Vec<String>> {
        let text_of = |word| String::from_utf8(word).unwrap();
        words(text.as_bytes()).map(|words| words.into_iter().map(text_of).collect())
    }

    fn parts(line: &str) -> Vec<String> {
        let commands = commands(line.as_bytes()).into_iter();
        commands.map(|words| String::from_utf8(words.join(&b"|"[..])).unwrap()).collect()
    }

    #[test]
    fn words_are_split_at_blanks_outside_of_quotes() {
        for (text, wanted) in [
            (" a  b\tc ", vec!["a", "b", "c"]),
            ("'a b' \"c d\" e\\ f", vec!["a b", "c d", "e f"]),
            ("a'b'\"c\"d", vec!["abcd"]),
            (r#""a\"b\\c\d""#, vec![r#"a"b\c\d"#]),
            ("'' a \"\"", vec!["", "a", ""]),
            ("a;b | #c", vec!["a;b", "|", "#c"]),
            ("a\\", vec!["a\\"]),
            ("", vec![]),
        ] {
            assert_eq!(split(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn an_unclosed_quote_is_found() {
        assert_eq!(split("a 'b c"), None);
        assert_eq!(split("a b\"c\\\""), None);
    }

    #[test]
    fn a_line_falls_into_its_commands() {
        for (line, wanted) in [
            ("cd a && b c; d | e & f", vec!["cd|a", "b|c", "d", "e", "f"]),
            ("a || (b)\nc", vec!["a", "b", "c"]),
            ("a > x.log 2>&1", vec!["a"]),
            ("a 2>x b &> y c >>z d <in", vec!["a|b|c|d"]),
            ("a 2 > x", vec!["a|2"]),
            ("a # b; c\nd", vec!["a", "d"]),
            ("a b#c", vec!["a|b#c"]),
            ("a 'b;c' \"d|e\"", vec!["a|b;c|d|e"]),
            ("a $(b c | d (e)) `f g;h`i", vec!["a|$(b c | d (e))|`f g;h`i"]),
            ("a 'b c", vec!["a|b c"]),
            ("a $(b", vec!["a|$(b"]),
            ("a `b", vec!["a|`b"]),
            ("a >", vec!["a"]),
            (" ;; ", vec![]),
        ] {
            assert_eq!(parts(line), wanted, "{line}");
        }
    }
}
