use std::time::Duration;

use packhorse_model::{Outcome, Placement, Priority, Request, Task, TaskId};

use crate::Refusal;

/// A moment, as the time since some origin that never moves. Only differences
/// mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Now(pub Duration);

impl Now {
    /// The time from `earlier` to here; nothing, if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// What the scheduler needs to know of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Which one it is. An id is used once.
    pub id: TaskId,
    /// What it needs.
    pub request: Request,
    /// Its place in the order.
    pub priority: Priority,
    /// How many more attempts a failure gets.
    pub retries: u32,
    /// How long an attempt may take; handed on with [`Effect::Start`].
    pub time_limit: Option<Duration>,
    /// The tasks that must have succeeded before it may start. Each must have
    /// been submitted before.
    pub after: Vec<TaskId>,
}

impl From<&Task> for Submission {
    fn from(task: &Task) -> Self {
        Self {
            id: task.id,
            request: task.request.clone(),
            priority: task.priority,
            retries: task.retries,
            time_limit: task.time_limit,
            after: task.after.clone(),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is a new task.
    Submit(Submission),
    /// An attempt is over and nothing of it is left running. Ignored if that
    /// attempt does not run.
    Ended {
        /// The task.
        task: TaskId,
        /// Which attempt of it.
        attempt: u32,
        /// How it came out.
        outcome: Outcome,
    },
    /// A task is not wanted any more. One that does not run finishes as
    /// interrupted; one that runs is stopped, gets no further attempt, and
    /// finishes with the outcome its end is reported with. Ignored if there is
    /// no such task, or it has finished, or is being stopped.
    Cancel(TaskId),
    /// Hand nothing out any more. What runs goes on; what fails waits for its
    /// next attempt.
    Hold,
    /// Hand out again.
    Unhold,
}

/// What is to be done, or told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A submitted task was not taken: nothing more will be heard of it. If its
    /// id was known already, nothing changes for the task that has it.
    Refused {
        /// The task.
        task: TaskId,
        /// Why not.
        reason: Refusal,
    },
    /// Start an attempt, and report its end with [`Event::Ended`].
    Start {
        /// The task.
        task: TaskId,
        /// Which attempt it is, from 1.
        attempt: u32,
        /// What it is given.
        placement: Placement,
        /// How long it may take.
        time_limit: Option<Duration>,
    },
    /// End a running attempt. What it holds is free only when its end is
    /// reported.
    Stop {
        /// The task.
        task: TaskId,
        /// Which attempt of it.
        attempt: u32,
    },
    /// An attempt failed, and the task is back in its place in line.
    Retrying {
        /// The task.
        task: TaskId,
        /// The attempt that will come.
        next_attempt: u32,
        /// How the last one came out.
        outcome: Outcome,
    },
    /// A task is over. Said exactly once of each that was not refused.
    Finished {
        /// The task.
        task: TaskId,
        /// How many attempts there were.
        attempts: u32,
        /// How it came out.
        outcome: Outcome,
    },
}
