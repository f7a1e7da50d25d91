use std::sync::Arc;

use packhorse_model::{LearnedPeak, TaskId};

/// How many peaks are kept for each signature and GPU model: the newest.
pub(crate) const KEPT: u32 = 64;

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
