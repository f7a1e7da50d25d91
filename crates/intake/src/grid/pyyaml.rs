//! What PyYAML takes text without quotes for: YAML 1.1, with its own idea of numbers.
//!
//! `yes` is true, `010` is 8, `1:30` is 90, and `1e-3` is text, since its numbers need a
//! point and a sign. We take that one for the number that everybody means, but print it as
//! PyYAML's text is printed: as it was written.

use super::number::{python_number, to_decimal};
use super::value::{GridValue, ValueKind};

/// What text without quotes is, if PyYAML reads it, with `1e-3` as a number.
pub(crate) fn pyyaml_plain(text: &str) -> ValueKind {
    match exact(text) {
        ValueKind::Text(text) => match python_number(&text) {
            Some(number @ ValueKind::Float(_)) => number,
            _ => ValueKind::Text(text),
        },
        other => other,
    }
}

/// The value as PyYAML has it, so that it prints the same.
pub(crate) fn as_pyyaml(value: &GridValue) -> GridValue {
    let all = |items: &[GridValue]| items.iter().map(as_pyyaml).collect();
    let kind = match &value.kind {
        ValueKind::Float(_) => match value.written.as_deref().map(exact) {
            Some(text @ ValueKind::Text(_)) => text,
            _ => value.kind.clone(),
        },
        ValueKind::List(items) => ValueKind::List(all(items)),
        ValueKind::Tuple(items) => ValueKind::Tuple(all(items)),
        ValueKind::Dict(members) => {
            let members = members.iter();
            let members = members.map(|(key, value)| (as_pyyaml(key), as_pyyaml(value)));
            ValueKind::Dict(members.collect())
        }
        other => other.clone(),
    };
    GridValue::new(kind, value.span.clone())
}

/// What text without quotes is to PyYAML, but for dates, which are text here.
pub(crate) fn exact(text: &str) -> ValueKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ValueKind::None,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            ValueKind::Bool(true)
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            ValueKind::Bool(false)
        }
        _ => number(text).unwrap_or_else(|| ValueKind::Text(text.into())),
    }
}

fn number(text: &str) -> Option<ValueKind> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let has_sign = digits.len() < text.len();
    if let Some(whole) = whole(digits) {
        let sign = if negative && whole != "0" { "-" } else { "" };
        return Some(ValueKind::Int(format!("{sign}{whole}").into()));
    }
    let number = match digits {
        ".inf" | ".Inf" | ".INF" => f64::INFINITY,
        ".nan" | ".NaN" | ".NAN" if !has_sign => f64::NAN,
        _ if digits.starts_with('.') && has_sign => return None,
        _ => floating(digits).or_else(|| sexagesimal_float(digits))?,
    };
    Some(ValueKind::Float(if negative { -number } else { number }))
}

/// The decimal digits of a whole number.
fn whole(text: &str) -> Option<String> {
    let is_in = |digits: &str, allowed: fn(u8) -> bool| {
        !digits.is_empty() && digits.bytes().all(|byte| byte == b'_' || allowed(byte))
    };
    let bare = || text.replace('_', "");
    if let Some(digits) = text.strip_prefix("0b") {
        let fits = is_in(digits, |byte| matches!(byte, b'0' | b'1'));
        return fits.then(|| to_decimal(&bare()[2..], 2))?;
    }
    if let Some(digits) = text.strip_prefix("0x") {
        let fits = is_in(digits, |byte| byte.is_ascii_hexdigit());
        return fits.then(|| to_decimal(&bare()[2..], 16))?;
    }
    if text == "0" {
        return Some("0".to_owned());
    }
    if let Some(digits) = text.strip_prefix('0') {
        let fits = is_in(digits, |byte| matches!(byte, b'0'..=b'7'));
        return fits.then(|| to_decimal(&bare(), 8))?;
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_in(text, |byte| byte.is_ascii_digit()) {
        return Some(bare());
    }
    let (first, minutes) = text.split_once(':')?;
    let mut sum: u128 = is_in(first, |byte| byte.is_ascii_digit())
        .then(|| first.replace('_', "").parse().ok())
        .flatten()?;
    for part in minutes.split(':') {
        sum = sum.checked_mul(60)?.checked_add(sixtieth(part)?.into())?;
    }
    Some(sum.to_string())
}

/// `0` to `59`, with one digit or two.
fn sixtieth(text: &str) -> Option<u8> {
    let digits = matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|part| digits && *part < 60)
}

/// `12.5`, `.5`, `1.`, `1.5e+3`: with a point, and a sign in the exponent.
fn floating(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (before, after) = mantissa.split_once('.')?;
    let is_digits = |part: &str| part.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit());
    let starts = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let fits = is_digits(before)
        && is_digits(after)
        && (starts(before) || (before.is_empty() && starts(after)));
    let signed = exponent.is_none_or(|exponent| {
        exponent.strip_prefix(['+', '-']).is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    });
    (fits && signed).then(|| text.replace('_', "").parse().ok())?
}

/// `1:30.5`
fn sexagesimal_float(text: &str) -> Option<f64> {
    let (whole, part) = text.split_once('.')?;
    let (first, minutes) = whole.split_once(':')?;
    let is_digits = |part: &str| part.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit());
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !is_digits(first) || !is_digits(part) {
        return None;
    }
    let mut sum: f64 = first.replace('_', "").parse().ok()?;
    for minutes in minutes.split(':') {
        sum = sum * 60.0 + f64::from(sixtieth(minutes)?);
    }
    let part: f64 = format!("0.{}0", part.replace('_', "")).parse().ok()?;
    Some(sum + part)
}
