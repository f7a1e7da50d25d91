//! Attempts that could not be started for want of descriptors, processes or
//! memory, and are tried again when another one ends.

use std::path::PathBuf;
use std::time::Duration;

use packhorse_model::{Command, CoreId, Outcome, TaskId};

use crate::start::Failure;
use crate::{Ended, Hands, Happening, Job};

/// What [`Hands::start`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It runs.
    Running,
    /// The machine is short of something; [`Happening::Started`] tells when it
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
    environment: Vec<(&'static str, String)>,
    cores: Vec<CoreId>,
    time_limit: Option<Duration>,
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
        }
    }

    fn ended(&self, outcome: Outcome, message: Option<String>) -> Happening {
        Happening::Ended(Ended {
            task: self.task,
            attempt: self.attempt,
            outcome,
            message,
            took: Duration::ZERO,
        })
    }
}

impl Hands {
    /// Starts an attempt, or says why not.
    pub fn start(&mut self, job: Job<'_>) -> Start {
        match self.try_start(job) {
            Ok(()) => Start::Running,
            // Whatever ends gives something back.
            Err(Failure::Later(_)) if self.running() > 0 => {
                self.deferred.push_back(Deferred::new(job));
                Start::Later
            }
            Err(Failure::Later(message) | Failure::Final(message)) => {
                let ended = Deferred::new(job).ended(Outcome::NotStarted, Some(message));
                self.ready.push(ended);
                Start::Failed
            }
        }
    }

    /// Tries again what could not be started.
    pub(crate) fn start_deferred(&mut self, happenings: &mut Vec<Happening>) {
        while let Some(deferred) = self.deferred.pop_front() {
            match self.try_start(deferred.job()) {
                Ok(()) => happenings.push(Happening::Started(deferred.task)),
                Err(Failure::Later(_)) if self.running() > 0 => {
                    self.deferred.push_front(deferred);
                    return;
                }
                Err(Failure::Later(message) | Failure::Final(message)) => {
                    happenings.push(deferred.ended(Outcome::NotStarted, Some(message)));
                }
            }
        }
    }

    /// Takes back what waits to be started, of one task or of all.
    pub(crate) fn stop_deferred(&mut self, task: Option<TaskId>) {
        let (stopped, kept) = std::mem::take(&mut self.deferred)
            .into_iter()
            .partition::<Vec<_>, _>(|deferred| task.is_none_or(|task| task == deferred.task));
        self.deferred = kept.into();
        for deferred in stopped {
            self.ready.push(deferred.ended(Outcome::Interrupted, None));
        }
    }
}
