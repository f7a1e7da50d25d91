//! Who starts, watches and ends processes for the engine.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use packhorse_engine::StartAttempt;
use packhorse_gpu::mps::Daemon;
use packhorse_model::{ProcessEvent, StopMode, TaskId};
use packhorse_supervisor::{AdoptedProcess, Job, StartResult, Supervisor};

use crate::environment::AttemptEnvironment;

/// Starts, watches and ends attempts: on this machine, or somewhere else.
///
/// As a descriptor it is readable when there is something to drain. What only concerns
/// processes of this machine does nothing unless it is written.
pub trait Executor: AsFd {
    /// Starts an attempt: [`ProcessEvent::Started`] is returned, or drained later, and in
    /// any case [`ProcessEvent::Ended`] follows. `daemon` is the MPS daemon that it uses.
    fn start(&mut self, start: StartAttempt, daemon: Option<&Daemon>) -> Option<ProcessEvent>;

    /// Ends the attempt of a task.
    fn stop(&mut self, task: TaskId, mode: StopMode);

    /// Goes on with ending an attempt that waits since [`ProcessEvent::Ending`].
    fn proceed(&mut self, _task: TaskId) {}

    /// Gives up on an attempt that outlives being killed.
    fn abandon(&mut self, task: TaskId);

    /// Watches an attempt that is running already.
    fn adopt(&mut self, _process: AdoptedProcess) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Adds what has happened to `events`. Never waits. Called when the descriptor is
    /// readable, and when a child of this program has ended.
    fn drain(&mut self, events: &mut Vec<ProcessEvent>) -> io::Result<()>;

    /// The task that a process belongs to, if it is one of ours.
    fn owner_of(&self, _pid: u32) -> Option<TaskId> {
        None
    }

    /// Whether the first process of a task's attempt is still there.
    fn is_led(&self, _task: TaskId) -> bool {
        true
    }

    /// The first process of each attempt, and how long it has run.
    fn leaders(&self) -> Vec<(u32, Duration)> {
        Vec::new()
    }

    /// A child of this program that belongs to no attempt is left alone.
    fn spare(&mut self, _pid: u32) {}

    /// Ends what is left of descendants that belong to no attempt.
    fn finish(&mut self) {}
}

/// Runs attempts on this machine.
pub(crate) struct LocalExecutor {
    pub(crate) supervisor: Supervisor,
    pub(crate) environment: AttemptEnvironment,
    /// Whether attempts are asked before they are ended.
    pub(crate) hold_end: bool,
}

impl AsFd for LocalExecutor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.supervisor.as_fd()
    }
}

impl Executor for LocalExecutor {
    fn start(&mut self, start: StartAttempt, daemon: Option<&Daemon>) -> Option<ProcessEvent> {
        let (task, attempt) = (start.task, start.attempt);
        let started = self.supervisor.start(Job {
            task,
            attempt,
            environment: self.environment.variables(&start, daemon),
            grace: start.grace(),
            command: start.command,
            preload: start.spec.preload.clone(),
            folder: start.spec.folder.clone(),
            cores: start.placement.cores,
            time_limit: start.time_limit,
            output: start.output,
            log: start.log,
            own_log: start.own_log,
            hold_end: self.hold_end,
        });
        (started == StartResult::Running).then_some(ProcessEvent::Started { task, attempt })
    }

    fn stop(&mut self, task: TaskId, mode: StopMode) {
        self.supervisor.stop(task, mode);
    }

    fn proceed(&mut self, task: TaskId) {
        self.supervisor.proceed(task);
    }

    fn abandon(&mut self, task: TaskId) {
        self.supervisor.abandon(task);
    }

    fn adopt(&mut self, process: AdoptedProcess) -> io::Result<()> {
        self.supervisor.adopt(process)
    }

    fn drain(&mut self, events: &mut Vec<ProcessEvent>) -> io::Result<()> {
        self.supervisor.drain(events)
    }

    fn owner_of(&self, pid: u32) -> Option<TaskId> {
        self.supervisor.owner_of(pid)
    }

    fn is_led(&self, task: TaskId) -> bool {
        self.supervisor.is_led(task)
    }

    fn leaders(&self) -> Vec<(u32, Duration)> {
        self.supervisor.leaders().collect()
    }

    fn spare(&mut self, pid: u32) {
        self.supervisor.spare(pid);
    }

    fn finish(&mut self) {
        self.supervisor.finish();
    }
}
