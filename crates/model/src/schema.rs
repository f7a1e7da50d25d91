//! Schemas of values that are written by hand.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::{Bytes, GpuRequest, Grace, Milli, TaskId, TimeLimit, Timestamp, VramRequest};

macro_rules! schema {
    ($type:ident, $json:tt) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($json)
            }
        }
    };
}

schema!(Milli, {
    "description": "A number such as 1.5, or text such as \"1/3\".",
    "type": ["number", "string"]
});
schema!(Bytes, {
    "description": "An amount of memory: a number of bytes, or text such as \"9G\" or \"512M\".",
    "type": ["number", "string"]
});
schema!(GpuRequest, {
    "description": "A part of one GPU (0.5, \"1/3\"), a whole number of GPUs, or 0 for none.",
    "type": ["number", "string"]
});
schema!(VramRequest, {
    "description": "GPU memory: a number of bytes, text such as \"9G\", \"auto\" (what was learned \
        from commands like it), or \"measure\" (the task gets a GPU to itself and is measured).",
    "type": ["number", "string"]
});
schema!(TimeLimit, {
    "description": "A length of time: a number of seconds, text such as \"90s\" or \"2h30m\", or \
        \"never\".",
    "type": ["number", "string"]
});
schema!(Grace, {
    "description": "A length of time: a number of seconds, or text such as \"90s\" or \"2h30m\".",
    "type": ["number", "string"]
});
schema!(TaskId, {
    "description": "The number of a task: `12.3` is the third task of run 12.",
    "type": "string",
    "pattern": "^[0-9]+\\.[0-9]+$"
});
schema!(MetricNumber, {
    "description": "A number, or text where JSON has none.",
    "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]
});
schema!(Timestamp, {
    "description": "Seconds since 1970, UTC.",
    "type": "number"
});

/// A value of a metric.
pub(crate) struct MetricNumber;

/// Adds the other name of a member, which schemars does not see.
pub(crate) fn with_aliases(schema: &mut Schema) {
    let properties = schema.get_mut("properties");
    if let Some(properties) = properties.and_then(Value::as_object_mut)
        && let Some(model) = properties.get("gpu_model").cloned()
    {
        properties.insert("model".to_owned(), model);
    }
}
