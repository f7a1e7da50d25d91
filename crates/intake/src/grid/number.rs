//! Numbers as Python writes them in its source.

use super::value::ValueKind;

/// The number that `text` is in Python: `12`, `1_000`, `0xff`, `1e-3`, `.5`, `-3`. Nothing
/// if it is none; `010` is none.
pub(crate) fn python_number(text: &str) -> Option<ValueKind> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if let Some(whole) = whole(digits) {
        let sign = if negative && whole != "0" { "-" } else { "" };
        return Some(ValueKind::Int(format!("{sign}{whole}").into()));
    }
    let plain = without_underscores(digits)?;
    // What Rust takes and Python does not: words such as `inf`, which begin otherwise.
    let number: f64 = plain.parse().ok()?;
    let has_point = plain.contains(['.', 'e', 'E']);
    has_point.then_some(ValueKind::Float(if negative { -number } else { number }))
}

/// The decimal digits of a whole number, without needless zeros.
fn whole(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = lower.strip_prefix(prefix) {
            // Python allows an underscore after the prefix, too.
            let digits = without_underscores(digits.strip_prefix('_').unwrap_or(digits))?;
            return to_decimal(&digits, radix);
        }
    }
    let digits = without_underscores(text)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    match (significant, digits.len()) {
        ("", 1) => Some("0".to_owned()),
        // `00` is zero to Python, and a name to everybody else.
        ("", _) => None,
        (significant, all) => (significant.len() == all).then_some(digits),
    }
}

/// Removes underscores that stand between digits; nothing if one stands elsewhere.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<&u8>| at.is_some_and(u8::is_ascii_hexdigit);
    for (at, _) in text.match_indices('_') {
        if at == 0 || !is_digit(bytes.get(at - 1)) || !is_digit(bytes.get(at + 1)) {
            return None;
        }
    }
    (!text.is_empty()).then(|| text.replace('_', ""))
}

/// Digits of another radix, of any length.
pub(super) fn to_decimal(digits: &str, radix: u32) -> Option<String> {
    const BILLION: u64 = 1_000_000_000;
    // It takes time that grows with the square of the digits, and nobody means so many.
    if digits.is_empty() || digits.len() > 10_000 {
        return None;
    }
    // Nine decimal digits each, the lowest first.
    let mut parts: Vec<u64> = vec![0];
    for digit in digits.chars() {
        let mut carry = u64::from(digit.to_digit(radix)?);
        for part in &mut parts {
            let sum = *part * u64::from(radix) + carry;
            *part = sum % BILLION;
            carry = sum / BILLION;
        }
        if carry > 0 {
            parts.push(carry);
        }
    }
    let mut text = parts.pop().unwrap_or(0).to_string();
    for part in parts.iter().rev() {
        text.push_str(&format!("{part:09}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_python() {
        let int = |digits: &str| Some(ValueKind::Int(digits.into()));
        for (text, wanted) in [
            ("0", int("0")),
            ("-0", int("0")),
            ("+7", int("7")),
            ("1_000", int("1000")),
            ("0xFF", int("255")),
            ("0x_ff", int("255")),
            ("-0b101", int("-5")),
            ("0o17", int("15")),
            ("0xffffffffffffffffffffffffffffffff", int("340282366920938463463374607431768211455")),
            ("1e-3", Some(ValueKind::Float(0.001))),
            (".5", Some(ValueKind::Float(0.5))),
            ("5.", Some(ValueKind::Float(5.0))),
            ("1_0.5e1_0", Some(ValueKind::Float(10.5e10))),
            ("010.5", Some(ValueKind::Float(10.5))),
        ] {
            assert_eq!(python_number(text), wanted, "{text}");
        }
        for text in [
            "", "-", "010", "00", "1__0", "_1", "1_", "0x", "0xg", "1e", "e5", ".", "inf", "nan",
            "1j", "12:30", "1.2.3", "--1", "1 2", "0b2", "1_.5",
        ] {
            assert_eq!(python_number(text), None, "{text}");
        }
    }
}
