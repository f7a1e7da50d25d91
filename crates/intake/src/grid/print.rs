//! How Python prints values: `str` and `repr`.

use super::unprintable::UNPRINTABLE;
use super::value::{GridValue, ValueKind};

/// What Python's `str(value)` gives.
pub(crate) fn python_str(value: &GridValue) -> String {
    match &value.kind {
        ValueKind::Text(text) => text.to_string(),
        _ => python_repr(value),
    }
}

/// What Python's `repr(value)` gives.
pub(crate) fn python_repr(value: &GridValue) -> String {
    let mut out = String::new();
    push_repr(value, &mut out);
    out
}

fn push_repr(value: &GridValue, out: &mut String) {
    match &value.kind {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool(true) => out.push_str("True"),
        ValueKind::Bool(false) => out.push_str("False"),
        ValueKind::Int(digits) => out.push_str(digits),
        ValueKind::Float(number) => push_float(*number, out),
        ValueKind::Text(text) => push_text(text, out),
        ValueKind::List(items) => {
            out.push('[');
            push_items(items, out);
            out.push(']');
        }
        ValueKind::Tuple(items) => {
            out.push('(');
            push_items(items, out);
            if items.len() == 1 {
                out.push(',');
            }
            out.push(')');
        }
        ValueKind::Dict(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                push_repr(key, out);
                out.push_str(": ");
                push_repr(value, out);
            }
            out.push('}');
        }
    }
}

fn push_items(items: &[GridValue], out: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        push_repr(item, out);
    }
}

/// The fewest digits that give the same number again, as Python writes them: with an
/// exponent from 1e16 on, and below 0.0001.
fn push_float(number: f64, out: &mut String) {
    if number.is_nan() {
        return out.push_str("nan");
    }
    if number.is_sign_negative() {
        out.push('-');
    }
    if number.is_infinite() {
        return out.push_str("inf");
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        out.push_str(&format!("{mantissa}e{sign}{:02}", exponent.abs()));
        return;
    }
    let digits = mantissa.replace('.', "");
    let point = exponent + 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    if point <= 0 {
        out.push_str(&format!("0.{}{digits}", zeros(-point)));
    } else if count <= point {
        out.push_str(&format!("{digits}{}.0", zeros(point - count)));
    } else {
        let (whole, part) = digits.split_at(usize::try_from(point).unwrap_or(0));
        out.push_str(&format!("{whole}.{part}"));
    }
}

/// Text within quotes: single ones, unless it has such and no double ones.
fn push_text(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                out.push_str(&match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
        }
    }
    out.push(quote);
}

/// What Python's `str.isprintable` says.
pub(crate) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    let code = u32::from(c);
    let before = UNPRINTABLE.partition_point(|&(_, last)| last < code);
    UNPRINTABLE.get(before).is_none_or(|&(first, _)| code < first)
}
