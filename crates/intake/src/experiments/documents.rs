//! The documents of an experiment file, each by its name.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::keys::kind;
use super::merge::{Members, get};
use super::problem::{ExperimentError, ExperimentProblem};
use crate::excerpt::Colour;
use crate::grid::source_text::SourceText;
use crate::grid::value::ValueKind;
use crate::grid::yaml::{YamlDialect, read_documents};

/// Reads the file at a path.
pub type ReadFile<'a> = dyn FnMut(&Path) -> io::Result<String> + 'a;

/// A file with its documents.
pub(super) struct ConfigFile {
    /// Where it is, in a way that is the same for the same file.
    pub path: PathBuf,
    /// What people call it.
    pub shown: PathBuf,
    pub text: Rc<str>,
    pub documents: Vec<Document>,
}

#[derive(Clone)]
pub(super) struct Document {
    pub name: String,
    pub role: Role,
    pub members: Members,
    /// Where its name stands.
    pub name_span: Range<usize>,
}

/// What a document is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// What all experiments have in common.
    Default,
    /// How jobs are given to Slurm.
    Slurm,
    Experiment,
}

impl Role {
    fn of(name: &str) -> Self {
        let name = name.to_lowercase();
        if name == "default" {
            Self::Default
        } else if name == "slurm" || name.starts_with("slurm_") {
            Self::Slurm
        } else {
            Self::Experiment
        }
    }
}

impl ConfigFile {
    /// Takes the text of a file apart.
    pub fn read(path: PathBuf, shown: PathBuf, text: String) -> Result<Self, FileError> {
        let documents = match documents(&text) {
            Ok(documents) => documents,
            Err(error) => return Err(FileError { shown, error }),
        };
        Ok(Self { path, shown, text: text.into(), documents })
    }

    pub fn source(&self) -> SourceText<'_> {
        SourceText(&self.text)
    }

    /// The error with the name of this file.
    pub fn wrong(&self, error: ExperimentError) -> FileError {
        FileError { shown: self.shown.clone(), error }
    }

    /// The document that all experiments have in common, if there is one.
    pub fn default(&self) -> Option<&Document> {
        let mut documents = self.documents.iter();
        documents.find(|document| document.role == Role::Default)
    }

    pub fn experiments(&self) -> impl Iterator<Item = &Document> {
        let documents = self.documents.iter();
        documents.filter(|document| document.role == Role::Experiment)
    }

    /// The SLURM document for a host: the last whose suffix is in its name, or else the
    /// plain one.
    pub fn slurm(&self, host: &str) -> Option<&Document> {
        let host = host.to_lowercase();
        let all = || {
            let documents = self.documents.iter().rev();
            documents.filter(|document| document.role == Role::Slurm)
        };
        let fits = |document: &&Document| {
            let suffix = document.name.split('_').nth(1);
            suffix.is_some_and(|suffix| host.contains(&suffix.to_lowercase()))
        };
        let is_plain = |document: &&Document| !document.name.contains('_');
        all().find(fits).or_else(|| all().find(is_plain))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// What people call the file.
    pub shown: PathBuf,
    /// What is wrong.
    pub error: ExperimentError,
}

impl FileError {
    /// The whole message, with the line that it is about.
    pub fn render(&self, colour: Colour) -> String {
        self.error.render(&self.shown.display().to_string(), colour)
    }
}

fn documents(text: &str) -> Result<Vec<Document>, ExperimentError> {
    let source = SourceText(text);
    let values = read_documents(text, YamlDialect::Pyyaml)
        .map_err(|error| error.map(ExperimentProblem::Yaml))?;
    let mut documents: Vec<Document> = Vec::with_capacity(values.len());
    for value in values {
        let ValueKind::Dict(members) = value.kind else {
            return Err(kind(source, "each document", &value, "a dictionary"));
        };
        let Some(name) = get(&members, "name") else {
            return Err(source.error(value.span, ExperimentProblem::NoName));
        };
        let Some(text) = name.name().filter(|name| !name.is_empty()) else {
            return Err(kind(source, "name", name, "text"));
        };
        let (role, name_span) = (Role::of(&text), name.span.clone());
        let is_default = |document: &Document| document.role == Role::Default;
        if role == Role::Default && documents.iter().any(is_default) {
            return Err(source.error(name_span, ExperimentProblem::SecondDefault));
        }
        documents.push(Document { name: text, role, members, name_span });
    }
    Ok(documents)
}
