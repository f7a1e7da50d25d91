use std::ops::Range;

use super::error::{TemplateError, TemplateProblem};
use super::pieces::{TemplatePiece, Unnamed, pieces};
use crate::excerpt::quoted;

/// A command with places for values, in the language of Python's `str.format`:
/// `{name}` is a place, `{{` and `}}` are braces.
///
/// As there, a name is any text; unlike there, a value is put in as it was
/// given, so formats, conversions and attributes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: String,
    pub(super) pieces: Vec<TemplatePiece>,
}

impl Template {
    /// Reads a template.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
        let pieces = pieces(source, Unnamed::Refused)
            .map_err(|(place, problem)| TemplateError::new(1, source.as_bytes(), place, problem))?;
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
            TemplatePiece::Literal(_) => None,
            TemplatePiece::Placeholder { name, .. } => Some(name.as_str()),
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
        TemplateError::new(1, self.source.as_bytes(), place, problem)
    }
}

#[cfg(test)]
mod tests;
