use std::time::Duration;

use crate::{Outcome, Stream, TaskId};

/// Something that happened to the processes of an attempt, as an executor tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// An attempt runs.
    Started {
        /// The task.
        task: TaskId,
        /// Which of its attempts.
        attempt: u32,
    },
    /// An attempt is over, and nothing of it is left.
    Ended(AttemptEnd),
    /// An attempt wrote something (with [`OutputMode::Lines`]).
    Output {
        /// The task.
        task: TaskId,
        /// Where it wrote.
        stream: Stream,
        /// What, in a piece of any size.
        bytes: Vec<u8>,
    },
    /// Something that concerns one attempt went wrong without ending it.
    Trouble {
        /// The task.
        task: TaskId,
        /// What it is, for people.
        message: String,
    },
    /// An attempt is about to be ended, because it was stopped or its time limit is over,
    /// and the first signal waits for permission.
    Ending {
        /// The task.
        task: TaskId,
        /// The id of its first process.
        leader: u32,
    },
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// The task.
    pub task: TaskId,
    /// Which of its attempts.
    pub attempt: u32,
    /// How it came out.
    pub outcome: Outcome,
    /// Why it could not be started, or what else there is to say.
    pub message: Option<String>,
    /// From start to end.
    pub took: Duration,
}

/// What becomes of an attempt's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// It is written to the log.
    Log,
    /// It is written to the log, and told line by line.
    Lines,
    /// It goes where ours goes; there is no log.
    Inherit,
}

/// How to end a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    /// SIGTERM, and SIGKILL when the grace is over.
    Terminate,
    /// SIGKILL, at once.
    Kill,
}
