use std::time::Duration;

use packhorse_model::{Priority, Request, TaskId};

use crate::Now;

/// Who a task belongs to: a number that means something to the caller alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// What the scheduler needs to know of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Which one it is. An id is used once.
    pub id: TaskId,
    /// Who it belongs to. Nothing is decided by it yet.
    pub owner: OwnerId,
    /// What it needs.
    pub request: Request,
    /// The batch it belongs to: all of a lower one go before it, whatever their
    /// priority.
    pub batch: u32,
    /// Its place in the order of its batch.
    pub priority: Priority,
    /// When it arrived, for ageing. `None`, or a time that is still to come: now.
    pub arrived: Option<Now>,
    /// Its place among those that are equally urgent: the lower number goes first, and
    /// each is used once. `None`: behind all that were submitted before. Either all
    /// tasks of a scheduler have one, or none.
    pub arrival_number: Option<u64>,
    /// How many more attempts a failure gets.
    pub retries: u32,
    /// How long an attempt may take; handed on with
    /// [`Effect::Start`](crate::Effect::Start).
    pub time_limit: Option<Duration>,
    /// How long an attempt will take at most, as far as was learned. It may
    /// take longer.
    pub expected: Option<Duration>,
    /// Whether it is measured first.
    pub probe: ProbePlan,
    /// The tasks that must have succeeded before it may start. Each must have
    /// been submitted before.
    pub after: Vec<TaskId>,
}

/// Whether a task is measured before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProbePlan {
    /// No, or not any more.
    #[default]
    None,
    /// Its next start is attempt 0, with the same request, and whatever comes of
    /// that, it goes back in line. Until then it goes before all that are as urgent: a
    /// probe is short, and others wait for what it tells.
    First,
    /// Another one like it is. It does not come into line before a revision says
    /// what it needs.
    Awaited,
}

impl Submission {
    /// A task that arrives now, needs `request`, and asks for nothing else.
    pub fn new(id: TaskId, request: Request) -> Self {
        Self {
            id,
            owner: OwnerId::default(),
            request,
            batch: 0,
            priority: Priority::default(),
            arrived: None,
            arrival_number: None,
            retries: 0,
            time_limit: None,
            expected: None,
            probe: ProbePlan::None,
            after: Vec::new(),
        }
    }
}
