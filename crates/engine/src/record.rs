//! What is to survive a crash.

use std::sync::Arc;

use packhorse_model::{Bytes, Exit, LearnedPeak, Outcome, RunId, TaskId, TaskSpec, Timestamp};

/// One fact to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// Tasks have arrived.
    Tasks(Vec<ArrivedTask>),
    /// An attempt has started.
    Started(AttemptStart),
    /// An attempt has ended.
    AttemptEnded(AttemptEndRecord),
    /// A task has come to its end without an attempt of its own: it was skipped.
    TaskFinished {
        /// The task.
        task: TaskId,
        /// How it came out.
        outcome: Outcome,
    },
    /// An attempt has taught something about commands of its shape.
    Peak {
        /// The task.
        task: TaskId,
        /// Which attempt; 0 is a probe.
        attempt: u32,
        /// The shape of its command.
        signature: Arc<str>,
        /// The model of the GPU it ran on.
        model: Arc<str>,
        /// What was seen.
        learned: LearnedPeak,
    },
    /// A GPU was taken out, and stays out for later runs until somebody puts it back.
    Drained {
        /// The run that found out.
        run: RunId,
        /// Its UUID, or its id where it has none.
        device: String,
        /// What is wrong with it.
        reason: String,
        /// When.
        at: Timestamp,
    },
    /// All input of a run has been read: the tasks recorded are all there will be.
    InputComplete {
        /// The run.
        run: RunId,
    },
    /// A run is over.
    RunEnded {
        /// The run.
        run: RunId,
        /// When.
        at: Timestamp,
        /// Its exit status.
        exit: Exit,
    },
}

/// A task that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivedTask {
    /// Which one it is.
    pub id: TaskId,
    /// What it is.
    pub spec: TaskSpec,
    /// The numbers of the tasks of its run that it comes after.
    pub after: Box<[u32]>,
}

/// A task as it is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumableTask {
    /// Which one it is.
    pub id: TaskId,
    /// What it is.
    pub spec: TaskSpec,
    /// The numbers of the tasks of its run that it comes after.
    pub after: Vec<u32>,
    /// How many attempts it has had, probes not counted.
    pub attempts: u32,
}

/// The start of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptStart {
    /// The task.
    pub task: TaskId,
    /// Which attempt, from 1; 0 is a probe.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// Its GPUs, in words for people.
    pub device: Option<Arc<str>>,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEndRecord {
    /// The task.
    pub task: TaskId,
    /// Which attempt.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// How it came out.
    pub outcome: Outcome,
    /// What there is to say beyond the outcome.
    pub message: Option<String>,
    /// The most memory it was seen to hold of any of its GPUs.
    pub peak: Option<Bytes>,
    /// What was made of it, such as why it runs again and with what.
    pub note: Option<String>,
    /// What that means for the task.
    pub verdict: Verdict,
}

/// What an attempt's end means for its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The attempt's outcome is the task's.
    Final,
    /// Another attempt follows.
    Again,
}
