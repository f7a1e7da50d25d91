//! Attempts that could not be started for want of descriptors, processes or
//! memory, and are tried again when another one ends.

use std::collections::VecDeque;
use std::time::Duration;

use packhorse_model::{AttemptEnd, Outcome, ProcessEvent, TaskId};

use crate::start::Failure;
use crate::{Job, Supervisor};

/// What could not be started yet.
#[derive(Default)]
pub(crate) struct DeferredJobs {
    pub(crate) jobs: VecDeque<Job>,
    /// That there are such has been told.
    told: bool,
}

/// What [`Supervisor::start`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartResult {
    /// It runs.
    Running,
    /// The machine is short of something; [`ProcessEvent::Started`] tells when it
    /// runs.
    Later,
    /// It is to be forked from a Python that has imported its modules;
    /// [`ProcessEvent::Started`] tells when it runs.
    Waiting,
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
    ProcessEvent::Ended(AttemptEnd { task, attempt, outcome, message, took: Duration::ZERO })
}

impl Supervisor {
    /// Starts an attempt, or says why not.
    pub fn start(&mut self, job: Job) -> StartResult {
        let result = self.start_now(&job);
        if result == StartResult::Later {
            self.deferred.jobs.push_back(job);
        }
        self.set_timer();
        result
    }

    fn start_now(&mut self, job: &Job) -> StartResult {
        match self.try_start(job) {
            Ok(result) => result,
            // Whatever ends gives something back.
            Err(Failure::Later(message)) if self.running() > 0 => {
                if !std::mem::replace(&mut self.deferred.told, true) {
                    let tasks = match self.running() {
                        1 => "one task runs".to_owned(),
                        many => format!("{many} tasks run"),
                    };
                    let mut message = format!("no more than {tasks} at a time: {message}");
                    if !message.contains("\nhint: ") {
                        message += "\nhint: `ulimit -n` and `ulimit -u` show what limits them";
                    }
                    let task = job.task;
                    self.ready.push(ProcessEvent::Trouble { task, message });
                }
                StartResult::Later
            }
            Err(Failure::Later(message) | Failure::Final(message)) => {
                let (outcome, message) = (Outcome::NotStarted, Some(message));
                self.ready.push(never_started(job.task, job.attempt, outcome, message));
                StartResult::Failed
            }
        }
    }

    /// Tries again what could not be started.
    pub(crate) fn start_deferred(&mut self) {
        while let Some(job) = self.deferred.jobs.pop_front() {
            match self.start_now(&job) {
                StartResult::Running => {
                    self.ready.push(ProcessEvent::Started { task: job.task, attempt: job.attempt });
                }
                StartResult::Later => return self.deferred.jobs.push_front(job),
                StartResult::Waiting | StartResult::Failed => {}
            }
        }
    }

    /// Takes back what waits to be started of a task.
    pub(crate) fn stop_deferred(&mut self, task: TaskId) {
        while let Some(at) = self.deferred.jobs.iter().position(|it| it.task == task)
            && let Some(job) = self.deferred.jobs.remove(at)
        {
            self.ready.push(never_started(task, job.attempt, Outcome::Interrupted, None));
        }
    }
}
