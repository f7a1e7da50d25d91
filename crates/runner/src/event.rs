use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_hands::{Signal, Stream};
use packhorse_model::{Command, Exit, Outcome, RunId, TaskId};

use crate::Seen;

/// What happened in a run, for whoever shows it.
///
/// The end of an attempt is told only once the store has it: what was seen to
/// be finished is not lost, whatever happens next.
#[derive(Clone, Debug)]
pub enum Event {
    /// The run begins.
    RunStarted {
        /// Which one.
        run: RunId,
        /// The names of its devices, as the person wrote them.
        devices: Vec<String>,
        /// How many run at a time, where that is limited.
        slots: Option<u32>,
        /// Whether it goes on with an earlier session's work.
        resumed: bool,
    },
    /// More input was read.
    Known {
        /// How many tasks there are by now.
        tasks: u128,
        /// Whether there may be more.
        complete: bool,
    },
    /// An attempt was started.
    Started {
        /// The task.
        task: TaskId,
        /// Which attempt, from 1.
        attempt: u32,
        /// What it executes.
        command: Arc<Command>,
        /// The names of its devices, empty without any.
        devices: Arc<[String]>,
        /// When.
        at: Instant,
    },
    /// A task wrote something.
    Output {
        /// The task.
        task: TaskId,
        /// Where it wrote.
        stream: Stream,
        /// What, in a piece of any size.
        bytes: Vec<u8>,
    },
    /// An attempt ended badly, and another follows.
    Retrying {
        /// The task.
        task: TaskId,
        /// Which attempt it was.
        attempt: u32,
        /// How it came out.
        outcome: Outcome,
        /// What was made of it, if it is not a plain retry.
        note: Option<String>,
        /// How many are left.
        left: u32,
    },
    /// What an attempt was seen to need of its devices.
    Measured {
        /// The task.
        task: TaskId,
        /// Which attempt; 0 is a probe.
        attempt: u32,
        /// What was seen.
        seen: Seen,
    },
    /// A task is settled.
    Finished(Finished),
    /// Something to know that ends nothing.
    Warning {
        /// The task it concerns, if it is one.
        task: Option<TaskId>,
        /// What it is.
        message: String,
    },
    /// The person wants it to stop.
    Stopping {
        /// How far.
        phase: Phase,
        /// How many attempts are alive.
        running: usize,
    },
    /// The terminal has another size.
    Resized,
    /// The run is over.
    RunEnded(Summary),
}

/// A task's end.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The task.
    pub task: TaskId,
    /// How many attempts it took.
    pub attempts: u32,
    /// How it came out.
    pub outcome: Outcome,
    /// What it executed.
    pub command: Arc<Command>,
    /// Why it could not be started, if it could not.
    pub message: Option<String>,
    /// How long the last attempt took.
    pub took: Duration,
    /// The folder of the logs, if the last attempt may have written one.
    pub logs: Option<Arc<Path>>,
}

impl Finished {
    /// Where the last attempt's output would be, if it wrote any.
    pub fn log(&self) -> Option<PathBuf> {
        let logs = self.logs.as_ref()?;
        Some(packhorse_hands::log_path(logs, self.task, self.attempts))
    }
}

/// How far a run has been stopped. Each outranks those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It goes on.
    Running,
    /// Nothing new is started; what runs may finish.
    Draining,
    /// What runs has been asked to end.
    Terminating,
    /// What runs is killed.
    Killing,
}

impl Phase {
    /// What a signal makes of it. Ctrl-C goes one step on, Ctrl-\ all the way; the
    /// others go at least as far as asking what runs to end.
    #[must_use]
    pub fn after(self, signal: Signal) -> Self {
        let next = match self {
            Self::Running => Self::Draining,
            Self::Draining => Self::Terminating,
            Self::Terminating | Self::Killing => Self::Killing,
        };
        match signal {
            Signal::Interrupt => next,
            Signal::Terminate | Signal::Hangup => next.max(Self::Terminating),
            Signal::Quit => Self::Killing,
            Signal::Resize => self,
        }
    }
}

/// How a run came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Which one.
    pub run: RunId,
    /// Tasks of this session that succeeded.
    pub succeeded: u64,
    /// Tasks of this session that did not.
    pub failed: u64,
    /// Tasks that are not settled: never started, or ended by the person.
    pub left: u128,
    /// Lines of the input that were no commands.
    pub rejected: u64,
    /// From start to end.
    pub took: Duration,
    /// Whether all of it is in the store.
    pub stored: bool,
    /// What to tell the caller.
    pub exit: Exit,
}

/// What can be asked about the tasks that wait.
pub trait Line {
    /// Why the first in line waits, in words; nothing if nobody waits.
    fn why(&self) -> Option<String>;
}

/// Shows a run.
pub trait Reporter {
    /// Takes note of something.
    fn event(&mut self, event: &Event);

    /// Shows what it took note of. Called once a turn of the loop; returns when
    /// it wants to be called again though nothing happens. `line` can tell why
    /// the first in line waits, for those who care to ask.
    fn show(&mut self, now: Instant, line: &dyn Line) -> Option<Instant>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_goes_one_step_on_each_time() {
        let mut phase = Phase::Running;
        for wanted in [
            Phase::Draining,
            Phase::Terminating,
            Phase::Killing,
            Phase::Killing,
        ] {
            phase = phase.after(Signal::Interrupt);
            assert_eq!(phase, wanted);
        }
    }

    #[test]
    fn sigterm_does_not_wait_for_what_runs() {
        assert_eq!(Phase::Running.after(Signal::Terminate), Phase::Terminating);
        assert_eq!(Phase::Draining.after(Signal::Hangup), Phase::Terminating);
        assert_eq!(Phase::Terminating.after(Signal::Terminate), Phase::Killing);
    }
}
