use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{ByteString, Bytes, Command, MetricSummary, Outcome, TaskId, Timestamp};

/// What is known of a task in the folder of its results: the content of `.packhorse.json`.
///
/// It is written whole or not at all: before the task's first process starts, and at the end
/// of each attempt. It is for people and programs years later, so nothing has to be in it:
/// what is missing or `null` is left out, and what later versions add is ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Marker {
    /// The version of Packhorse that wrote it.
    #[serde(deserialize_with = "or_default")]
    pub packhorse: String,
    pub task: Option<TaskId>,
    /// How it came out, in one word: those of events, or `running`. A later version may
    /// know more of them.
    #[serde(deserialize_with = "or_default")]
    pub outcome: String,
    /// Whether it was a trial run of an experiment (`--debug`), which is no result.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// The exit status or signal that belongs to the outcome.
    pub detail: Option<i32>,
    /// What there is to say beyond the outcome.
    pub message: Option<String>,
    /// Its parameters.
    #[serde(deserialize_with = "or_default")]
    pub params: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    pub command: Command,
    /// When the last attempt started.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// How long it took.
    pub seconds: Option<f64>,
    /// How many attempts there were.
    #[serde(deserialize_with = "or_default")]
    pub attempts: u32,
    /// The GPUs of the last attempt, as they were named.
    #[serde(deserialize_with = "or_default")]
    pub gpus: Vec<String>,
    /// The most memory it was seen to hold on one GPU, in bytes.
    pub peak: Option<Bytes>,
    /// The state of the code, if the run was started in a git repository.
    pub git: Option<GitState>,
    /// The machine.
    #[serde(deserialize_with = "or_default")]
    pub host: String,
    /// The id of the state folder that the task's run is in.
    #[serde(deserialize_with = "or_default")]
    pub home: String,
    /// The UUID of the task's run: two state folders that are copies of each other have the same
    /// id, and runs of the same number.
    #[serde(deserialize_with = "or_default")]
    pub run: String,
    /// The file with what the last attempt wrote, on that machine.
    pub log: Option<ByteString>,
    /// What the last attempt printed as metrics.
    #[serde(deserialize_with = "or_default")]
    pub metrics: BTreeMap<String, MetricSummary>,
}

/// The state of the code that a run was started in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitState {
    /// The commit that was checked out.
    pub commit: String,
    /// Whether files that git knows were changed since.
    pub dirty: bool,
}

impl Marker {
    /// Its name in the folder of the results.
    pub const FILE: &str = ".packhorse.json";

    /// The `outcome` of a task that has not ended.
    pub const RUNNING: &str = "running";

    /// How the task ended; `None` if it has not, or in a way we do not know.
    pub fn ended_as(&self) -> Option<Outcome> {
        Outcome::from_parts(&self.outcome, self.detail)
    }
}

/// What stands for nothing may also be written as `null`.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let written = json!({
            "packhorse": "0.1.0", "task": "3.7", "outcome": "failed", "detail": 2,
            "message": null, "params": {"lr": 0.1, "method": "GAN"},
            "command": ["python", "train.py"],
            "started": 1_700_000_000.5, "ended": 1_700_000_002.0, "seconds": 1.5,
            "attempts": 2, "gpus": ["0"], "peak": 4096,
            "git": {"commit": "abc", "dirty": true}, "host": "here", "home": "x",
            "run": "0197a1c4", "log": "/logs/7.2.log",
            "metrics": {"loss": {"last": 0.1, "lowest": 0.1, "highest": 0.9, "count": 12}},
        });
        let marker: Marker = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(marker.ended_as(), Some(Outcome::Failed { code: 2 }));
        assert_eq!(serde_json::to_value(&marker).unwrap(), written);
    }

    #[test]
    fn nothing_has_to_be_in_a_marker() {
        let all = serde_json::to_value(Marker::default()).unwrap();
        let names = all.as_object().unwrap().keys();
        let nulls: Value = names.map(|name| (name.clone(), Value::Null)).collect();
        for value in [json!({}), json!({"later": [1]}), nulls] {
            let marker: Marker = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(marker, Marker::default(), "{value}");
        }
        let later: Marker = serde_json::from_value(json!({"outcome": "vanished"})).unwrap();
        assert_eq!(later.ended_as(), None);
    }
}
