//! One attempt while it lives.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use packhorse_model::{AttemptEnd, Outcome, ProcessEvent, StopMode, TaskId};
use packhorse_proc::has_ended;
use rustix::process::{Pid, Signal};

use crate::exit::ProcessEnd;
use crate::process_tree::number;
use crate::spawn::{Child, SpawnBuffer};

/// How long the first signal to an attempt waits for [`crate::Supervisor::proceed`].
const HOLD: Duration = Duration::from_secs(2);

/// Why we ended it ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    TimeLimit,
    Asked,
}

/// Who started its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderOrigin {
    /// We did, as the leader of a process group.
    Started,
    /// Somebody else.
    Adopted {
        /// It leads a process group.
        leads_group: bool,
        /// Tells it from a later process of the same number.
        start_time: u64,
    },
}

/// A started attempt whose process tree is not yet known to be empty.
pub(crate) struct RunningAttempt {
    pub(crate) task: TaskId,
    pub(crate) number: u32,
    /// The first process, which leads the group.
    pub(crate) leader: Pid,
    pub(crate) origin: LeaderOrigin,
    /// The leader's pidfd, until it has ended. `None` for one of which SIGCHLD tells: as
    /// long as we have not reaped it, its number means it.
    pub(crate) handle: Option<OwnedFd>,
    /// It has ended, and how cannot be told yet.
    pub(crate) is_watched_for_edges: bool,
    pub(crate) started: Instant,
    /// How long it had run when we began to watch it.
    pub(crate) ran_before: Duration,
    pub(crate) grace: Duration,
    /// When to act on it unasked: the time limit, the end of the grace, or of the
    /// wait for permission to end it.
    pub(crate) deadline: Option<Instant>,
    pub(crate) reason: Option<EndReason>,
    pub(crate) hold_end: bool,
    /// How it shall be ended when that is permitted.
    held: Option<StopMode>,
    pub(crate) stopped: Option<StopMode>,
    /// How the leader ended, once it has.
    pub(crate) end: Option<ProcessEnd>,
    /// How many unknown children had been found when it was started.
    pub(crate) unknown_before: u64,
    /// How many processes that outlived the leader were asked to end, or killed.
    pub(crate) stragglers: usize,
    /// Those that have been asked to end.
    pub(crate) asked: Vec<Pid>,
    pub(crate) stragglers_end: StragglersEnd,
}

/// How far the end of those has come that outlived the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StragglersEnd {
    /// None has been found.
    Unseen,
    /// They have a moment to end by themselves.
    Awaited,
    /// They have been asked to end.
    Asked,
    Killed,
    /// They outlived SIGKILL as well, or may not be killed by us.
    GivenUp,
}

impl RunningAttempt {
    /// One whose leader was just started, or found.
    pub(crate) fn new(task: TaskId, number: u32, leader: Child, origin: LeaderOrigin) -> Self {
        Self {
            task,
            number,
            leader: leader.pid,
            origin,
            handle: leader.handle,
            is_watched_for_edges: false,
            started: Instant::now(),
            ran_before: Duration::ZERO,
            grace: Duration::ZERO,
            deadline: None,
            reason: None,
            hold_end: false,
            held: None,
            stopped: None,
            end: None,
            unknown_before: 0,
            stragglers: 0,
            asked: Vec::new(),
            stragglers_end: StragglersEnd::Unseen,
        }
    }

    /// Its end, as it is told: now.
    pub(crate) fn ended(&self, outcome: Outcome, message: Option<String>) -> ProcessEvent {
        ProcessEvent::Ended(AttemptEnd {
            task: self.task,
            attempt: self.number,
            outcome,
            message,
            took: self.ran_before + self.started.elapsed(),
        })
    }

    /// The leader's start time, where the number alone does not say who it is.
    pub(crate) fn leader_start_time(&self) -> Option<u64> {
        match self.origin {
            LeaderOrigin::Started => None,
            LeaderOrigin::Adopted { start_time, .. } => Some(start_time),
        }
    }

    pub(crate) fn is_adopted(&self) -> bool {
        self.origin != LeaderOrigin::Started
    }

    /// Whether the process group with the leader's number is certainly its. Once an
    /// adopted leader is gone, the number may be somebody else's.
    fn has_group(&self) -> bool {
        match self.origin {
            LeaderOrigin::Started => true,
            LeaderOrigin::Adopted { leads_group, .. } => {
                leads_group && self.handle.as_ref().is_some_and(|it| !has_ended(it))
            }
        }
    }

