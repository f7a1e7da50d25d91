use std::ops::Range;

use super::error::{TemplateError, TemplateProblem};
use crate::excerpt::quoted;

/// A command with places for values, in the language of Python's `str.format`:
/// `{name}` is a place, `{{` and `}}` are braces.
///
/// As there, a name is any text; unlike there, a value is put in as it was
/// given, so formats, conversions and attributes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: String,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(String),
    Placeholder {
        name: String,
        /// From its `{` to its `}`.
        place: Range<usize>,
    },
}

impl Template {
    /// Reads a template.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
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
            let (name, end) = placeholder(rest).map_err(|(place, problem)| {
                TemplateError::new(source, brace + place.start..brace + place.end, problem)
            })?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            at = brace + end;
            pieces.push(Piece::Placeholder {
                name: name.to_owned(),
                place: brace..at,
            });
        }
        literal.push_str(&source[at..]);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self {
            source: source.to_owned(),
            pieces,
        })
    }

    /// The template as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The names of its placeholders, in the order of the text; one that is
    /// used twice comes twice.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Placeholder { name, .. } => Some(name.as_str()),
        })
    }

    /// That nothing fills the placeholder at `place`.
    pub(super) fn unknown(
        &self,
        name: &str,
        place: Range<usize>,
        nearest: Option<&str>,
    ) -> TemplateError {
        let problem = TemplateProblem::Unknown {
            name: quoted(name.as_bytes()),
            nearest: nearest.map(str::to_owned),
            dollar: self.source[..place.start].ends_with('$'),
        };
        TemplateError::new(&self.source, place, problem)
    }
}

/// The name in the placeholder that `text` begins with, and where it ends.
fn placeholder(text: &str) -> Result<(&str, usize), (Range<usize>, TemplateProblem)> {
    if text.starts_with('}') {
        return Err((0..1, TemplateProblem::Single));
    }
    let Some(end) = text[1..].find(['{', '}']).map(|end| end + 1) else {
        return Err((0..1, TemplateProblem::Unclosed));
    };
    let inside = &text[1..end];
    let (name, rest) = match inside.find(['.', '[', '!', ':']) {
        Some(special) => inside.split_at(special),
        None => (inside, ""),
    };
    if text[end..].starts_with('{') {
        return Err((0..1, TemplateProblem::Nested));
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return Err((0..end + 1, TemplateProblem::Positional));
    }
    let special = 1 + name.len()..end;
    let owned = quoted(name.as_bytes());
    let problem = match rest.bytes().next() {
        None => return Ok((name, end + 1)),
        Some(b':') => TemplateProblem::Format { name: owned },
        Some(b'!') => TemplateProblem::Conversion { name: owned },
        Some(_) => TemplateProblem::Attribute { name: owned },
    };
    Err((special, problem))
}

#[cfg(test)]
mod tests;
