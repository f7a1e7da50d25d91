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
fn ended(job: &Job, outcome: Outcome, message: Option<String>) -> ProcessEvent {
    ProcessEvent::Ended(AttemptEnd {
        task: job.task,
        attempt: job.attempt,
        outcome,
        message,
        took: Duration::ZERO,
    })
}

impl Supervisor {
    /// Starts an attempt, or says why not.
    pub fn start(&mut self, job: Job) -> StartResult {
        let start = match self.try_start(&job) {
            Ok(()) => StartResult::Running,
            // Whatever ends gives something back.
            Err(Failure::Later(_)) if self.running() > 0 => {
                self.deferred.push_back(job);
                StartResult::Later
            }
            Err(Failure::Later(message) | Failure::Final(message)) => {
                self.ready
                    .push(ended(&job, Outcome::NotStarted, Some(message)));
                StartResult::Failed
            }
        };
        self.set_timer();
        start
    }

    /// Tries again what could not be started.
    pub(crate) fn start_deferred(&mut self, events: &mut Vec<ProcessEvent>) {
        while let Some(job) = self.deferred.pop_front() {
            match self.try_start(&job) {
                Ok(()) => events.push(ProcessEvent::Started {
                    task: job.task,
                    attempt: job.attempt,
                }),
                Err(Failure::Later(_)) if self.running() > 0 => {
                    self.deferred.push_front(job);
                    return;
                }
                Err(Failure::Later(message) | Failure::Final(message)) => {
                    events.push(ended(&job, Outcome::NotStarted, Some(message)));
                }
            }
        }
    }

    /// Takes back what waits to be started of a task.
    pub(crate) fn stop_deferred(&mut self, task: TaskId) {
        while let Some(at) = self.deferred.iter().position(|it| it.task == task)
            && let Some(job) = self.deferred.remove(at)
        {
            self.ready.push(ended(&job, Outcome::Interrupted, None));
        }
    }
}
