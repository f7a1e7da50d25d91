use std::sync::Arc;

use crate::{Bytes, LearnedPeak, Outcome, TaskId, TaskSpec, Timestamp};

/// The start of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedAttempt {
    /// The task.
    pub task: TaskId,
    /// Which attempt of it, counted from 1; 0 is a probe.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// What it was placed on, in words for people.
    pub device: Option<Arc<str>>,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAttempt {
    /// The task.
    pub task: TaskId,
    /// Which attempt of it.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// How it came out.
    pub outcome: Outcome,
    /// What there is to say beyond the outcome.
    pub message: Option<Box<str>>,
    /// The most memory it was seen to hold on any one of its GPUs.
    pub peak: Option<Bytes>,
    /// What follows from it, such as why the task runs again and with what.
    pub note: Option<Box<str>>,
    /// Whether the attempt's outcome is the task's. If not, another attempt
    /// follows.
    pub is_final: bool,
}

/// What an attempt taught about commands with its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPeak {
    /// The task.
    pub task: TaskId,
    /// Which attempt of it; 0 is a probe.
    pub attempt: u32,
    /// The signature of its command.
    pub signature: Arc<str>,
    /// The model of the GPU it ran on.
    pub model: Arc<str>,
    /// What was seen.
    pub learned: LearnedPeak,
}

/// A task as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTask {
    /// Which one it is.
    pub id: TaskId,
    /// What it executes, and what it asks for.
    pub spec: TaskSpec,
    /// The numbers of the tasks it comes after.
    pub after: Vec<u32>,
    /// How it came out; `None` while it waits or runs.
    pub outcome: Option<Outcome>,
    /// The number of its last attempt; 0 if it has had none, or only a probe.
    pub attempts: u32,
}