    /// Signals the whole group, or the leader if it has none.
    pub(crate) fn signal(&self, signal: Signal, buffer: &SpawnBuffer) {
        if signal == Signal::TERM {
            buffer.announce_termination();
        }
        let send = |signal| {
            // A group that is gone is what we want. But a leader that was not
            // waited for and has none has only just been started.
            let alone = !self.has_group()
                || rustix::process::kill_process_group(self.leader, signal)
                    == Err(rustix::io::Errno::SRCH);
            if alone && self.end.is_none() {
                let _ = match &self.handle {
                    Some(leader) => rustix::process::pidfd_send_signal(leader, signal),
                    None => rustix::process::kill_process(self.leader, signal),
                };
            }
        };
        send(signal);
        if signal == Signal::TERM {
            // One that is stopped would not see it.
            send(Signal::CONT);
        }
    }

    /// Ends it, in the given manner or the rougher one already chosen; but waits for
    /// permission first, if that is wanted: then the request is to be told.
    pub(crate) fn request_end(
        &mut self,
        how: StopMode,
        reason: EndReason,
        buffer: &SpawnBuffer,
        now: Instant,
    ) -> Option<ProcessEvent> {
        if self.end.is_none() {
            // What is done before the end is permitted may end it already, or make it
            // fail, as a client does that is taken off its MPS server.
            self.reason.get_or_insert(reason);
        }
        match self.held {
            Some(before) if how <= before => None,
            None if self.hold_end && self.stopped.is_none() && self.end.is_none() => {
                self.held = Some(how);
                self.deadline = now.checked_add(HOLD);
                Some(ProcessEvent::Ending { task: self.task, leader: number(self.leader) })
            }
            _ => {
                self.begin_end(how, buffer, now);
                None
            }
        }
    }

    /// Permits its end. Whether it was waiting for that.
    pub(crate) fn proceed(&mut self, buffer: &SpawnBuffer, now: Instant) -> bool {
        let held = self.held.take();
        if let Some(how) = held {
            self.begin_end(how, buffer, now);
        }
        held.is_some()
    }

    fn begin_end(&mut self, how: StopMode, buffer: &SpawnBuffer, now: Instant) {
        if self.end.is_some() {
            // It came to its end by itself; only what it left behind is there.
            if how == StopMode::Kill && self.stopped != Some(StopMode::Kill) {
                self.stopped = Some(StopMode::Kill);
                self.deadline = Some(now);
            }
            return;
        }
        self.held = None;
        if self.stopped >= Some(how) {
            return;
        }
        self.stopped = Some(how);
        match how {
            StopMode::Terminate => {
                self.signal(Signal::TERM, buffer);
                self.deadline = now.checked_add(self.grace);
            }
            StopMode::Kill => {
                self.signal(Signal::KILL, buffer);
                self.deadline = None;
            }
        }
    }

    pub(crate) fn leader_ended(&mut self, end: ProcessEnd) {
        self.end = Some(end);
        self.handle = None;
        self.held = None;
        self.deadline = None;
    }

    /// Whether anybody is left in its process group.
    pub(crate) fn group_exists(&self) -> bool {
        self.has_group()
            && rustix::process::test_kill_process_group(self.leader) != Err(rustix::io::Errno::SRCH)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match (self.reason, self.end) {
            // It was not sent a signal yet.
            (_, Some(ProcessEnd::Exited(0))) if self.stopped.is_none() => Outcome::Succeeded,
            (Some(EndReason::TimeLimit), _) => Outcome::TimedOut,
            (Some(EndReason::Asked), _) | (_, None) => Outcome::Interrupted,
            (_, Some(ProcessEnd::Exited(0))) => Outcome::Succeeded,
            (_, Some(ProcessEnd::Exited(code))) => Outcome::Failed { code },
            (_, Some(ProcessEnd::Signaled(signal))) => Outcome::Killed { signal },
            (_, Some(ProcessEnd::Unseen)) => Outcome::Failed { code: 1 },
        }
    }

    /// What there is to say of its outcome.
    pub(crate) fn message(&self) -> Option<String> {
        (self.end == Some(ProcessEnd::Unseen) && self.reason.is_none())
            .then(|| "nobody could see how it ended".to_owned())
    }
}
