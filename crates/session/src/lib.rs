//! From settings to a running engine and back: what every front end needs.
//!
//! ```text
//!  Settings: arguments ▸ environment ▸ packhorse.toml ▸ the user's config ▸ defaults
//!      │
//!      ▼
//!  Launch::prepare ── Devices ──▶ Engine
//!      │                            ▲ │
//!      ▼                      Input │ ▼ Action
//!  the loop ── Executor · Journal · TaskSource · Observer
//! ```
//!
//! - [`settings`] finds what was set where, and [`variables`] lists every environment
//!   variable there is.
//! - [`Launch`] turns a `RunSpec` into a run; [`Resume`] goes on with one. A [`RunPart`] is
//!   what runs here of one that is kept elsewhere.
//! - Three traits are where something new goes: a door is a [`TaskSource`], another
//!   place to run processes is an [`Executor`], and whoever shows or follows a run is an
//!   [`Observer`]. The fourth, [`Journal`], keeps the loop apart from the store, which is
//!   what [`Launch`] uses unless it runs a part.
//!
//! It never prints: what has to be said before a run has begun goes to the caller's
//! [`Notices`], and everything after that is an event. It knows nothing of command lines.

mod attempt_log;
mod consume;
mod control;
mod core_parts;
mod devices;
mod end_with;
mod environment;
mod error;
mod executor;
mod experiments;
mod file_contents;
mod git;
mod grid;
mod ignored_process;
mod input_files;
mod journal;
mod launch;
mod leaders;
mod log_tail;
mod lookup;
mod marked_run;
mod marker_file;
mod markers;
mod mps;
mod observer;
mod own_paths;
mod plan;
mod repetition_config;
mod repetition_fit;
mod results;
mod resume;
mod run_part;
mod sampling;
mod scheduler_log;
mod series;
mod session;
pub mod settings;
mod signals;
mod source;
mod stop;
mod sweep;
mod task_checks;
mod topology;
mod user_names;
pub mod variables;

pub use attempt_log::AttemptLog;
pub use consume::{ConsumedFile, consume_leftovers, consuming};
pub use control::ask_why;
pub use devices::{Devices, ask_driver, has_driver, has_mps, is_on_path, scheduler_settings};
pub use end_with::NamedProcess;
pub use error::SessionError;
pub use executor::Executor;
pub use experiments::{
    changed_source, experiments_source, open_experiments, read_experiments, repetition_states,
    time_stamp, write_back, write_back_into,
};
pub use grid::{
    TestState, add_place, grid_language, grid_source, read_grid, test_states, tidy_results,
};
pub use ignored_process::IgnoredProcess;
pub use input_files::{input_file, open_again, open_inputs};
pub use journal::Journal;
pub use launch::Launch;
pub use lookup::{
    can_go_on, check_can_go_on, each_task, find_run, find_task, stored_run, stored_task,
};
pub use marked_run::{Occupancy, RunningTest, RunningTests};
pub use observer::{Observer, QueueView};
pub use own_paths::{OwnPaths, SharedPath};
pub use plan::{DevicesNow, PlannedTasks, plan_submissions, read_all};
pub use repetition_fit::{SharedRoom, fit_here, say_what_each_gets, warn_of_limits};
pub use results::{
    TestOutcome, TestResult, folder_results, is_more_better, run_results, task_result,
};
pub use resume::{Resume, WhichTasks};
pub use run_part::{PartTime, RunPart};
pub use scheduler_log::SchedulerLog;
pub use series::MetricSeries;
pub use signals::{
    ProgramSignal, Signals, end_on_signals, has_met_file_size_limit, survive_file_size_limit,
};
pub use source::{Generator, InputStream, MadeTasks, NextRead, ReadTasks, SourceRead, TaskSource};
pub use stop::{StoppedRun, stop_run};
pub use sweep::{build_sweep, sweep_source};
pub use task_checks::TaskChecks;

pub(crate) use error::system;

/// Where to say what has to be said before a run has begun.
pub type Notices<'a> = dyn FnMut(&str) + 'a;
