//! The text of a template, taken apart at its braces.

use std::ops::Range;

use super::error::TemplateProblem;
use crate::excerpt::quoted;

/// What a template is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplatePiece {
    Literal(String),
    Placeholder {
        name: String,
        /// From its `{` to its `}`.
        place: Range<usize>,
    },
}

/// What a placeholder may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholders {
    /// `{}`, too.
    MayBeUnnamed,
    /// `{name}`
    Named,
    /// `{outer.inner}`, too.
    Dotted,
}

/// The pieces of a template, or what is wrong and where.
///
/// The language is that of Python's `str.format`: `{name}` is a place for a value, `{{` and
/// `}}` are braces. As there, a name is any text; unlike there, a value is put in as it was
/// given, so formats, conversions and attributes are refused.
pub(crate) fn pieces(
    source: &str,
    allowed: Placeholders,
) -> Result<Vec<TemplatePiece>, (Range<usize>, TemplateProblem)> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(found) = source[at..].find(['{', '}']) {
        let brace = at + found;
        literal.push_str(&source[at..brace]);
        let rest = &source[brace..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push_str(&rest[..1]);
            at = brace + 2;
            continue;
        }
        let (name, end) = placeholder(rest, allowed)
            .map_err(|(place, problem)| (brace + place.start..brace + place.end, problem))?;
        if !literal.is_empty() {
            pieces.push(TemplatePiece::Literal(std::mem::take(&mut literal)));
        }
        at = brace + end;
        pieces.push(TemplatePiece::Placeholder { name: name.to_owned(), place: brace..at });
    }
    literal.push_str(&source[at..]);
    if !literal.is_empty() {
        pieces.push(TemplatePiece::Literal(literal));
    }
    Ok(pieces)
}

/// The name in the placeholder that `text` begins with, and where it ends.
fn placeholder(
    text: &str,
    allowed: Placeholders,
) -> Result<(&str, usize), (Range<usize>, TemplateProblem)> {
    if text.starts_with('}') {
        return Err((0..1, TemplateProblem::Single));
    }
    let Some(end) = text[1..].find(['{', '}']).map(|end| end + 1) else {
        return Err((0..1, TemplateProblem::Unclosed));
    };
    let inside = &text[1..end];
    let is_special =
        |c: char| matches!(c, '[' | '!' | ':') || (c == '.' && allowed != Placeholders::Dotted);
    let (name, rest) = match inside.find(is_special) {
        Some(special) => inside.split_at(special),
        None => (inside, ""),
    };
    if text[end..].starts_with('{') {
        return Err((0..1, TemplateProblem::Nested));
    }
    if inside.is_empty() && allowed == Placeholders::MayBeUnnamed {
        return Ok((name, end + 1));
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return Err((0..end + 1, TemplateProblem::Positional));
    }
    let special = 1 + name.len()..end;
    let owned = quoted(name.as_bytes());
    let problem = match rest.bytes().next() {
        None => return Ok((name, end + 1)),
        Some(b':') => TemplateProblem::Format(owned),
        Some(b'!') => TemplateProblem::Conversion(owned),
        Some(_) => TemplateProblem::Attribute(owned),
    };
    Err((special, problem))
}

#[cfg(test)]
mod tests;
