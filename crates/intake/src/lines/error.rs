use std::fmt;
use std::ops::Range;

use packhorse_model::ParseQuantityError;

use crate::excerpt::{Colour, Excerpt, Report};

/// A line that cannot be used. The lines after it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    line: u64,
    problem: LineProblem,
    excerpt: Excerpt,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// No program can be given a NUL byte.
    #[error("a command cannot contain a NUL byte")]
    Nul,
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
    #[error("`{word}` does not have the form KEY=VALUE")]
    NoValue {
        /// The word.
        word: String,
    },
    /// An option that does not exist.
    #[error("there is no option `{key}`")]
    UnknownKey {
        /// The option.
        key: String,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// An option that the same command already has.
    #[error("`{key}` is given twice for the same command")]
    Twice {
        /// The option.
        key: &'static str,
    },
    /// A value that is no amount, or no length of time.
    #[error("`{key}`: {reason}")]
    Quantity {
        /// The option.
        key: &'static str,
        /// What the value should have been.
        reason: ParseQuantityError,
    },
    /// A value that is no number, or too large.
    #[error("`{key}`: `{value}` is not a whole number from {min} to {max}")]
    Number {
        /// The option.
        key: &'static str,
        /// Its value.
        value: String,
        /// The smallest that is accepted.
        min: i64,
        /// The largest that is accepted.
        max: i64,
    },
    /// A value that cannot be a task's name.
    #[error("`{name}` cannot be the name of a task")]
    Name {
        /// The value.
        name: String,
    },
    /// A name that no earlier command has.
    #[error("no earlier task is called `{name}`")]
    UnknownName {
        /// The name.
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// A name that an earlier command already has.
    #[error("an earlier task is already called `{name}`")]
    NameTaken {
        /// The name.
        name: String,
    },
}

impl LineProblem {
    /// What to do about it.
    fn hint(&self) -> String {
        let fixed = match self {
            Self::Nul => "remove it, or use --null if NUL bytes separate the commands",
            Self::NoCommand => "put it on the line before the command, or remove it",
            Self::EmptyDirective => "write what the next command needs: `#packhorse gpus=0.5`",
            Self::MisspeltDirective => "write it like this: `#packhorse gpus=0.5`",
            Self::NotUtf8 => "save the file as UTF-8",
            Self::NoValue { word } if word == "\\" => {
                "a directive ends with its line: begin another `#packhorse` on the next"
            }
            Self::NoValue { .. } => "write the options like this: `gpus=0.5 retries=2`",
            Self::Twice { .. } => "keep one of them; a directive counts for the next command only",
            Self::Quantity { key: "timeout", .. } => "write it like this: `timeout=2h30m`",
            Self::Quantity { .. } => "write it like this: `gpus=0.5`",
            Self::Number { key, .. } => return format!("write it like this: `{key}=2`"),
            Self::Name { .. } => "a name has letters, digits, `.`, `_` and `-`",
            Self::NameTaken { .. } => "choose another name, so that `after` is clear",
            Self::UnknownKey { nearest, .. } => {
                return nearest.map_or_else(
                    || format!("the options are {}", super::directive::KEYS.join(", ")),
                    |nearest| format!("did you mean `{nearest}`?"),
                );
            }
            Self::UnknownName { nearest, .. } => {
                return nearest.as_ref().map_or_else(
                    || "give the earlier command its name: `#packhorse name=…`".to_owned(),
                    |nearest| format!("did you mean `{nearest}`?"),
                );
            }
        };
        fixed.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Nul => "a NUL byte",
            Self::NoCommand => "for which command?",
            Self::EmptyDirective => "nothing follows",
            Self::MisspeltDirective => "taken for a directive",
            Self::NotUtf8 => "not UTF-8",
            Self::NoValue { .. } => "no value",
            Self::UnknownKey { .. } => "unknown option",
            Self::Twice { .. } => "the second time",
            Self::Quantity { .. } | Self::Number { .. } | Self::Name { .. } => "this value",
            Self::UnknownName { .. } => "unknown name",
            Self::NameTaken { .. } => "taken",
        }
    }
}

impl LineError {
    pub(super) fn new(line: u64, text: &[u8], marked: Range<usize>, problem: LineProblem) -> Self {
        Self(Box::new(Inner {
            line,
            problem,
            excerpt: Excerpt::new(text, marked),
        }))
    }

    /// The line it is on, counted from 1.
    pub fn line(&self) -> u64 {
        self.0.line
    }

    /// The character of the line where it begins, counted from 1.
    pub fn column(&self) -> u64 {
        self.0.excerpt.column()
    }

    /// What is wrong.
    pub fn problem(&self) -> &LineProblem {
        &self.0.problem
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        self.0.problem.hint()
    }

    /// The whole message: what is wrong, the line of `source_name` with a mark
    /// under the place, and what to do.
    pub fn render(&self, source_name: &str, colour: Colour) -> String {
        let report = Report {
            title: &self.0.problem.to_string(),
            label: self.0.problem.label(),
            hint: Some(&self.hint()),
            source_name,
            line: self.0.line,
        };
        self.0.excerpt.render(&report, colour)
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line(), self.column());
        write!(f, "line {line}, column {column}: {}", self.0.problem)?;
        write!(f, "\nhint: {}", self.hint())
    }
}

impl std::error::Error for LineError {}
