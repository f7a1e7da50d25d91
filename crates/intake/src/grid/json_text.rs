//! Values as JSON text, with nothing lost: in the order of the file, and with a form for what
//! JSON does not have.
//!
//! | value | form |
//! |---|---|
//! | `.inf`, `-.inf`, `.nan` | `{"!float": "inf"}` |
//! | a tuple | `{"!tuple": [1, 2]}` |
//! | a dictionary with keys that are not text | `{"!dict": [[0, "a"], [100, "b"]]}` |
//!
//! A dictionary whose only key begins with `!` is written in the last form, too.

use std::fmt::Write as _;

use super::value::{GridValue, ValueKind};

/// A dictionary as JSON.
pub(crate) fn json_text(members: &[(GridValue, GridValue)]) -> String {
    let mut out = String::new();
    push_dict(members, &mut out);
    out
}

fn push_value(value: &GridValue, out: &mut String) {
    match &value.kind {
        ValueKind::Int(digits) => out.push_str(digits),
        ValueKind::Float(number) if !number.is_finite() => {
            let word = match number {
                number if number.is_nan() => "nan",
                number if *number > 0.0 => "inf",
                _ => "-inf",
            };
            // Writing to text cannot fail.
            let _ = write!(out, r#"{{"!float":"{word}"}}"#);
        }
        ValueKind::List(items) => push_list(items, out),
        ValueKind::Tuple(items) => {
            out.push_str(r#"{"!tuple":"#);
            push_list(items, out);
            out.push('}');
        }
        ValueKind::Dict(members) => push_dict(members, out),
        ValueKind::None | ValueKind::Bool(_) | ValueKind::Float(_) | ValueKind::Text(_) => {
            let _ = write!(out, "{}", value.to_json());
        }
    }
}

fn push_list(items: &[GridValue], out: &mut String) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_value(item, out);
    }
    out.push(']');
}

fn push_dict(members: &[(GridValue, GridValue)], out: &mut String) {
    let is_object = members.iter().all(|(key, _)| match &key.kind {
        ValueKind::Text(text) => members.len() > 1 || !text.starts_with('!'),
        _ => false,
    });
    let (open, between, close) =
        if is_object { ("{", ':', '}') } else { (r#"{"!dict":["#, ',', ']') };
    out.push_str(open);
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if !is_object {
            out.push('[');
        }
        push_value(key, out);
        out.push(between);
        push_value(value, out);
        if !is_object {
            out.push(']');
        }
    }
    out.push(close);
    if !is_object {
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::yaml::{YamlDialect, read_documents};

    #[test]
    fn the_order_and_the_kinds_of_values_are_kept() {
        let text = "b: {conv: 1, act: [yes, ~, 1e-3, '1']}\n\
            a: {0: x, 20: y}\ninf: [.inf, -.inf, .nan]\n\
            t: !!python/tuple [1, !!python/tuple []]\n\
            big: 123456789012345678901234567890\n\
            '!tuple': {'!tuple': 1}\nempty: {}\n";
        let read = read_documents(text, YamlDialect::Pyyaml).unwrap();
        let ValueKind::Dict(members) = &read[0].kind else {
            panic!("a dictionary");
        };
        let expected = concat!(
            r#"{"b":{"conv":1,"act":[true,null,0.001,"1"]},"#,
            r#""a":{"!dict":[[0,"x"],[20,"y"]]},"#,
            r#""inf":[{"!float":"inf"},{"!float":"-inf"},{"!float":"nan"}],"#,
            r#""t":{"!tuple":[1,{"!tuple":[]}]},"#,
            r#""big":123456789012345678901234567890,"#,
            r#""!tuple":{"!dict":[["!tuple",1]]},"empty":{}}"#,
        );
        assert_eq!(json_text(members), expected);
    }
}
