//! Attempts that could not be started for want of descriptors, processes or
//! memory, and are tried again when another one ends.

use std::time::Duration;

use packhorse_model::{AttemptEnd, Outcome, ProcessEvent, TaskId};

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

/// The end of an attempt that was never started.
pub(crate) fn never_started(
    task: TaskId,
    attempt: u32,
    outcome: Outcome,
    message: Option<String>,
) -> ProcessEvent {
    ProcessEvent::Ended(AttemptEnd {
        task,
        attempt,
        outcome,
        message,
        took: Duration::ZERO,
    })
}

impl Supervisor {
    /// Starts an attempt, or says why not.
    pub fn start(&mut self, job: Job) -> StartResult {
        let result = self.start_now(&job);
        if result == StartResult::Later {
            self.deferred.push_back(job);
        }
        self.set_timer();
        result
    }

    fn start_now(&mut self, job: &Job) -> StartResult {
        match self.try_start(job) {
            Ok(()) => StartResult::Running,
            // Whatever ends gives something back.
            Err(Failure::Later(_)) if self.running() > 0 => StartResult::Later,
            Err(Failure::Later(message) | Failure::Final(message)) => {
                let (outcome, message) = (Outcome::NotStarted, Some(message));
                self.ready
                    .push(never_started(job.task, job.attempt, outcome, message));
                StartResult::Failed
            }
        }
    }

    /// Tries again what could not be started.
    pub(crate) fn start_deferred(&mut self) {
        while let Some(job) = self.deferred.pop_front() {
            match self.start_now(&job) {
                StartResult::Running => self.ready.push(ProcessEvent::Started {
                    task: job.task,
                    attempt: job.attempt,
                }),
                StartResult::Later => return self.deferred.push_front(job),
                StartResult::Failed => {}
            }
        }
    }

    /// Takes back what waits to be started of a task.
    pub(crate) fn stop_deferred(&mut self, task: TaskId) {
        while let Some(at) = self.deferred.iter().position(|it| it.task == task)
            && let Some(job) = self.deferred.remove(at)
        {
            self.ready
                .push(never_started(task, job.attempt, Outcome::Interrupted, None));
        }
    }
}
