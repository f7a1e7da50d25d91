use std::io;

use crate::input_error::{InputError, InputProblem};

/// Why there is no such sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// Something in the template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A value of a parameter.
    #[error("parameter `{name}`: {problem}")]
    Parameter {
        /// The parameter.
        name: String,
        /// What is wrong with it.
        problem: ParameterProblem,
    },
    /// Two parameters have the same name.
    #[error(
        "parameter `{0}` is given twice\n\
         hint: give all its values at once, or choose another name"
    )]
    Twice(String),
    /// A parameter that the template does not use.
    #[error(
        "parameter `{0}` is not used: there is no `{{{0}}}` in the template\n\
         hint: put it into the template, or leave the parameter out"
    )]
    Unused(String),
    /// Parameters that should advance together do not exist.
    #[error(
        "there is no parameter `{name}` to zip\nhint: {}",
        match nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("give it values: -p {name} …"),
        }
    )]
    UnknownZip {
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// One parameter cannot advance with two others independently.
    #[error("parameter `{0}` is zipped twice\nhint: name all that advance together in one zip")]
    ZippedTwice(String),
    /// A zip of one, or of none.
    #[error("a zip needs at least two parameters\nhint: name them together: lr,bs")]
    ZipOfOne,
    /// Parameters that should advance together, each with its number of values, which are
    /// not equal.
    #[error(
        "zipped parameters must have the same number of values: {}\n\
         hint: add the missing values, or leave them unzipped to combine each with each",
        .0.iter().map(|(name, len)| format!("`{name}` has {len}")).collect::<Vec<_>>().join(", ")
    )]
    UnequalZip(Vec<(String, u128)>),
    /// More combinations than can be counted.
    #[error("there are more than 10^38 combinations\nhint: give fewer values, or zip some")]
    TooMany,
    /// A command that would not be one line, or one item.
    #[error(
        "{place} contains {}, which would cut the command in two\nhint: {}",
        if *null { "a NUL byte" } else { "a newline" },
        if *null { "remove it" } else { "use --null to separate the commands by NUL bytes" },
    )]
    Separator {
        /// The template, or which parameter.
        place: String,
        /// Whether commands were to be separated by NUL bytes.
        null: bool,
    },
}

/// What is wrong with a parameter; most of it with one of its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterProblem {
    /// Its name is empty.
    #[error("it has no name\nhint: write -p NAME VALUE …")]
    NoName,
    /// It has nothing to iterate over.
    #[error("it has no values\nhint: write -p NAME VALUE …")]
    NoValues,
    /// A range that stops in the middle.
    #[error("the range `{value}` has no {end}\nhint: both ends are needed: 1..10 or 0..1:0.1")]
    OpenRange {
        value: String,
        /// Which end: `beginning` or `end`.
        end: &'static str,
    },
    /// Three dots, or a number that begins with its point.
    #[error("the range `{0}` has more than two dots\nhint: write 1..5, and 0.5 rather than .5")]
    Dots(String),
    /// The step is not where, or what, it should be.
    #[error("the step of the range `{0}` is not a number\nhint: write it like 1..9:2")]
    Step(String),
    /// A range of decimals does not say how they follow each other.
    #[error("the range `{0}` needs a step\nhint: write it like {0}:0.1")]
    NoStep(String),
    /// It would never arrive.
    #[error("the step of the range `{0}` is zero\nhint: leave it out, or write it like 1..9:2")]
    ZeroStep(String),
    /// It leads away from the other end.
    #[error("the step of the range `{0}` leads away from its end\nhint: leave out its sign")]
    WrongWay(String),
    /// Numbers that cannot be computed exactly.
    #[error("the range `{0}` has too many digits\nhint: at most 30 digits in all")]
    Digits(String),
    /// How many values there should be is missing, or no number of at least 2.
    #[error(
        "`{0}` needs a number of values, at least 2, as both ends are among them\n\
         hint: write it like log:1e-4..1e-1:4"
    )]
    LogCount(String),
    /// There is no logarithm of the ends.
    #[error("`{0}` needs ends above zero\nhint: write it like log:1e-4..1e-1:4")]
    LogEnds(String),
    /// So close together that they would be the same number.
    #[error("`{0}` has so many values that they could not be told apart\nhint: ask for fewer")]
    LogCrowded(String),
}

/// A place in the template that cannot be filled in.
pub type TemplateError = InputError<TemplateProblem>;

/// What is wrong with a place in the template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateProblem {
    /// A `{` without its `}`.
    #[error("this `{{` is never closed")]
    Unclosed,
    /// A `}` without its `{`.
    #[error("this `}}` closes nothing")]
    Single,
    /// A `{` with another before its `}`, as in JSON.
    #[error("this `{{` is not closed before the next one")]
    Nested,
    /// `{}` or `{0}`.
    #[error("a placeholder needs the name of a parameter")]
    Positional,
    /// `{x:.3f}`.
    #[error("a placeholder cannot have a format")]
    Format(String),
    /// `{x!r}`.
    #[error("a placeholder cannot have a conversion")]
    Conversion(String),
    /// `{x.y}` or `{x[0]}`.
    #[error("a value is text, and has neither attributes nor items")]
    Attribute(String),
    /// A placeholder that nothing fills.
    #[error("there is no parameter `{name}`")]
    Unknown {
        /// The placeholder's name.
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// Whether it is a variable of the shell: `${HOME}`.
        dollar: bool,
    },
}

impl InputProblem for TemplateProblem {
    fn hint(&self) -> String {
        match self {
            Self::Unclosed | Self::Nested => "write {{ for a literal brace".to_owned(),
            Self::Single => "write }} for a literal brace".to_owned(),
            Self::Positional => {
                "write {NAME} and give -p NAME VALUE …, or {{ and }} for literal braces".to_owned()
            }
            Self::Format(name) | Self::Conversion(name) => {
                format!("write {{{name}}}: values are put in as they are given")
            }
            Self::Attribute(name) => format!(
                "write {{{name}}}, or {{{{ and }}}} for literal braces; names have no `.` or `[`"
            ),
            Self::Unknown { name, nearest: Some(nearest), .. } => {
                format!("did you mean {{{nearest}}}? if not, give it values: -p {name} …")
            }
            Self::Unknown { name, dollar: true, .. } => {
                format!("write ${{{{{name}}}}} for a variable of the shell")
            }
            Self::Unknown { name, .. } if is_plain(name) => {
                format!("give it values: -p {name} …; or write {{{{ and }}}} for literal braces")
            }
            Self::Unknown { .. } => "write {{ and }} for literal braces".to_owned(),
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Single => "a single brace",
            Self::Unclosed | Self::Nested => "opened here",
            Self::Positional => "no name",
            Self::Format(_) => "a format",
            Self::Conversion(_) => "a conversion",
            Self::Attribute(_) => "part of a value",
            Self::Unknown { .. } => "no values for it",
        }
    }

    fn place(_line: u64, column: u64) -> String {
        format!("template, column {column}")
    }
}

/// Whether a person would call a parameter so.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// Why a sweep could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SweepWriteError {
    /// It cannot be told apart into commands.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The other side did not take it.
    #[error("the commands could not be written: {0}")]
    Io(#[from] io::Error),
}
