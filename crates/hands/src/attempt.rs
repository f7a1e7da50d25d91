//! One attempt while it lives.

use std::path::Path;
use std::time::{Duration, Instant};

use packhorse_model::{Command, CoreId, Outcome, TaskId};
use rustix::process::{Pid, Signal, WaitStatus};

use crate::family::{self, MARK_ATTEMPT, MARK_TASK};
use crate::log::Log;
use crate::pipes::Pipes;

/// What to start.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The task it is an attempt of.
    pub task: TaskId,
    /// Which attempt, from 1; 0 is a probe.
    pub attempt: u32,
    /// What to execute.
    pub command: &'a Command,
    /// The folder it runs in. `None`: ours.
    pub folder: Option<&'a Path>,
    /// Variables of its own, on top of those that all get.
    pub environment: &'a [(&'static str, String)],
    /// The cores it is pinned to. Empty: wherever we may run.
    pub cores: &'a [CoreId],
    /// How long it may take.
    pub time_limit: Option<Duration>,
}

/// How to end a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// SIGTERM, and SIGKILL when the grace is over.
    Terminate,
    /// SIGKILL, at once.
    Kill,
}

/// Why we ended it ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    TimeLimit,
    Asked,
}

/// A started attempt whose process tree is not yet known to be empty.
pub(crate) struct Attempt {
    pub(crate) task: TaskId,
    pub(crate) number: u32,
    /// The first process, which leads the group.
    pub(crate) leader: Pid,
    pub(crate) log: Log,
    pub(crate) started: Instant,
    /// When to act on it unasked: the time limit, or the end of the grace.
    pub(crate) deadline: Option<Instant>,
    pub(crate) cause: Option<Cause>,
    pub(crate) stopped: Option<Stop>,
    /// How the leader ended, once it has.
    pub(crate) status: Option<WaitStatus>,
    /// How many processes were found that outlived the leader.
    pub(crate) stragglers: usize,
    /// Those that have been asked to end.
    pub(crate) asked: Vec<Pid>,
    /// They have been killed.
    pub(crate) stragglers_killed: bool,
    /// They outlived SIGKILL as well, or may not be killed by us.
    pub(crate) given_up: bool,
}

impl Attempt {
    /// One that has just been started.
    pub(crate) fn new(job: &Job<'_>, leader: Pid, started: Instant) -> Self {
        Self {
            task: job.task,
            number: job.attempt,
            leader,
            log: Log::new(job.task, job.attempt),
            started,
            deadline: job.time_limit.map(|limit| started + limit),
            cause: None,
            stopped: None,
            status: None,
            stragglers: 0,
            asked: Vec::new(),
            stragglers_killed: false,
            given_up: false,
        }
    }

    /// The variables that mark its processes.
    pub(crate) fn marks(&self) -> Vec<Vec<u8>> {
        vec![
            format!("{MARK_TASK}={}", self.task).into_bytes(),
            format!("{MARK_ATTEMPT}={}", self.number).into_bytes(),
        ]
    }

    /// Signals the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // A group that is gone is what we want. But a leader that was not waited
        // for and has none has only just been started.
        let sent = rustix::process::kill_process_group(self.leader, signal);
        if sent == Err(rustix::io::Errno::SRCH) && self.status.is_none() {
            let _ = rustix::process::kill_process(self.leader, signal);
        }
        if signal == Signal::TERM {
            // One that is stopped would not see it.
            let _ = rustix::process::kill_process_group(self.leader, Signal::CONT);
        }
    }

    /// Ends it, in the given manner or the rougher one already chosen.
    pub(crate) fn stop(&mut self, how: Stop, cause: Cause, grace: Duration, now: Instant) {
        if self.status.is_some() {
            // It came to its end by itself; only what it left behind is there.
            if how == Stop::Kill && self.stopped != Some(Stop::Kill) {
                self.deadline = Some(now);
            }
            return;
        }
        self.cause.get_or_insert(cause);
        if self.stopped >= Some(how) {
            return;
        }
        self.stopped = Some(how);
        match how {
            Stop::Terminate => {
                self.signal(Signal::TERM);
                self.deadline = Some(now + grace);
            }
            Stop::Kill => {
                self.signal(Signal::KILL);
                self.deadline = None;
            }
        }
    }

    /// The processes that outlived the leader, among our `orphans`. If it is the
    /// only attempt, all of them are.
    pub(crate) fn left_behind(
        &self,
        orphans: &[Pid],
        pipes: Option<&Pipes>,
        only: bool,
    ) -> Vec<Pid> {
        if orphans.is_empty() || only {
            return orphans.to_vec();
        }
        let marks = self.marks();
        let ours = |pid: Pid| {
            family::belongs(pid, self.leader, &marks)
                || pipes.is_some_and(|pipes| pipes.is_held_by(pid))
        };
        orphans.iter().copied().filter(|&pid| ours(pid)).collect()
    }

    /// Whether anybody is left in its process group.
    pub(crate) fn group_exists(&self) -> bool {
        rustix::process::test_kill_process_group(self.leader) != Err(rustix::io::Errno::SRCH)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self.cause {
            Some(Cause::TimeLimit) => return Outcome::TimedOut,
            Some(Cause::Asked) => return Outcome::Interrupted,
            None => {}
        }
        let Some(status) = self.status else {
            return Outcome::Interrupted;
        };
        match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Outcome::Succeeded,
            (_, Some(signal)) => Outcome::Killed { signal },
            (code, None) => Outcome::Failed {
                code: code.unwrap_or(1),
            },
        }
    }
}
