//! Amounts in JSON: a number, or text as people write it on a command line.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// A number or text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number or text such as \"9G\"")]
pub(crate) enum Amount {
    Whole(u64),
    Number(f64),
    Text(String),
}

impl Amount {
    /// A number without a fraction, however it is written: Python writes `9e9` as
    /// `9000000000.0`.
    pub(crate) fn whole(&self) -> Option<u64> {
        // From 2^53 on, a float may stand for another number than the one that was meant.
        const EXACT: f64 = 9e15;
        match *self {
            Self::Whole(number) => Some(number),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number within the range"
            )]
            Self::Number(number) if (0.0..EXACT).contains(&number) && number.fract() == 0.0 => {
                Some(number as u64)
            }
            _ => None,
        }
    }

    /// Reads it as it would be read on a command line.
    pub(crate) fn parse<T, E>(self) -> Result<T, E>
    where
        T: FromStr<Err: Display>,
        E: serde::de::Error,
    {
        let text = match self {
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        };
        text.parse().map_err(E::custom)
    }
}

/// Reads a type whose numbers mean the same as the numbers as text.
macro_rules! parsed {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <$crate::written::Amount as serde::Deserialize>::deserialize(from)?.parse()
            }
        }
    };
}
pub(crate) use parsed;

/// A list of texts, or a single one.
pub(crate) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected text or a list of texts")]
    enum List {
        One(String),
        Several(Vec<String>),
    }
    Ok(match List::deserialize(deserializer)? {
        List::One(text) => vec![text],
        List::Several(texts) => texts,
    })
}

/// Text, or a number taken as text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let amount = Option::<Amount>::deserialize(deserializer)?;
    amount.map(Amount::parse).transpose()
}
