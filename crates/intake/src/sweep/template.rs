use std::ops::Range;

use super::error::{TemplateError, TemplateProblem};
use super::pieces::{TemplatePiece, Unnamed, pieces};
use crate::excerpt::quoted;

/// A command with places for values, in the language of Python's `str.format`:
/// `{name}` is a place, `{{` and `}}` are braces.
///
/// As there, a name is any text; unlike there, a value is put in as it was
/// given, so formats, conversions and attributes are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
