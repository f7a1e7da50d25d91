use std::ops::RangeInclusive;

use packhorse_model::ParseValueError;

use crate::nearest::did_you_mean;
use crate::task_lines::{TaskLineProblem, example};
use crate::{InputError, InputProblem, SpecProblem};

/// A line that cannot be used, in whichever language. The lines after it can.
pub type LineError = InputError<LineProblem>;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// No program can be given a NUL byte.
    #[error("a command cannot contain a NUL byte")]
    Nul,
    /// Longer than any command may be.
    #[error("this line is longer than 16 MiB")]
    TooLong,
    /// A directive is the last thing of the input.
    #[error("no command comes after this directive")]
    NoCommand,
    /// `#packhorse` and nothing else.
    #[error("this directive sets nothing")]
    EmptyDirective,
    /// Nearly `#packhorse`, which would silently be a comment.
    #[error("a directive starts with `#packhorse` and a blank")]
    MisspeltDirective,
    /// The directive is not text.
    #[error("a directive must be UTF-8")]
    NotUtf8,
    /// A word of a directive has no `=`.
    #[error("`{0}` does not have the form KEY=VALUE")]
    NoValue(String),
    /// An option that does not exist, and the one that was probably meant.
    #[error("there is no option `{0}`")]
    UnknownKey(String, Option<&'static str>),
    /// An option that the same command already has.
    #[error("`{0}` is given twice for the same command")]
    Twice(&'static str),
    /// A value that is no amount, or no length of time: its option, and what it should
    /// have been.
    #[error("`{0}`: {1}")]
    Quantity(&'static str, ParseValueError),
    /// A value that is no number, or too large: its option, itself, and what is accepted.
    #[error(
        "`{0}`: `{1}` is not a whole number from {min} to {max}",
        min = .2.start(), max = .2.end()
    )]
    Number(&'static str, String, RangeInclusive<i64>),
    /// `env=` without a name and a value.
    #[error("`{0}` does not have the form NAME=VALUE")]
    NoVariable(String),
    /// A variable that the same command already has.
    #[error("the variable `{0}` is given twice for the same command")]
    VariableTwice(String),
    /// Something about a line that should be a JSON object.
    #[error(transparent)]
    TaskLine(#[from] TaskLineProblem),
    /// A value that no task can have.
    #[error(transparent)]
    Value(#[from] SpecProblem),
}

impl InputProblem for LineProblem {
    fn hint(&self) -> String {
        let fixed = match self {
            Self::Nul => "remove it, or use --null if NUL bytes separate the commands",
            Self::TooLong => "put what is long into a file, and name that in the command",
            Self::NoCommand => "put it on the line before the command, or remove it",
            Self::EmptyDirective => "write what the next command needs: `#packhorse gpus=0.5`",
            Self::MisspeltDirective => "write it like this: `#packhorse gpus=0.5`",
            Self::NotUtf8 => "save the file as UTF-8",
            Self::NoValue(word) if word == "\\" => {
                "a directive ends with its line: begin another `#packhorse` on the next"
            }
            Self::NoValue(_) => "write the options like this: `gpus=0.5 retries=2`",
            Self::Twice(_) => "keep one of them; a directive counts for the next command only",
            Self::Quantity("vram", _) => "write it like this: `vram=9G`, or `vram=auto`",
            Self::Quantity(key, _) => {
                let example = example(key).trim_matches('"');
                return format!("write it like this: `{key}={example}`");
            }
            Self::Number(key, ..) => return format!("write it like this: `{key}=2`"),
            Self::NoVariable(_) => "write it like this: `env=SEED=1`",
            Self::VariableTwice(_) => "keep one of them",
            Self::TaskLine(problem) => return problem.hint(),
            Self::Value(problem) => return problem.hint(),
            Self::UnknownKey(_, Some(nearest)) => return did_you_mean(nearest),
            Self::UnknownKey(_, None) => {
                return format!("the options are {}", super::directive::KEYS);
            }
        };
        fixed.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Nul => "a NUL byte",
            Self::TooLong => "it begins like this",
            Self::NoCommand => "for which command?",
            Self::EmptyDirective => "nothing follows",
            Self::MisspeltDirective => "taken for a directive",
            Self::NotUtf8 => "not UTF-8",
            Self::NoValue(_) | Self::NoVariable(_) => "no value",
            Self::UnknownKey(..) => "unknown option",
            Self::Twice(_) | Self::VariableTwice(_) => "the second time",
            Self::Quantity(..) | Self::Number(..) => "this value",
            Self::TaskLine(problem) => problem.label(),
            Self::Value(problem) => problem.label(),
        }
    }
}
