use std::time::Duration;

use packhorse_model::{Bytes, DeviceId, Milli, Outcome, Placement, Priority, Request, TaskId};

use crate::RefusalReason;

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
    /// The batch it belongs to: all of a lower one go before it, whatever their
    /// priority.
    pub batch: u32,
    /// Its place in the order of its batch.
    pub priority: Priority,
    /// How many more attempts a failure gets.
    pub retries: u32,
    /// How long an attempt may take; handed on with [`Effect::Start`].
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
    /// that, it goes back in line.
    First,
    /// Another one like it is. It does not come into line before a revision says
    /// what it needs.
    Awaited,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerEvent {
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
        /// What brought its end about.
        cause: EndCause,
    },
    /// What the driver shows that a running attempt's processes hold on a
    /// device; the last word counts. Ignored if that attempt does not run
    /// there.
    Observed {
        /// The task.
        task: TaskId,
        /// Which attempt of it.
        attempt: u32,
        /// The device.
        device: DeviceId,
        /// How much of its memory.
        memory: Bytes,
    },
    /// What others than we hold on a device; the last word counts.
    Outside {
        /// The device.
        device: DeviceId,
        /// What they hold there.
        held: Outside,
    },
    /// Start nothing more on a device. What runs there goes on.
    Drain(DeviceId),
    /// Start on a drained device again.
    Restore(DeviceId),
    /// What a task needs is known better now. Ignored if an attempt of it runs,
    /// unless that is a probe: then it holds from the probe's end. Ignored as
    /// well if the pool could never satisfy the new request.
    Revise {
        /// The task.
        task: TaskId,
        /// What it needs.
        request: Request,
        /// How long an attempt will take at most.
        expected: Option<Duration>,
        /// Whether it is measured first.
        probe: ProbePlan,
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

/// What brought an attempt's end about. It matters only if the attempt did not
/// succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// Itself, or nobody knows.
    Own,
    /// A device of its ran out of memory, and it is the one to blame.
    OutOfMemory {
        /// The most it was seen to hold on one device.
        peak: Bytes,
    },
    /// Another one's doing, or the device's: a neighbour that outgrew its
    /// promise, a server they shared, a device that was lost.
    Collateral,
}

/// What strangers' processes and other runs hold on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outside {
    /// Memory.
    pub memory: Bytes,
    /// How much of that other runs hold or were promised. It decides nothing, and
    /// is for telling.
    pub runs: Bytes,
    /// The share that other runs were given.
    pub share: Milli,
    /// How many attempts of other runs are on it.
    pub attempts: u32,
    /// Whether one of them has it to itself: nobody may join.
    pub whole: bool,
    /// Whether nobody has looked yet, so that all of its memory counts as held.
    /// It decides nothing, and is for telling.
    pub unseen: bool,
}

/// Why a task whose attempt is over is back in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryReason {
    /// It failed, and has a retry left: now one less.
    Retry,
    /// It was another one's doing, so no retry is used up.
    Collateral,
    /// It ran out of memory, and is promised more.
    MoreMemory {
        /// How much on each of its devices.
        memory: Bytes,
    },
    /// It ran out of memory, and will have its devices to itself.
    Alone,
    /// It ran out of memory though it was alone, and goes to a larger device.
    LargerDevice {
        /// More than this much memory.
        above: Bytes,
    },
    /// It was only measured.
    Probed,
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
        reason: RefusalReason,
    },
    /// Start an attempt, and report its end with [`SchedulerEvent::Ended`].
    Start {
        /// The task.
        task: TaskId,
        /// Which attempt it is, from 1; 0 is a probe.
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
    /// An attempt is over, but not the task: it is back in its place in line.
    Retrying {
        /// The task.
        task: TaskId,
        /// The attempt that will come; 0 is a probe.
        next_attempt: u32,
        /// How the last one came out.
        outcome: Outcome,
        /// Why it is tried again.
        why: RetryReason,
        /// How many retries it has left.
        left: u32,
    },
    /// A task is over. Said exactly once of each that was not refused.
    Finished {
        /// The task.
        task: TaskId,
        /// How many attempts there were, probes not counted.
        attempts: u32,
        /// How it came out.
        outcome: Outcome,
    },
}
