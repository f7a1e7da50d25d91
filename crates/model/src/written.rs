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

    amount!(Milli, "A number such as 1.5, or text such as \"1/3\".");
    amount!(
        Bytes,
        "An amount of memory: a number of bytes, or text such as \"9G\" or \"512M\"."
    );
    amount!(
        GpuRequest,
        "A part of one GPU (0.5, \"1/3\"), a whole number of GPUs, or 0 for none."
    );
    amount!(
        VramRequest,
        "GPU memory: a number of bytes, text such as \"9G\", \"auto\" (what was learned from \
         commands like it), or \"measure\" (the task gets a GPU to itself and is measured)."
    );
    amount!(
        TimeLimit,
        "A length of time: a number of seconds, text such as \"90s\" or \"2h30m\", or \"never\"."
    );

    /// A length of time that always ends.
    pub(crate) fn length_of_time() -> Schema {
        json_schema!({
            "description": "A length of time: a number of seconds, or text such as \"90s\" or \"2h30m\".",
            "type": ["number", "string"]
        })
    }

    /// Adds the other name of a member, which schemars does not see.
    pub(crate) fn with_aliases(schema: &mut Schema) {
        let properties = schema.get_mut("properties");
        if let Some(properties) = properties.and_then(serde_json::Value::as_object_mut)
            && let Some(model) = properties.get("gpu_model").cloned()
        {
            properties.insert("model".to_owned(), model);
        }
    }
}

#[cfg(feature = "schema")]
pub(crate) use schema::{length_of_time, with_aliases};
