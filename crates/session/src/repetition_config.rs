//! The configuration of a repetition of an experiment, with the cores that it was given.

use std::fmt;

use packhorse_engine::StartAttempt;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The key of the cores.
const CORES: &str = "cpu_cores";

/// Its members in their order, and spelled as they are.
pub(crate) struct RepetitionConfig(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for RepetitionConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConfigVisitor;

        impl<'de> serde::de::Visitor<'de> for ConfigVisitor {
            type Value = RepetitionConfig;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<RepetitionConfig, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(RepetitionConfig(members))
            }
        }

        deserializer.deserialize_map(ConfigVisitor)
    }
}

impl RepetitionConfig {
    /// That of an attempt, if it is one of a repetition.
    pub(crate) fn of(start: &StartAttempt) -> serde_json::Result<Option<Self>> {
        let Some(experiment) = start.spec.env.get("PACKHORSE_EXPERIMENT") else {
            return Ok(None);
        };
        let Self(mut members) = serde_json::from_slice(&experiment.0)?;
        if !start.placement.cores.is_empty() {
            members.retain(|(key, _)| key != CORES);
            let cores = start.placement.cores.iter().map(|core| core.0);
            let cores = to_raw_value(&cores.collect::<Vec<_>>())?;
            members.push((CORES.to_owned(), cores));
        }
        Ok(Some(Self(members)))
    }

    pub(crate) fn to_line(&self) -> String {
        format!("{{{}}}", self.members("", ":").join(","))
    }

    /// A key a line.
    pub(crate) fn to_lines(&self) -> String {
        format!("{{\n{}\n}}\n", self.members("  ", ": ").join(",\n"))
    }

    fn members(&self, before: &str, between: &str) -> Vec<String> {
        let members = self.0.iter();
        let members = members
            .map(|(key, value)| format!("{before}{}{between}{value}", Value::from(key.as_str())));
        members.collect()
    }
}
