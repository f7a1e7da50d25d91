use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::metric::number;
use crate::{
    Bytes, Command, Exit, MetricSummary, Outcome, RunId, StrangersOn, TaskId, Timestamp,
    byte_string,
};

/// Something that happened in a run: one line of `packhorse run --json`.
///
/// The start and the end of an attempt are reported only after they are stored: what
/// was reported as finished is not lost, whatever happens next. Later versions may
/// add events and members, so a program should ignore those it does not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// When it happened.
    pub time: Timestamp,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum EventKind {
    /// A run has started, or has been resumed.
    RunStarted {
        run: RunId,
        /// Its GPUs, as they were named on the command line or by the driver.
        gpus: Vec<String>,
        /// How many tasks may run at a time with `--slots`; null with GPUs.
        slots: Option<u32>,
        /// Whether this continues an earlier run (`resume` or `retry`).
        resumed: bool,
        /// The numbers that Slurm gave to its jobs. Only with `--slurm`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        jobs: Vec<u32>,
        /// The GPUs on which there are programs that no run started.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        strangers: Vec<StrangersOn>,
    },
    /// More of the input has been read.
    Known {
        run: RunId,
        /// How many tasks are known so far, without those that had ended before the
        /// run was resumed.
        tasks: u64,
        /// Whether no more can come.
        complete: bool,
    },
    /// An attempt has started.
    Started {
        task: TaskId,
        /// Which attempt, counted from 1; 0 is a probe.
        attempt: u32,
        /// The command: the task's own, or its probe.
        command: Arc<Command>,
        /// Its GPUs, as in `run-started`; empty if it has none.
        gpus: Arc<[String]>,
        /// The node of the cluster that it runs on. Only with `--slurm`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<Arc<str>>,
    },
    /// A task has written a line. Only with `--output lines`.
    Output {
        task: TaskId,
        /// Which of its two streams it wrote to.
        stream: Stream,
        /// The line, without its newline. Bytes that are not UTF-8 are replaced; the
        /// log has them.
        line: String,
    },
    /// A task has printed a line of metrics.
    Metrics {
        task: TaskId,
        /// Which attempt, counted from 1; 0 is a probe.
        attempt: u32,
        /// The values by their names.
        #[serde(serialize_with = "number::map", deserialize_with = "number::read_map")]
        #[cfg_attr(
            feature = "schema",
            schemars(with = "BTreeMap<String, crate::schema::MetricNumber>")
        )]
        values: BTreeMap<String, f64>,
        /// Where in the work they were measured, if the line says so.
        #[serde(serialize_with = "number::option")]
        step: Option<f64>,
    },
    /// An attempt has ended, and another one follows.
    Retrying {
        task: TaskId,
        /// The attempt that has ended; 0 is a probe.
        attempt: u32,
        /// How it ended.
        #[serde(flatten)]
        #[cfg_attr(feature = "schema", schemars(with = "crate::outcome::OutcomeParts"))]
        outcome: Outcome,
        /// Why another attempt follows, if this is not a plain retry.
        note: Option<String>,
        /// How many retries are left after the next attempt.
        left: u32,
    },
    /// How much GPU memory an attempt used.
    Measured(Measurement),
    /// A task has ended.
    Finished(TaskResult),
    /// Something is wrong that does not end the run.
    Warning {
        /// The task it is about, if it is about one.
        task: Option<TaskId>,
        /// What is wrong, in words.
        message: String,
    },
    /// A signal has asked the run to stop.
    Stopping {
        run: RunId,
        /// What happens to running tasks.
        phase: Phase,
        /// How many attempts are still running.
        running: u64,
    },
    /// The run is over. This is the last event.
    RunEnded(RunSummary),
}

/// How much GPU memory an attempt used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measurement {
    pub task: TaskId,
    /// Which attempt, counted from 1; 0 is a probe.
    pub attempt: u32,
    /// The most memory it was seen to hold on one GPU, in bytes.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub peak: Bytes,
    /// How many bytes more it may have held between two samples.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub error: Bytes,
    /// None of its own processes was seen: this is what the memory of its GPU grew by.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_growth: bool,
    /// How many samples were taken.
    pub samples: u32,
    /// The longest time between two samples, in seconds.
    #[serde(rename = "interval_seconds", with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub interval: Duration,
    /// How busy its GPUs were, if the driver tells.
    #[serde(rename = "utilisation_percent")]
    pub utilisation: Option<Utilisation>,
}

/// How busy GPUs were, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Utilisation {
    /// The mean of all samples.
    pub mean: u8,
    /// The highest sample.
    pub most: u8,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskResult {
    pub task: TaskId,
    /// How many attempts it has had.
    pub attempts: u32,
    /// How it ended.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::outcome::OutcomeParts"))]
    pub outcome: Outcome,
    pub command: Arc<Command>,
    /// Why it could not be started, or what else there is to say.
    pub message: Option<String>,
    /// How long the last attempt took, in seconds.
    #[serde(rename = "seconds", with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub took: Duration,
    /// The file for the last attempt's output. There is no such file if it wrote
    /// nothing. Null if it was never started, and with `--output inherit`.
    #[serde(with = "byte_string::path::option")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::ByteString>"))]
    pub log: Option<PathBuf>,
    /// The metrics that the last attempt printed, by their names.
    #[serde(default)]
    pub metrics: BTreeMap<String, MetricSummary>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSummary {
    pub run: RunId,
    /// How many tasks succeeded, those of earlier sessions included.
    pub succeeded: u64,
    /// How many tasks failed and were not run again, those of earlier sessions included.
    pub failed: u64,
    /// How many tasks were never started, or were interrupted.
    pub left: u64,
    /// How many lines of the input could not be used.
    pub rejected: u64,
    /// How long it took, in seconds.
    #[serde(rename = "seconds", with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub took: Duration,
    /// Whether all results are stored.
    pub stored: bool,
    /// The exit status of `packhorse`.
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

/// How far a run has been stopped. Each phase outranks those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Phase {
    /// It is not being stopped.
    Running,
    /// No new task is started; running tasks may finish.
    Draining,
    /// Running tasks were sent SIGTERM.
    Terminating,
    /// Running tasks were sent SIGKILL.
    Killing,
}

/// Lengths of time in seconds.
pub(crate) mod seconds {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(crate) fn serialize<S: Serializer>(
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
        let event = Event { time: Timestamp(1_700_000_000_123_456), kind };
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event, "{json}");
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
            node: Some("n1".into()),
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
            metrics: BTreeMap::from([("loss".to_owned(), MetricSummary::of(0.5))]),
        }));
        assert_eq!(finished["outcome"], "failed");
        assert_eq!(finished["detail"], 3);
        assert_eq!(finished["seconds"], 1.5);
        let metrics = again(EventKind::Metrics {
            task,
            attempt: 1,
            values: BTreeMap::from([("loss".to_owned(), 0.1)]),
            step: Some(3.0),
        });
        assert_eq!(metrics["event"], "metrics");
        assert_eq!(metrics["values"], serde_json::json!({"loss": 0.1}));
        assert_eq!(metrics["step"], 3);
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
            by_growth: true,
            samples: 3,
            interval: Duration::from_millis(50),
            utilisation: Some(Utilisation { mean: 40, most: 90 }),
        }));
        again(EventKind::Stopping { run, phase: Phase::Draining, running: 2 });
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
