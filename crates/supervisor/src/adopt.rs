//! Processes that we did not start, and watch all the same.

use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use packhorse_model::{OutputMode, TaskId};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::Supervisor;
use crate::attempt::{LeaderOrigin, RunningAttempt};
use crate::process_tree::to_pid;
use crate::spawn::Child;
use crate::supervisor::TOKEN_LEADER;
use packhorse_proc::ProcEntry;

/// The running leader of an attempt that another supervisor started.
#[derive(Clone, Copy, Debug)]
pub struct AdoptedProcess {
    pub task: TaskId,
    pub attempt: u32,
    /// The id of its first process.
    pub leader: u32,
    /// When that was started, as in [`packhorse_proc::ProcStat`]: another process of
    /// the same number is not adopted. `None`: the number is certain to mean it.
    pub start_time: Option<u64>,
    /// How long it has run already.
    pub ran_before: Duration,
    /// How long it may still take.
    pub time_limit: Option<Duration>,
    /// How long it has between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Ask before the first signal that ends it: see
    /// [`crate::ProcessEvent::Ending`].
    pub hold_end: bool,
}

impl Supervisor {
    /// Watches a running process that we did not start. From here on it is an
    /// attempt like any other: its end is reported, and it can be stopped together
    /// with its process group; what it leaves behind is known by the mark in its
    /// environment, whoever it descends from. If it is our child, it is reaped.
    ///
    /// How it ended can be told if it is our child, if nobody has reaped it when we
    /// look, or by Linux 6.15 and newer; else its outcome is a failure with a
    /// message that says so.
    ///
    /// The error is of the kind `NotFound` if there is no such process (any more).
    pub fn adopt(&mut self, process: AdoptedProcess) -> io::Result<()> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "there is no such process");
        if self.by_task.contains_key(&process.task) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the task is running already",
            ));
        }
        let leader = to_pid(process.leader).ok_or_else(gone)?;
        let handle = match pidfd_open(leader, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH | Errno::INVAL) => return Err(gone()),
            Err(error) => return Err(error.into()),
        };
        // Asked when the handle was had: both are of the same process.
        let stat = ProcEntry::of(process.leader).stat().map_err(|_| gone())?;
        if process.start_time.is_some_and(|time| time != stat.start_time) {
            return Err(gone());
        }
        let slot = self.take_slot(OutputMode::Inherit)?;
        if let Err(error) = self.watch(handle.as_fd(), TOKEN_LEADER | slot as u64) {
            self.free.insert(slot);
            return Err(error);
        }
        let origin = LeaderOrigin::Adopted {
            leads_group: packhorse_proc::group_of(leader) == Some(leader),
            start_time: stat.start_time,
        };
        let leader = Child { pid: leader, handle: Some(handle) };
        let mut attempt = RunningAttempt::new(process.task, process.attempt, leader, origin);
        attempt.ran_before = process.ran_before;
        attempt.grace = process.grace;
        attempt.hold_end = process.hold_end;
        let limit = process.time_limit;
        attempt.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.insert_attempt(slot, attempt);
        self.set_timer();
        Ok(())
    }
}
