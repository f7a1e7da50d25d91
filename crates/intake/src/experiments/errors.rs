//! What keeps experiments from being read.

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
    /// A command that was given for all experiments.
    #[error("in the command for the experiment `{experiment}`, {}\nhint: {}", problem.problem, problem.hint)]
    Command {
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
            Self::File(error) => error.render(colour),
            other => other.to_string(),
        }
    }
}
