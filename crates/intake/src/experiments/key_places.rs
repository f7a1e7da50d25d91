//! Where the keys of an experiment stand, once it is merged out of several documents.

use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

use super::documents::{ConfigFile, Document, FileError};
use super::keys::is_expansion;
use super::problem::ExperimentProblem;
use crate::grid::source_text::SourceText;
use crate::grid::value::ValueKind;

/// The places of the keys that can be found wrong after all is merged: expansions and
/// `command`. Those that win come first.
#[derive(Default)]
pub(super) struct KeyPlaces(Vec<KeyPlace>);

struct KeyPlace {
    name: String,
    shown: PathBuf,
    text: Rc<str>,
    key: Range<usize>,
    value: Range<usize>,
}

impl KeyPlaces {
    /// Notes the keys of a document that lies below all that were noted before.
    pub fn note(&mut self, file: &ConfigFile, document: &Document) {
        for (key, value) in &document.members {
            let ValueKind::Text(name) = &key.kind else {
                continue;
            };
            if is_expansion(name) || **name == *"command" {
                self.0.push(KeyPlace {
                    name: name.to_string(),
                    shown: file.shown.clone(),
                    text: Rc::clone(&file.text),
                    key: key.span.clone(),
                    value: value.span.clone(),
                });
            }
        }
    }

    pub fn at_key(&self, name: &str, problem: ExperimentProblem) -> FileError {
        self.at(name, |place| place.key.clone(), problem)
    }

    /// A problem with the value of a key, or with this part of it.
    pub fn at_value(
        &self,
        name: &str,
        part: Option<Range<usize>>,
        problem: ExperimentProblem,
    ) -> FileError {
        self.at(name, |place| part.unwrap_or_else(|| place.value.clone()), problem)
    }

    fn at(
        &self,
        name: &str,
        span: impl FnOnce(&KeyPlace) -> Range<usize>,
        problem: ExperimentProblem,
    ) -> FileError {
        let place = self.0.iter().find(|place| place.name == name);
        let (shown, text) =
            place.map_or((PathBuf::new(), ""), |place| (place.shown.clone(), &*place.text));
        FileError { shown, error: SourceText(text).error(place.map_or(0..0, span), problem) }
    }
}
