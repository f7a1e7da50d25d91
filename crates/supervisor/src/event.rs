//! What the supervisor reports.

use std::time::Duration;

use packhorse_model::{Outcome, TaskId};

use packhorse_model::Stream;

/// Something that happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// An attempt that had to wait for descriptors, processes or memory runs now.
    Started {
        /// The task.
        task: TaskId,
        /// Which of its attempts.
        attempt: u32,
    },
    /// An attempt is over, and nothing of it is left.
    Ended(AttemptEnd),
    /// An attempt wrote something (with [`crate::Output::LogAndShow`]).
    Output {
        /// The task.
        task: TaskId,
        /// Which of its attempts.
        attempt: u32,
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
    /// An attempt is about to be ended, because it was stopped or its time limit
    /// is over. Only with [`crate::Job::hold_end`]: the first signal waits for
    /// [`crate::Supervisor::proceed`], for at most 2 seconds, or until the attempt
    /// is stopped in a rougher way. If it fails while it waits, that was its end.
    Ending {
        /// The task.
        task: TaskId,
        /// Which of its attempts.
        attempt: u32,
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
