//! What is to survive a crash.

use packhorse_model::{
    EndedAttempt, Exit, NewPeak, Outcome, RunId, StartedAttempt, TaskId, TaskSpec, Timestamp,
};

/// One fact to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// Tasks have arrived.
    Tasks(Vec<ArrivedTask>),
    /// An attempt has started.
    Started(StartedAttempt),
    /// An attempt has ended.
    AttemptEnded(EndedAttempt),
    /// A task has come to its end without an attempt of its own: it was skipped.
    TaskFinished {
        /// The task.
        task: TaskId,
        /// How it came out.
        outcome: Outcome,
    },
    /// An attempt has taught something about commands of its shape.
    Peak(Box<NewPeak>),
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
    InputComplete(RunId),
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
