//! What keeps experiments from being read, and what is only remarked.

use super::documents::FileError;
use crate::excerpt::Colour;
use crate::grid::CommandProblem;

/// Why there are no such experiments.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentsError {
    /// Something in a file.
    #[error("{}", .0.error)]
    File(FileError),
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// None of the experiments is selected, or one that is not there.
    #[error("there is no experiment `{name}` in the file\nhint: {hint}")]
    NotThere {
        /// What was asked for.
        name: String,
        /// What there is.
        hint: String,
    },
    /// A file without experiments.
    #[error(
        "there is no experiment in the file\nhint: every document whose name is not DEFAULT or SLURM is one"
    )]
    Nothing,
    /// An expansion that leaves nothing of an experiment.
    #[error(
        "the experiment `{experiment}` would not run: `{key}` has no parameters with lists of values\n\
         hint: write some, or leave `{key}` out"
    )]
    EmptyExpansion {
        /// The experiment.
        experiment: String,
        /// The key of the expansion.
        key: String,
    },
    /// What an experiment is to run.
    #[error("in the command for the experiment `{experiment}`, {}\nhint: {}", problem.problem, problem.hint)]
    Command {
        /// The experiment.
        experiment: String,
        /// What is wrong.
        problem: CommandProblem,
    },
    /// More repetitions than a run can have tasks.
    #[error(
        "there are more than 4 billion repetitions, and a run cannot have so many\nhint: test fewer values"
    )]
    TooMany,
}

impl ExperimentsError {
    /// The whole message, with the line that it is about.
    pub fn render(&self, colour: Colour) -> String {
        match self {
            Self::File(FileError { shown, error }) => {
                error.render(&shown.display().to_string(), colour)
            }
            other => other.to_string(),
        }
    }
}

/// Something that is probably not what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentWarning {
    /// At a place of a file.
    Place(FileError),
    /// In words.
    Text(String),
}

impl ExperimentWarning {
    /// The whole message.
    pub fn render(&self, colour: Colour) -> String {
        match self {
            Self::Place(FileError { shown, error }) => {
                error.render(&shown.display().to_string(), colour)
            }
            Self::Text(text) => format!("warning: {text}"),
        }
    }
}
