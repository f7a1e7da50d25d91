use super::members::{Member, example};
use crate::InputProblem;
use crate::nearest::did_you_mean;

/// What is wrong with a task line that is no task.
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
    /// A key that does not exist, and the one that was probably meant.
    #[error("there is no key `{0}`")]
    UnknownKey(String, Option<&'static str>),
    /// A key that the same task already has.
    #[error("`{0}` is given twice for the same task")]
    Twice(&'static str),
    /// A value of the wrong kind: its key, and what it must be.
    #[error("`{0}` must be {1}")]
    Kind(&'static str, &'static str),
    /// A value of the right kind that cannot be understood: its key, and what it should have
    /// been.
    #[error("`{0}`: {1}")]
    Quantity(&'static str, String),
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
            Self::UnknownKey(_, Some(nearest)) => return did_you_mean(nearest),
            Self::UnknownKey(_, None) => {
                let keys: Vec<&str> = Member::keys().collect();
                return format!("the keys are {}", keys.join(", "));
            }
            Self::Twice(_) => "keep one of them",
            Self::Kind(key, _) | Self::Quantity(key, _) => {
                return format!("write it like this: `\"{key}\": {}`", example(key));
            }
        };
        hint.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::NotUtf8 => "not UTF-8",
            Self::Comment => "a comment",
            Self::NotObject => "not an object",
            Self::Syntax { .. } => "here",
            Self::UnknownKey(..) => "unknown key",
            Self::Twice(_) => "the second time",
            Self::Kind(..) | Self::Quantity(..) => "this value",
        }
    }
}
