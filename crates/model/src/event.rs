use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, Command, Exit, Outcome, RunId, TaskId, Timestamp, byte_string};

/// Something that happened in a run: the one form in which it is shown, printed with
/// `--json`, and sent to whoever follows the run.
///
/// The start and the end of an attempt are told only once the store has them: what
/// was seen to be finished is not lost, whatever happens next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// When it happened.
    pub time: Timestamp,
    /// What it was.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum EventKind {
    /// A run begins, or goes on.
    RunStarted {
        /// Which one.
        run: RunId,
        /// Its GPUs, as they were named.
        gpus: Vec<String>,
        /// How many tasks run at a time, where that is limited.
        slots: Option<u32>,
        /// Whether it goes on with what an earlier session left.
        resumed: bool,
    },
    /// More input was read.
    Known {
        /// The run.
        run: RunId,
        /// How many tasks there are by now, without those that earlier sessions
        /// settled.
        tasks: u64,
        /// Whether that is all.
        complete: bool,
    },
    /// An attempt was started.
    Started {
        /// The task.
        task: TaskId,
        /// Which attempt, from 1; 0 is a probe.
        attempt: u32,
        /// What it executes.
        #[cfg_attr(feature = "schema", schemars(with = "Command"))]
        command: Arc<Command>,
        /// Its GPUs as they were named; empty without any.
        #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
        gpus: Arc<[String]>,
    },
    /// A task wrote a line.
    Output {
        /// The task.
        task: TaskId,
        /// Where it wrote it.
        stream: Stream,
        /// The line, without its end. What is not UTF-8 is replaced; the log has the
        /// bytes.
        line: String,
    },
    /// An attempt is over, and another follows.
    Retrying {
        /// The task.
        task: TaskId,
        /// Which attempt it was; 0 is a probe.
        attempt: u32,
        /// How it came out.
        #[serde(flatten)]
        #[cfg_attr(feature = "schema", schemars(with = "crate::outcome::OutcomeParts"))]
        outcome: Outcome,
        /// Why another follows, if that is not a plain retry.
        note: Option<String>,
        /// How many retries are left.
        left: u32,
    },
    /// What an attempt was seen to need of its GPUs.
    Measured(Measurement),
    /// A task is settled, or was interrupted.
    Finished(TaskResult),
    /// Something to know that ends nothing.
    Warning {
        /// The task that it is about, if it is about one.
        task: Option<TaskId>,
        /// What it is.
        message: String,
    },
    /// A run is being stopped.
    Stopping {
        /// The run.
        run: RunId,
        /// How far.
        phase: Phase,
        /// How many attempts are alive.
        running: u64,
    },
    /// A run is over.
    RunEnded(RunSummary),
}

/// What an attempt was seen to need of its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measurement {
    /// The task.
    pub task: TaskId,
    /// Which attempt; 0 is a probe.
    pub attempt: u32,
    /// The most memory it was seen to hold on one GPU, in bytes.
    pub peak: Bytes,
    /// It may have been so much more between two samples.
    pub error: Bytes,
    /// How many samples were taken.
    pub samples: u32,
    /// The longest time between two of them.
    #[serde(rename = "interval_seconds", with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub interval: Duration,
    /// How busy its GPUs were, where the driver tells.
    #[serde(rename = "utilisation_percent")]
    pub utilisation: Option<Utilisation>,
}

/// How busy GPUs were, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Utilisation {
    /// In the mean.
    pub mean: u8,
    /// At most.
    pub most: u8,
}

/// How a task came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskResult {
    /// The task.
    pub task: TaskId,
    /// How many attempts it took.
    pub attempts: u32,
    /// How it came out.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::outcome::OutcomeParts"))]
    pub outcome: Outcome,
    /// What it executed.
    #[cfg_attr(feature = "schema", schemars(with = "Command"))]
    pub command: Arc<Command>,
    /// Why it could not be started, or what else there is to say.
    pub message: Option<String>,
    /// How long the last attempt took.
    #[serde(rename = "seconds", with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub took: Duration,
    /// Where the last attempt's output is, if it wrote any.
    #[serde(with = "byte_string::path::option")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::ByteString>"))]
    pub log: Option<PathBuf>,
}

/// How a run came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// Which one.
    pub run: RunId,
    /// Tasks of this session that succeeded.
    pub succeeded: u64,
    /// Tasks of this session that did not.
    pub failed: u64,
    /// Tasks that are not settled: never started, or interrupted.
    pub left: u64,
    /// Lines of the input that were no commands.
    pub rejected: u64,
    /// From start to end.
    #[serde(rename = "seconds", with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub took: Duration,
    /// Whether all of it is in the store.
    pub stored: bool,
    /// The exit status.
    #[cfg_attr(feature = "schema", schemars(with = "u8"))]
    pub exit: Exit,
}

/// One of a process's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How far a run has been stopped. Each outranks those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Phase {
    /// It goes on.
    Running,
    /// Nothing new is started; what runs may finish.
    Draining,
    /// What runs has been asked to end.
    Terminating,
    /// What runs is killed.
    Killing,
}

/// Lengths of time in seconds.
mod seconds {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(kind: EventKind) -> serde_json::Value {
        let event = Event {
            time: Timestamp(1_700_000_000_123_456),
            kind,
        };
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(
            serde_json::from_str::<Event>(&json).unwrap(),
            event,
            "{json}"
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn events_are_read_as_they_were_written() {
        let (run, task) = (RunId(3), TaskId::new(RunId(3), 7));
        let started = again(EventKind::Started {
            task,
            attempt: 1,
            command: Arc::new(Command::Line(b"echo \xff".to_vec())),
            gpus: Arc::from(["0".to_owned()]),
        });
        assert_eq!(started["event"], "started");
        assert_eq!(started["task"], "3.7");
        assert_eq!(started["time"], 1_700_000_000.123_456);
        let finished = again(EventKind::Finished(TaskResult {
            task,
            attempts: 2,
            outcome: Outcome::Failed { code: 3 },
            command: Arc::new(Command::Words(vec![b"false".to_vec()])),
            message: None,
            took: Duration::from_millis(1500),
            log: Some("/logs/7.2.log".into()),
        }));
        assert_eq!(finished["outcome"], "failed");
        assert_eq!(finished["detail"], 3);
        assert_eq!(finished["seconds"], 1.5);
        again(EventKind::Retrying {
            task,
            attempt: 1,
            outcome: Outcome::TimedOut,
            note: Some("why".to_owned()),
            left: 0,
        });
        again(EventKind::Measured(Measurement {
            task,
            attempt: 0,
            peak: Bytes(5),
            error: Bytes(0),
            samples: 3,
            interval: Duration::from_millis(50),
            utilisation: Some(Utilisation { mean: 40, most: 90 }),
        }));
        again(EventKind::Stopping {
            run,
            phase: Phase::Draining,
            running: 2,
        });
        let ended = again(EventKind::RunEnded(RunSummary {
            run,
            succeeded: 1,
            failed: 0,
            left: 2,
            rejected: 0,
            took: Duration::from_secs(2),
            stored: true,
            exit: Exit::Signal(2),
        }));
        assert_eq!(ended["exit"], 130);
    }
}
