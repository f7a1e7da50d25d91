//! Amounts in JSON: a number, or text as people write it on a command line.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
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

/// Reads a value whose number means the same as the number as text.
pub(crate) fn parse<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    Amount::deserialize(deserializer)
        .map_err(D::Error::custom)?
        .parse()
}

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

/// Schemas of values that are a number or text.
#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use crate::{Bytes, GpuRequest, Milli, TimeLimit, VramRequest};

    macro_rules! amount {
        ($type:ident, $description:literal) => {
            impl JsonSchema for $type {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($type).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "description": $description, "type": ["number", "string"] })
                }
            }
        };
    }

    amount!(Milli, "An amount: 1.5, or \"1/3\".");
    amount!(
        Bytes,
        "An amount of memory: a number of bytes, or text such as \"9G\" or \"512M\"."
    );
    amount!(
        GpuRequest,
        "GPUs: a part of one (0.5, \"1/3\"), or a whole number of them."
    );
    amount!(
        VramRequest,
        "GPU memory: a number of bytes, text such as \"9G\", \"auto\" (what was learned of \
         commands like it), or \"measure\" (a GPU to itself, to be measured on it)."
    );
    amount!(
        TimeLimit,
        "A length of time: a number of seconds, text such as \"90s\" or \"2h30m\", or \"never\"."
    );
}
