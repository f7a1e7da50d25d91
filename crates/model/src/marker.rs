use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::event::seconds;
use crate::{Bytes, Command, MetricSummary, Outcome, TaskId, Timestamp};

/// What stands in a task's folder for results: which task it was, with what it ran,
/// and what became of it.
///
/// The file is for people and programs years later, so nothing has to be in it:
/// what is missing is left out, and what later versions add is ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultMarker {
    /// The version of Packhorse that wrote it.
    pub packhorse: Option<String>,
    /// The task.
    pub task: Option<TaskId>,
    /// One word for how it came out: that of an [`Outcome`], or
    /// [`ResultMarker::RUNNING`]. A later version may know more of them.
    pub outcome: Option<String>,
    /// The number that belongs to the word: exit status or signal.
    pub detail: Option<i32>,
    /// The task's parameters.
    #[serde(deserialize_with = "or_default")]
    pub params: BTreeMap<String, Value>,
    /// Its command.
    pub command: Option<Command>,
    /// When its last attempt started.
    pub started: Option<Timestamp>,
    /// When that ended.
    pub ended: Option<Timestamp>,
    /// How long it took.
    #[serde(rename = "seconds", with = "seconds::option")]
    pub took: Option<Duration>,
    /// How many attempts there were.
    pub attempts: Option<u32>,
    /// The GPUs of the last one, as events name them.
    #[serde(deserialize_with = "or_default")]
    pub gpus: Vec<String>,
    /// The most memory it was seen to hold on any one of its GPUs.
    pub peak: Option<Bytes>,
    /// What the folder it ran in had checked out.
    pub git: Option<GitState>,
    /// The machine it ran on.
    pub host: Option<String>,
    /// What it printed as metrics.
    #[serde(deserialize_with = "or_default")]
    pub metrics: BTreeMap<String, MetricSummary>,
}

/// What a Git repository had checked out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitState {
    /// The commit.
    pub commit: String,
    /// Whether files differed from it.
    pub dirty: bool,
}

impl ResultMarker {
    /// The name of the file.
    pub const FILE_NAME: &str = ".packhorse.json";

    /// The outcome of a task whose attempt has not ended, or whose end nobody saw.
    pub const RUNNING: &str = "running";

    /// How the task ended; `None` if it has not, or in a way we do not know.
    pub fn outcome(&self) -> Option<Outcome> {
        Outcome::from_parts(self.outcome.as_deref()?, self.detail)
    }

    /// Writes down how it ended; `None` while it runs.
    pub fn set_outcome(&mut self, outcome: Option<Outcome>) {
        self.outcome = Some(outcome.map_or(Self::RUNNING, Outcome::word).to_owned());
        self.detail = outcome.and_then(Outcome::detail);
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
            "params": {"lr": 0.1, "method": "GAN"}, "command": ["python", "train.py"],
            "started": 1_700_000_000.5, "ended": 1_700_000_002.0, "seconds": 1.5,
            "attempts": 2, "gpus": ["0"], "peak": 4096,
            "git": {"commit": "abc", "dirty": true}, "host": "here",
            "metrics": {"loss": {"last": 0.1, "lowest": 0.1, "highest": 0.9, "count": 12}},
        });
        let marker: ResultMarker = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(marker.outcome(), Some(Outcome::Failed { code: 2 }));
        assert_eq!(serde_json::to_value(&marker).unwrap(), written);
    }

    #[test]
    fn nothing_has_to_be_in_a_marker() {
        for text in [
            "{}",
            r#"{"later": [1], "params": null, "gpus": null, "metrics": null, "seconds": null}"#,
        ] {
            let marker: ResultMarker = serde_json::from_str(text).unwrap();
            assert_eq!(marker, ResultMarker::default(), "{text}");
        }
        let later: ResultMarker = serde_json::from_str(r#"{"outcome": "vanished"}"#).unwrap();
        assert_eq!(later.outcome(), None);
    }

    #[test]
    fn a_running_task_has_no_outcome_yet() {
        let mut marker = ResultMarker::default();
        marker.set_outcome(Some(Outcome::Killed { signal: 9 }));
        assert_eq!(marker.outcome(), Some(Outcome::Killed { signal: 9 }));
        marker.set_outcome(None);
        assert_eq!(marker.outcome.as_deref(), Some("running"));
        assert_eq!((marker.detail, marker.outcome()), (None, None));
    }
}
