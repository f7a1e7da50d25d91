use super::members::Member;
use crate::{InputError, InputProblem, SpecProblem};

/// A task line that cannot be used. The lines after it can.
pub type TaskLineError = InputError<TaskLineProblem>;

/// What is wrong with a task line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskLineProblem {
    /// It is not text.
    #[error("a task line must be UTF-8")]
    NotUtf8,
    /// A comment, which JSON does not have.
    #[error("there are no comments among task lines")]
    Comment,
    /// Something else than an object.
    #[error("a task line is a JSON object")]
    NotObject,
    /// It is not JSON.
    #[error("this is not JSON: {reason}")]
    Syntax {
        /// Why not.
        reason: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A key that does not exist.
    #[error("there is no key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A key that the same task already has.
    #[error("`{key}` is given twice for the same task")]
    Twice {
        /// The key.
        key: &'static str,
    },
    /// A value of the wrong kind.
    #[error("`{key}` must be {expected}")]
    Kind {
        /// The key.
        key: &'static str,
        /// What the value must be.
        expected: &'static str,
    },
    /// A value of the right kind that cannot be understood.
    #[error("`{key}`: {reason}")]
    Quantity {
        /// The key.
        key: &'static str,
        /// What the value should have been.
        reason: String,
    },
    /// A value that no task can have.
    #[error(transparent)]
    Value(#[from] SpecProblem),
}

impl InputProblem for TaskLineProblem {
    fn hint(&self) -> String {
        let hint = match self {
            Self::NotUtf8 => {
                "write bytes that are not UTF-8 like this: `{\"bytes\": \"caf\\\\xe9\"}`"
            }
            Self::Comment => "remove it; blank lines are skipped",
            Self::NotObject => {
                "write one per line, like this: `{\"command\": \"python train.py\", \"gpus\": 0.5}`"
            }
            Self::Syntax { hint, .. } => hint,
            Self::UnknownKey {
                nearest: Some(nearest),
                ..
            } => return format!("did you mean `{nearest}`?"),
            Self::UnknownKey { .. } => {
                let keys: Vec<&str> = Member::keys().collect();
                return format!("the keys are {}", keys.join(", "));
            }
            Self::Twice { .. } => "keep one of them",
            Self::Kind { key, .. } | Self::Quantity { key, .. } => {
                let example = Member::named(key).map_or("…", |member| member.example);
                return format!("write it like this: `\"{key}\": {example}`");
            }
            Self::Value(problem) => return problem.hint(),
        };
        hint.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::NotUtf8 => "not UTF-8",
            Self::Comment => "a comment",
            Self::NotObject => "not an object",
            Self::Syntax { .. } => "here",
            Self::UnknownKey { .. } => "unknown key",
            Self::Twice { .. } => "the second time",
            Self::Kind { .. } | Self::Quantity { .. } => "this value",
            Self::Value(problem) => problem.label(),
        }
    }
}
