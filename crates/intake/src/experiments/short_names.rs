//! The names of runs: short forms of parameters with their values.

use crate::grid::print::python_str;
use crate::grid::pyyaml::as_pyyaml;
use crate::grid::value::GridValue;

/// What a parameter with this value adds to the name of a run.
pub(super) fn piece(path: &[String], value: &GridValue) -> String {
    let mut piece = String::new();
    // A name may have points in it, and is taken apart there as well.
    let parts: Vec<&str> = path.iter().flat_map(|part| part.split('.')).collect();
    if let Some((leaf, parents)) = parts.split_last() {
        for parent in parents {
            piece.extend(parent.chars().take(3));
            piece.push('.');
        }
        // All parents may be empty, and are left out then.
        if parents.iter().all(|parent| parent.is_empty()) && parents.len() < 2 {
            piece.clear();
        }
        piece.extend(leaf.split('_').filter_map(|word| word.chars().next()));
    }
    piece.push_str(&python_str(&as_pyyaml(value)));
    without_brackets(&piece)
}

fn without_brackets(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | ' ' | '"' | ')' | ']' => {}
            '(' | '[' | ',' => name.push('_'),
            c => name.push(c),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::value::ValueKind;
    use crate::grid::yaml::{YamlDialect, read_documents};

    #[test]
    fn a_parameter_is_shortened_and_its_value_is_printed_as_python_does_it() {
        for (path, value, wanted) in [
            ("learning_rate", "1e-3", "lr1e-3"),
            ("learning_rate", "0.10", "lr0.1"),
            ("model.encoder.hidden_size", "[64, 32]", "mod.enc.hs_64_32"),
            ("a__b", "yes", "abTrue"),
            ("x", "'it''s (so)'", "xits_so"),
            ("x", "[1e-3, ~]", "x_1e-3_None"),
            ("x", "{a: 1}", "x{a:1}"),
        ] {
            let read = read_documents(value, YamlDialect::Pyyaml).unwrap();
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            let nothing = GridValue::new(ValueKind::None, 0..0);
            let value = read.first().unwrap_or(&nothing);
            assert_eq!(piece(&path, value), wanted);
        }
    }
}
