//! What can be wrong with an experiment file.

use super::keys::is_of_documents;
use crate::excerpt::Severity;
use crate::grid::problem::yaml_hint;
use crate::grid::{CommandProblem, GridProblem};
use crate::input_error::{InputError, InputProblem};
use crate::nearest::did_you_mean;

/// Something wrong with an experiment file, at its place.
pub type ExperimentError = InputError<ExperimentProblem>;

/// What is wrong with an experiment file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentProblem {
    /// The text is no YAML, or has something that nobody understands.
    #[error(transparent)]
    Yaml(GridProblem),
    /// A document without a name.
    #[error("this document has no `name`")]
    NoName,
    /// A second document with what all experiments have in common.
    #[error("there is a second document called DEFAULT")]
    SecondDefault,
    /// An experiment that does not say where its results go.
    #[error("the experiment `{0}` has no `path`")]
    NoPath(String),
    /// A value of another kind than is needed.
    #[error("`{key}` must be {expected}, and this is {found}")]
    Kind {
        key: String,
        /// What it must be.
        expected: &'static str,
        found: &'static str,
    },
    /// A key that is no expansion, with the name of one.
    #[error(
        "every key that begins with `{word}` says what to try, and `{key}` is {found}, not a \
         dictionary of parameters with lists of values"
    )]
    NoExpansion {
        key: String,
        /// How it begins.
        word: &'static str,
        found: &'static str,
    },
    /// A parameter without values.
    #[error("`{0}` has no values, so there is nothing to run")]
    NoValues(String),
    /// A file that cannot be imported.
    #[error("`{path}` cannot be imported: {message}")]
    Import {
        /// The file.
        path: String,
        /// Why not.
        message: String,
    },
    /// An experiment that is not there to be imported.
    #[error("there is no experiment `{name}` in {path}")]
    ImportedExperiment {
        /// The experiment.
        name: String,
        /// The file.
        path: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// Something that imports itself.
    #[error("this import goes in a circle: {0}")]
    Cycle(String),
    /// An expansion that leaves nothing of an experiment.
    #[error(
        "the experiment `{experiment}` would not run: `{key}` has no parameters with lists of values"
    )]
    EmptyExpansion {
        experiment: String,
        /// The key of the expansion.
        key: String,
    },
    /// What an experiment is to run.
    #[error("in the command for the experiment `{experiment}`, {}", problem.problem)]
    Command {
        experiment: String,
        /// What is wrong.
        problem: CommandProblem,
    },
    /// A value that makes no sense, in the words of whoever reads it.
    #[error("`{key}`: {message}")]
    Value {
        key: String,
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// A key that is probably a slip. It is kept, as is every key that nobody knows.
    #[error("nothing is known about the key `{key}` of {place}")]
    ProbableSlip {
        key: String,
        /// The document.
        place: String,
        /// The key that was probably meant.
        nearest: String,
    },
    /// A key that means something in another document. The original says nothing of it.
    #[error("`{key}` means nothing in `{place}`")]
    WrongDocument {
        key: String,
        /// The document.
        place: String,
        /// The documents that it belongs in.
        belongs: &'static str,
    },
    /// A parameter of an expansion that has no list of values. The original leaves it out
    /// without a word.
    #[error("`{0}` is no list of values, and is left out")]
    NoList(String),
    /// Lists of which some values are left out.
    #[error(
        "in the experiment `{experiment}`, the lists of `{key}` are of different lengths: the first \
         {count} values of each are used"
    )]
    UnevenLists {
        experiment: String,
        /// The key of the expansion.
        key: String,
        /// How many values of each are used.
        count: u32,
    },
    /// An experiment that the original would not see.
    #[error(
        "the original takes `{0}` for a SLURM document, because of its name; here it is an experiment"
    )]
    SlurmName(String),
}

impl InputProblem for ExperimentProblem {
    fn hint(&self) -> String {
        match self {
            Self::Yaml(GridProblem::Syntax { message, .. }) => {
                let usual = "an experiment file is YAML: docs/experiments.md shows one";
                yaml_hint(message).unwrap_or(usual).to_owned()
            }
            Self::Yaml(GridProblem::Duplicate(key))
                if ["grid", "list", "ablative"].contains(&key.as_str()) =>
            {
                format!("several of them have names that begin so: {key}1, {key}2")
            }
            Self::Yaml(GridProblem::Duplicate(key)) if is_of_documents(key) => {
                "leave one of them out, or begin a new document with a line `---`".to_owned()
            }
            Self::Yaml(problem) => problem.hint(),
            Self::NoName => {
                "each document has a name: DEFAULT, SLURM, or that of an experiment".to_owned()
            }
            Self::SecondDefault => "put both into one".to_owned(),
            Self::NoPath(_) => {
                "write `path: results` into it or into DEFAULT: its folder is made there".to_owned()
            }
            Self::Kind { .. } => "docs/experiments.md describes every key".to_owned(),
            Self::NoExpansion { .. } => "call it otherwise, or put it into params".to_owned(),
            Self::NoValues(_) => "write at least one, or leave the key out".to_owned(),
            Self::Import { .. } => {
                "import_path is relative to the file that it stands in".to_owned()
            }
            Self::ImportedExperiment { nearest: Some(nearest), .. }
            | Self::ProbableSlip { nearest, .. } => did_you_mean(nearest),
            Self::ImportedExperiment { .. } => {
                "import_exp is the name of an experiment in that file, or left out for DEFAULT"
                    .to_owned()
            }
            Self::Cycle(_) => "one of them must not import the next".to_owned(),
            Self::EmptyExpansion { key, .. } => {
                format!("write some, as in `{key}: {{lr: [0.1, 0.01]}}`, or leave `{key}` out")
            }
            Self::Command { problem, .. } => problem.hint.clone(),
            Self::Value { hint, .. } => hint.clone(),
            Self::UnevenLists { .. } => "`list` takes the n-th values together".to_owned(),
            Self::WrongDocument { belongs, .. } => format!("it belongs in {belongs}"),
            Self::NoList(_) => {
                "write a list, as in [1, 2], or put a single value into params".to_owned()
            }
            Self::SlurmName(_) => "choose a name without `slurm` in it".to_owned(),
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Yaml(problem) => problem.label(),
            Self::NoName => "this document",
            Self::SecondDefault => "the second one",
            Self::NoPath(_) | Self::SlurmName(_) => "this experiment",
            Self::Kind { .. } | Self::Value { .. } | Self::NoList(_) => "this value",
            Self::NoValues(_) => "nothing here",
            Self::Import { .. } | Self::ImportedExperiment { .. } | Self::Cycle(_) => "this import",
            Self::Command { .. } => "this command",
            Self::EmptyExpansion { .. } => "nothing to try",
            Self::UnevenLists { .. } => "these lists",
            Self::ProbableSlip { .. } | Self::WrongDocument { .. } | Self::NoExpansion { .. } => {
                "this key"
            }
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::ProbableSlip { .. }
            | Self::WrongDocument { .. }
            | Self::NoList(_)
            | Self::UnevenLists { .. }
            | Self::SlurmName(_) => Severity::Warning,
            _ => Severity::Error,
        }
    }
}
