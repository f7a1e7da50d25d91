//! Everything that a scheduler process decides, and nothing that it does.
//!
//! ```text
//!  Input ──▶ Engine::handle ──▶ Actions
//!            ├ core::step    who runs where, and when
//!            ├ memory        what a task will need, why an attempt ended
//!            ├ other_runs    what is left to other processes on this machine
//!            ├ metrics       what tasks print of themselves
//!            ├ time_budget   what can still be done in the time that is left
//!            ├ backlog       which tasks wait in the store only
//!            └ outbox        what may be told already
//! ```
//!
//! Whatever happens outside is an [`Input`]: tasks have arrived, a process has ended,
//! the driver has answered, the journal has committed, somebody pressed Ctrl-C. What
//! is to be done about it is a list of [`Action`]s: start this, stop that, write this
//! down, tell that. Some actions are questions (what was learned of this command, what
//! did it write last); their answers are inputs.
//!
//! What it promises:
//!
//! - It has no descriptor, thread, file or clock: the same inputs at the same times give
//!   the same actions. It is never re-entered, and never waits for an answer: other
//!   inputs may come first.
//! - Tasks of several runs share the devices by one scheduler.
//! - The start and the end of an attempt are told only when the journal has them, unless
//!   it takes too long.
//! - Whatever ends a run before its time, every task that arrived was sent to the
//!   journal before it was started.
//!
//! It never starts a process, reads a file or prints.

mod action;
mod arrivals;
mod attempts;
mod backlog;
mod control;
mod engine;
mod held;
mod input;
mod lines;
mod memory;
mod metrics;
mod mps;
mod other_runs;
mod outbox;
mod run;
mod stopping;
mod task;
mod time_budget;

pub use action::{Action, LogTail, MpsAction, MpsShare, StartAttempt};
pub use engine::{ClockReading, DeviceInfo, Engine, EngineSettings, MpsSettings, UseLimit};
pub use input::{
    DeviceView, Input, MemberView, MpsInput, NewRunInput, OtherRun, Owner, ProcessView, StopSignal,
    TimeBudget,
};
pub use memory::{Forecast, LearnedPeaks, OomSigns, OomSignsError, draft_of, models, models_named};
pub use task::{first_request, own_log, run_log};

pub use packhorse_model::{
    AttemptEnd, LeasedDevice, OutputMode, ProcessEvent, StopMode, StoredTask,
};
