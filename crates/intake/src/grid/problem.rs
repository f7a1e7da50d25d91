//! What can be wrong with a grid file.

use crate::excerpt::quoted;
use crate::input_error::{InputError, InputProblem};
use crate::nearest::did_you_mean;

/// Something wrong with a grid file, at its place.
pub type GridError = InputError<GridProblem>;

/// What is wrong with a grid file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridProblem {
    /// The text is not of the language that the file's name says; in the words of
    /// whoever read it.
    #[error("this is not {language}: {message}")]
    Syntax {
        language: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Quoted text that does not end where it should.
    #[error("the closing {0} is missing")]
    UnclosedQuote(char),
    /// A list or a dictionary that does not end where it should.
    #[error("the closing {} is missing", closing(*.0))]
    UnclosedBracket(char),
    /// A key of YAML without a blank after its colon.
    #[error("in YAML, a blank follows the colon after a key")]
    NoBlank {
        key: String,
        /// What follows.
        value: String,
    },
    /// A colon and a blank in YAML text without quotes.
    #[error("in YAML, text with `: ` in it needs quotes")]
    ColonInText,
    /// A Python file that does more than say what the configuration is.
    #[error("{what}, and a .py file is read without running it")]
    NotLiteral {
        /// What stands there.
        what: String,
    },
    /// A Python file without a configuration.
    #[error("there is no `config = {{…}}` in this file")]
    NoConfig,
    /// The same key twice.
    #[error("`{0}` is there twice")]
    Duplicate(String),
    /// Something as a key that changes, as Python sees it.
    #[error("{0} cannot be a key")]
    KeyKind(&'static str),
    /// A key that nobody knows.
    #[error("there is no key `{key}` {place}")]
    UnknownKey {
        key: String,
        /// Where it stands: `in scheduler_config`.
        place: &'static str,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// All there are.
        known: &'static [&'static str],
    },
    /// A value of another kind than is needed.
    #[error("`{key}` must be {expected}, and this is {found}")]
    Kind {
        key: String,
        /// What it must be.
        expected: &'static str,
        found: &'static str,
    },
    /// A value that makes no sense, in the words of whoever reads it.
    #[error("`{key}`: {message}")]
    Value {
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// No GPUs.
    #[error("`gpu` names no GPUs")]
    NoGpus,
    /// A parameter without values.
    #[error("`{0}` has no values, so there is nothing to test")]
    NoValues(String),
    /// Values within values without end.
    #[error("lists and dictionaries are nested more than 64 deep")]
    TooDeep,
    /// A YAML tag that means nothing here.
    #[error("the tag `{0}` is not understood")]
    Tag(String),
    /// Aliases that stand for far more than was written.
    #[error("the aliases of this file stand for more than 100,000 values")]
    TooManyAliases,
    /// An alias within what it stands for.
    #[error("this alias is part of what it stands for")]
    EndlessAlias,
    /// More than one YAML document.
    #[error("there is a second document in this file")]
    SecondDocument,
    /// A merge of something that has no keys.
    #[error("`<<` needs a dictionary, or a list of them")]
    Merge,
    /// The command's template.
    #[error("in the command, {0}")]
    Command(String, String),
}

/// The bracket that closes this one.
const fn closing(open: char) -> char {
    if open == '[' { ']' } else { '}' }
}

/// What to do about a mistake that everybody makes in YAML, by what its reader says of it.
pub(crate) fn yaml_hint(message: &str) -> Option<&'static str> {
    let mut words = message.split(|c: char| !c.is_alphabetic());
    if words.any(|word| matches!(word, "tab" | "tabs")) {
        Some("YAML is indented with blanks: replace the tabs by them")
    } else if message.contains("mapping values are not allowed") {
        Some("is this line indented like its neighbours, and the one above complete?")
    } else {
        None
    }
}

impl InputProblem for GridProblem {
    fn hint(&self) -> String {
        match self {
            Self::Syntax { language, message } => match yaml_hint(message) {
                Some(hint) if *language == "YAML" => hint.to_owned(),
                _ => format!("the end of the file's name says that it is {language}"),
            },
            Self::UnclosedQuote(quote) => {
                format!("write a {quote} where the text ends, or leave out the one it begins with")
            }
            Self::UnclosedBracket(open) => {
                let what = if *open == '[' { "list" } else { "dictionary" };
                format!("write a {} where the {what} ends", closing(*open))
            }
            Self::NoBlank { key, value } => {
                format!("write `{key}: {}`", quoted(value.as_bytes()))
            }
            Self::ColonInText => {
                "put all of the text in quotes: command: 'python train.py …'".to_owned()
            }
            Self::NotLiteral { .. } => "write the value itself, or use the Python package: \
                `packhorse.gpu_task_scheduler` takes a `config` made by any code"
                .to_owned(),
            Self::NoConfig => "write `config = {\"scheduler_config\": {…}, …}`".to_owned(),
            Self::Duplicate(_) => "leave one of them out".to_owned(),
            Self::KeyKind(_) => "a key is text or a number; put text in quotes".to_owned(),
            Self::UnknownKey { nearest: Some(nearest), .. } => did_you_mean(nearest),
            Self::UnknownKey { known, .. } => format!("the keys are {}", known.join(", ")),
            Self::Kind { .. } | Self::Value { .. } => "docs/grid.md describes every key".to_owned(),
            Self::NoGpus => {
                "write their ids: [\"0\", \"1\"], or leave `gpu` out and use --gpus".to_owned()
            }
            Self::NoValues(_) => "write at least one, or leave the key out".to_owned(),
            Self::TooDeep => "is it a list of parameters?".to_owned(),
            Self::Tag(_) => "leave it out, or put the value in quotes if it is text".to_owned(),
            Self::TooManyAliases | Self::EndlessAlias => "write the values out".to_owned(),
            Self::SecondDocument => "keep one document per file".to_owned(),
            Self::Merge => "write `<<: *name`, where name is the anchor of a dictionary".to_owned(),
            Self::Command(_, hint) => hint.clone(),
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Syntax { .. } | Self::NotLiteral { .. } | Self::Merge => "here",
            Self::ColonInText | Self::NoBlank { .. } => "this colon",
            Self::UnclosedBracket(_) => "this bracket is not closed",
            Self::UnclosedQuote(_) => "this text is not closed",
            Self::NoConfig => "nothing is assigned to `config`",
            Self::Duplicate(_) => "the second one",
            Self::KeyKind(_) => "this key",
            Self::UnknownKey { .. } => "unknown key",
            Self::Kind { .. } | Self::Value { .. } => "this value",
            Self::NoGpus | Self::NoValues(_) => "nothing here",
            Self::TooDeep => "too deep",
            Self::Tag(_) => "this tag",
            Self::TooManyAliases | Self::EndlessAlias => "this alias",
            Self::SecondDocument => "it begins here",
            Self::Command(..) => "this part",
        }
    }
}
