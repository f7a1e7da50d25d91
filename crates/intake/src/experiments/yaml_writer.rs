//! Writing YAML that PyYAML reads as the same values.

use std::io::{self, Write};

use super::merge::Members;
use crate::grid::print::{is_printable, python_str};
use crate::grid::pyyaml::pyyaml_plain;
use crate::grid::value::{GridValue, ValueKind};

/// Writes a document: dictionaries with a line for each key, and lists on one line.
pub(super) fn write_document(members: &Members, out: &mut dyn Write) -> io::Result<()> {
    let mut document = "---\n".to_owned();
    push_members(members, 0, &mut document);
    out.write_all(document.as_bytes())
}

fn push_members(members: &Members, indent: usize, out: &mut String) {
    for (key, value) in members {
        out.extend(std::iter::repeat_n(' ', indent));
        push_key(key, out);
        out.push(':');
        match &value.kind {
            ValueKind::Dict(members) if !members.is_empty() => {
                out.push('\n');
                push_members(members, indent + 2, out);
            }
            _ => {
                out.push(' ');
                push_flow(value, out);
                out.push('\n');
            }
        }
    }
}

fn push_key(key: &GridValue, out: &mut String) {
    match &key.kind {
        ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_) => {
            push_text(&python_str(key), out);
        }
        _ => push_flow(key, out),
    }
}

/// Writes a value on one line.
fn push_flow(value: &GridValue, out: &mut String) {
    match &value.kind {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool(true) => out.push_str("true"),
        ValueKind::Bool(false) => out.push_str("false"),
        ValueKind::Int(digits) => out.push_str(digits),
        ValueKind::Float(number) => push_float(*number, value.written.as_deref(), out),
        ValueKind::Text(text) => push_text(text, out),
        ValueKind::List(items) => push_items(items, out),
        ValueKind::Tuple(items) => {
            out.push_str("!!python/tuple ");
            push_items(items, out);
        }
        ValueKind::Dict(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                push_key(key, out);
                out.push_str(": ");
                push_flow(value, out);
            }
            out.push('}');
        }
    }
}

fn push_items(items: &[GridValue], out: &mut String) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        push_flow(item, out);
    }
    out.push(']');
}

fn push_float(number: f64, written: Option<&str>, out: &mut String) {
    match written {
        Some(written) => out.push_str(written),
        None if number.is_nan() => out.push_str(".nan"),
        None if number.is_infinite() => {
            out.push_str(if number > 0.0 { ".inf" } else { "-.inf" });
        }
        None => out.push_str(&format!("{number:?}")),
    }
}

/// Writes text, within quotes unless it cannot be taken for anything else.
fn push_text(text: &str, out: &mut String) {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    if starts && text.chars().all(is_plain) && matches!(pyyaml_plain(text), ValueKind::Text(_)) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
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
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::yaml::{YamlDialect, read_documents};

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let text = "a: [1e-3, yes, 'yes', ~, {x: {}, 'y: z': [[1.5], !!python/tuple [a, 010]]}]\n\
            'b c': {d: {e: \"\\x07\\u2028 \\\"q\\\" #\\n\\U0001F600\", f: .inf, g: '1'}, h: {}}\n\
            1: -.5e-3\nc: [1.0, 2e5, -.nan, 12:30, '12:30', '', ' a', 2020-01-01]\n";
        let read = read_documents(text, YamlDialect::Pyyaml).unwrap();
        let ValueKind::Dict(members) = &read[0].kind else {
            panic!("a dictionary");
        };
        let mut written = Vec::new();
        write_document(members, &mut written).unwrap();
        let written = String::from_utf8(written).unwrap();
        let again = read_documents(&written, YamlDialect::Pyyaml).unwrap();
        assert_eq!(again[0].identity(), read[0].identity(), "{written}");
        assert!(written.contains("1e-3"), "{written}");
    }
}
