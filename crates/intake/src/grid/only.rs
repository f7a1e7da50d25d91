//! `--only method=GAN`: some of a grid's tests.

use super::number::python_number;
use super::print::python_str;
use super::value::{GridValue, ValueKind};
use crate::nearest::{did_you_mean, nearest};

/// A condition on a parameter: `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub(super) key: String,
    pub(super) value: String,
}

/// Why a condition makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnlyError {
    /// No `=`.
    #[error("--only {0}: a condition is KEY=VALUE\nhint: for example --only method=GAN")]
    NoValue(String),
    /// A key that no test has.
    #[error("--only {key}={value}: no test has a parameter `{key}`\nhint: {}", match nearest {
        Some(nearest) => did_you_mean(nearest),
        None => "the parameters are those of global_config and test_config".to_owned(),
    })]
    UnknownKey {
        key: String,
        value: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// A value that no test has.
    #[error("--only {key}={value}: `{key}` has no such value\nhint: {}", match nearest {
        Some(nearest) => did_you_mean(nearest),
        None => "write it as it is in the file".to_owned(),
    })]
    UnknownValue {
        key: String,
        value: String,
        /// The value that was probably meant.
        nearest: Option<String>,
    },
}

impl std::str::FromStr for Condition {
    type Err = OnlyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(OnlyError::NoValue(text.to_owned()));
        };
        Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
    }
}

impl Condition {
    /// Whether this value is meant: as it is written, as Python prints it, or another
    /// spelling of the same number.
    pub(super) fn holds(&self, value: &GridValue) -> bool {
        let text = self.value.as_str();
        if value.as_written() == text || python_str(value) == text {
            return true;
        }
        let number = |kind: &ValueKind| match kind {
            ValueKind::Int(digits) => digits.parse::<f64>().ok(),
            ValueKind::Float(number) => Some(*number),
            _ => None,
        };
        let wanted = python_number(text).as_ref().and_then(number);
        wanted.is_some() && wanted == number(&value.kind)
    }

    /// Checks it against all parameters of a grid.
    pub(super) fn check<'v>(
        &self,
        params: impl Iterator<Item = (&'v str, &'v GridValue)>,
    ) -> Result<(), OnlyError> {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (key, value) in params {
            if key == self.key {
                if self.holds(value) {
                    return Ok(());
                }
                // Enough to guess from.
                if values.len() < 1000 {
                    values.push(value.as_written());
                }
            }
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let (key, value) = (self.key.clone(), self.value.clone());
        if keys.contains(&self.key.as_str()) {
            let nearest = nearest(&value, values.iter().map(String::as_str)).map(str::to_owned);
            return Err(OnlyError::UnknownValue { key, value, nearest });
        }
        let nearest = nearest(&key, keys).map(str::to_owned);
        Err(OnlyError::UnknownKey { key, value, nearest })
    }
}
