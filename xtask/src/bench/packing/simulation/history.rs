use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::{EndCause, RefusalReason};
use packhorse_model::{Bytes, Outcome, Placement, TaskId};

/// One attempt, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedAttempt {
    pub task: TaskId,
    /// Which attempt of it; 0 is a probe.
    pub attempt: u32,
    /// What it was given.
    pub placement: Placement,
    /// When it started.
    pub start: Duration,
    /// When it ended. Equal to `start` until then.
    pub end: Duration,
    /// The most memory that it held on a device.
    pub peak: Bytes,
    /// How it ended; `None` while it runs.
    pub outcome: Option<(Outcome, EndCause)>,
}

impl SimulatedAttempt {
    /// Whether it has not ended yet.
    pub(crate) const fn is_running(&self) -> bool {
        self.outcome.is_none()
    }
}

/// What happened in a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Every attempt, in the order in which they started.
    pub attempts: Vec<SimulatedAttempt>,
    /// How every task that is over ended.
    pub finished: BTreeMap<TaskId, Outcome>,
    pub refused: Vec<(TaskId, RefusalReason)>,
}

impl History {
    /// When the last attempt ended.
    pub fn makespan(&self) -> Duration {
        let ends = self.attempts.iter().map(|attempt| attempt.end);
        ends.max().unwrap_or_default()
    }
}
