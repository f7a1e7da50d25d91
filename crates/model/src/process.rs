use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{MetricLine, Outcome, Stream, TaskId};

/// Something that happened to the processes of an attempt, as an executor tells it.
#[derive(Clone, Debug, PartialEq)]
pub enum ProcessEvent {
    /// An attempt runs.
    Started { task: TaskId, attempt: u32 },
    /// An attempt is over, and nothing of it is left.
    Ended(AttemptEnd),
    /// An attempt wrote something (with [`OutputMode::Lines`]).
    Output {
        task: TaskId,
        /// Where it wrote.
        stream: Stream,
        /// What, in a piece of any size.
        bytes: Vec<u8>,
    },
    /// An attempt printed metrics.
    Metrics {
        task: TaskId,
        attempt: u32,
        /// The lines, in their order.
        lines: Vec<MetricLine>,
    },
    /// An attempt printed a line that looks like metrics and is not right. Told of the
    /// first such line of each attempt.
    WrongMetrics {
        task: TaskId,
        /// What is wrong with it, for people.
        message: String,
    },
    /// Something that concerns one attempt went wrong without ending it.
    Trouble {
        task: TaskId,
        /// What it is, for people.
        message: String,
    },
    /// An attempt is about to be ended, because it was stopped or its time limit is over,
    /// and the first signal waits for permission.
    Ending {
        task: TaskId,
        /// The id of its first process.
        leader: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    pub task: TaskId,
    pub attempt: u32,
    /// How it came out.
    pub outcome: Outcome,
    /// Why it could not be started, or what else there is to say.
    pub message: Option<String>,
    /// From start to end.
    pub took: Duration,
}

/// What becomes of an attempt's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputMode {
    /// We read it, and write it to the log.
    #[default]
    Log,
    /// We write it to the log, and tell it line by line.
    Lines,
    /// The attempt writes into its log itself, whether we are there or not.
    File,
    /// It goes where ours goes; there is no log.
    Inherit,
}

impl OutputMode {
    /// Whether it comes to us through pipes.
    pub fn is_piped(self) -> bool {
        matches!(self, Self::Log | Self::Lines)
    }
}

/// How to end a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    /// SIGTERM, and SIGKILL when the grace is over.
    Terminate,
    /// SIGKILL, at once.
    Kill,
}
