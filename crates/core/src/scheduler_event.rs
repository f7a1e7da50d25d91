use std::time::Duration;

use packhorse_model::{Bytes, DeviceId, Milli, NodeId, Outcome, Placement, Request, RunId, TaskId};

use crate::{DeviceSpec, NodeSpec, PoolError, ProbePlan, RefusalReason, Submission};

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

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerEvent {
    /// There is a new task. It is refused if no machine of the pool, as it is
    /// now, could ever run it.
    Submit(Submission),
    /// There is a task of which an attempt runs already: it was found, or handed
    /// over. What it holds is counted from now on, even if that is more than
    /// there is, and its end is reported like any other's. It is refused if its
    /// id is known, or it asks for an amount of GPU that makes no sense, or there
    /// is no such node, or a device is not on that node; cores that the node does
    /// not have are not counted.
    Adopt {
        /// The task. What it comes after does not matter any more.
        submission: Submission,
        /// Which attempt of it runs; 0 is a probe.
        attempt: u32,
        /// What it was given.
        placement: Placement,
        /// When it started.
        since: Now,
    },
    /// An attempt is over and nothing of it is left running. Ignored if that
    /// attempt does not run.
    Ended {
        task: TaskId,
        attempt: u32,
        /// How it came out.
        outcome: Outcome,
        /// What caused its end.
        cause: EndCause,
    },
    /// What the driver shows that a running attempt's processes hold on a
    /// device; the last report counts. Ignored if that attempt does not run
    /// there.
    Observed {
        task: TaskId,
        attempt: u32,
        device: DeviceId,
        /// How much of its memory.
        memory: Bytes,
    },
    /// What a running attempt is promised of its devices' memory from now on: so much,
    /// but no more than there is for it, and no less than it asked for. Ignored if that
    /// attempt does not run, or did not ask for an amount of memory.
    Promised {
        task: TaskId,
        attempt: u32,
        /// How much of each of its devices.
        memory: Bytes,
    },
    /// What others hold on a device; the last report counts.
    Outside {
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
    /// What others hold on the devices has just been told, as [`Effect::Look`] asked for,
    /// or cannot be.
    Looked,
    /// Start nothing more. What runs goes on; what fails waits for its next
    /// attempt.
    Hold,
    /// Start tasks again.
    Unhold,
    /// Whether tasks may come that nobody has submitted yet, as at the beginning.
    /// Then room is left for tasks like those seen so far; if not, for those alone
    /// that have not started.
    MoreToCome(bool),
    /// Start nothing more of this run, whether it is known yet or not. What runs
    /// goes on; its other tasks leave the line, and nothing is reserved for them.
    HoldRun(RunId),
    /// Start tasks of this run again: they come back to their old places in line.
    UnholdRun(RunId),
    /// There is one more machine, the last in the pool's order.
    AddNode(NodeSpec),
    /// Use a machine no more. Nothing more is started on it, and it is removed when
    /// the last attempt on it has ended. Ignored if there is no such machine.
    ///
    /// Tasks that then fit nowhere are not lost: they wait until a machine is added
    /// that can run them, or until they are revised or cancelled. Meanwhile
    /// nothing is reserved for them, and `explain` says why they wait.
    RemoveNode(NodeId),
    /// There is one more device, the last of its machine.
    AddDevice {
        /// The machine.
        node: NodeId,
        device: DeviceSpec,
    },
    /// Use a device no more; the same as with a machine.
    RemoveDevice(DeviceId),
}

/// What caused an attempt's end. It matters only if the attempt did not
/// succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// The attempt itself, or it is not known.
    Own,
    /// One of its devices ran out of memory, and it is the one to blame.
    OutOfMemory {
        /// The most it was seen to hold on one device.
        peak: Bytes,
        /// What tasks of its kind are promised now.
        at_least: Bytes,
    },
    /// Memory that it was promised was taken: by a neighbour that held more than its own
    /// promise, or by processes of others.
    Crowded,
    /// Something else that is not its fault: an MPS server that died, a device that was
    /// lost.
    Collateral,
}

/// What other users' processes and other runs hold on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each of them is about something else")]
pub struct Outside {
    pub memory: Bytes,
    /// How much of that other runs hold or were promised.
    pub runs: Bytes,
    /// How much of it processes of strangers hold that only draw, as a desktop does.
    pub drawn: Bytes,
    /// Whether a stranger's program computes there: tasks go elsewhere if they can.
    pub has_strangers: bool,
    /// The share that other runs were given.
    pub share: Milli,
    /// How many attempts of other runs are on it.
    pub attempts: u32,
    /// Whether one of them has it to itself: nobody may join.
    pub whole: bool,
    /// Whether nobody has looked yet, so that all of its memory counts as held.
    /// It decides nothing; it is for explanations.
    pub unseen: bool,
    /// Whether other runs make room for whoever has waited longer. If not, what they hold
    /// counts as a stranger's.
    pub yields: bool,
    /// What has to be left to other runs that have waited longer.
    pub kept: KeptRoom,
}

/// What has to be left of a device to somebody who comes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeptRoom {
    pub share: Milli,
    /// The memory. Nothing if that is not counted.
    pub memory: Bytes,
    /// Whether it has to be all of it.
    pub whole: bool,
}

impl Outside {
    /// What goes in one piece when another run makes room: all of it, or nothing if nobody
    /// knows in how many.
    pub(crate) fn leaving_at_once(self) -> Self {
        if !self.yields || self.attempts != 1 {
            return Self::default();
        }
        Self { memory: self.runs, share: self.share, ..Self::default() }
    }

    /// What is left when the other runs have made room, if they do.
    pub(crate) fn without_yielding(self) -> Self {
        if !self.yields {
            return self;
        }
        Self {
            memory: self.strangers(),
            drawn: self.drawn,
            has_strangers: self.has_strangers,
            unseen: self.unseen,
            ..Self::default()
        }
    }
}

impl Outside {
    /// The memory that other users' processes hold.
    pub(crate) fn strangers(&self) -> Bytes {
        Bytes(self.memory.0.saturating_sub(self.runs.0))
    }

    /// The same without those that only draw: they take memory and no more.
    pub(crate) fn computing_strangers(&self) -> Bytes {
        Bytes(self.strangers().0.saturating_sub(self.drawn.0))
    }

    /// What all others hold, without those that only draw.
    pub(crate) fn computing(&self) -> Bytes {
        Bytes(self.memory.0.saturating_sub(self.drawn.0))
    }
}

/// Why a task whose attempt is over is back in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryReason {
    /// It failed, and has a retry left: now one less.
    Retry,
    /// It was not its fault, so no retry is used up.
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

/// What is to be done, or reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A submitted task was not taken: nothing more will be heard of it. If its
    /// id was known already, nothing changes for the task that has it.
    Refused {
        task: TaskId,
        /// Why not.
        reason: RefusalReason,
    },
    /// A node or a device was not added.
    NotAdded(PoolError),
    /// Start an attempt, and report its end with [`SchedulerEvent::Ended`].
    Start {
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
    Stop { task: TaskId, attempt: u32 },
    /// Look who is on the devices, and report it with [`SchedulerEvent::Outside`] and then
    /// [`SchedulerEvent::Looked`]: one of several devices is to be chosen. Nothing is
    /// started before.
    Look,
    /// An attempt is over, but not the task: it is back in its place in line.
    Retrying {
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
    /// A task is over. Reported exactly once for each that was not refused.
    Finished {
        task: TaskId,
        /// How many attempts there were, probes not counted.
        attempts: u32,
        /// How it came out.
        outcome: Outcome,
    },
}
