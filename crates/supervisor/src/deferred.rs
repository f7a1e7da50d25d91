//! Attempts that could not be started for want of descriptors, processes or
//! memory, and are tried again when another one ends.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use packhorse_model::{AttemptEnd, Command, CoreId, Outcome, OutputMode, ProcessEvent, TaskId};

use crate::start::Failure;
use crate::{Job, Supervisor};

/// What [`Supervisor::start`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartResult {
    /// It runs.
    Running,
    /// The machine is short of something; [`ProcessEvent::Started`] tells when it
    /// runs.
    Later,
    /// It cannot be started; its end is told next.
    Failed,
}

/// A [`Job`] that waits.
pub(crate) struct Deferred {
    pub(crate) task: TaskId,
    attempt: u32,
    command: Command,
    folder: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    cores: Vec<CoreId>,
    time_limit: Option<Duration>,
    grace: Duration,
    output: OutputMode,
    log: PathBuf,
    own_log: Option<PathBuf>,
    hold_end: bool,
}

impl Deferred {
    fn new(job: Job<'_>) -> Self {
        Self {
            task: job.task,
            attempt: job.attempt,
            command: job.command.clone(),
            folder: job.folder.map(Into::into),
            environment: job.environment.to_vec(),
            cores: job.cores.to_vec(),
            time_limit: job.time_limit,
            grace: job.grace,
            output: job.output,
            log: job.log.into(),
            own_log: job.own_log.map(Into::into),
            hold_end: job.hold_end,
        }
    }

    fn job(&self) -> Job<'_> {
        Job {
            task: self.task,
            attempt: self.attempt,
            command: &self.command,
            folder: self.folder.as_deref(),
            environment: &self.environment,
            cores: &self.cores,
            time_limit: self.time_limit,
            grace: self.grace,
            output: self.output,
            log: &self.log,
            own_log: self.own_log.as_deref(),
            hold_end: self.hold_end,
        }
    }

    fn ended(&self, outcome: Outcome, message: Option<String>) -> ProcessEvent {
        ProcessEvent::Ended(AttemptEnd {
            task: self.task,
            attempt: self.attempt,
            outcome,
            message,
            took: Duration::ZERO,
        })
    }
}

impl Supervisor {
    /// Starts an attempt, or says why not.
    pub fn start(&mut self, job: Job<'_>) -> StartResult {
        let start = match self.try_start(job) {
            Ok(()) => StartResult::Running,
            // Whatever ends gives something back.
            Err(Failure::Later(_)) if self.running() > 0 => {
                self.deferred.push_back(Deferred::new(job));
                StartResult::Later
            }
            Err(Failure::Later(message) | Failure::Final(message)) => {
                let ended = Deferred::new(job).ended(Outcome::NotStarted, Some(message));
                self.ready.push(ended);
                StartResult::Failed
            }
        };
        self.set_timer();
        start
    }

    /// Tries again what could not be started.
    pub(crate) fn start_deferred(&mut self, events: &mut Vec<ProcessEvent>) {
        while let Some(deferred) = self.deferred.pop_front() {
            match self.try_start(deferred.job()) {
                Ok(()) => events.push(ProcessEvent::Started {
                    task: deferred.task,
                    attempt: deferred.attempt,
                }),
                Err(Failure::Later(_)) if self.running() > 0 => {
                    self.deferred.push_front(deferred);
                    return;
                }
                Err(Failure::Later(message) | Failure::Final(message)) => {
                    events.push(deferred.ended(Outcome::NotStarted, Some(message)));
                }
            }
        }
    }

    /// Takes back what waits to be started of a task.
    pub(crate) fn stop_deferred(&mut self, task: TaskId) {
        while let Some(at) = self.deferred.iter().position(|it| it.task == task)
            && let Some(deferred) = self.deferred.remove(at)
        {
            self.ready.push(deferred.ended(Outcome::Interrupted, None));
        }
    }
}
