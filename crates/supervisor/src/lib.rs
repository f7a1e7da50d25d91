//! The supervisor starts, watches, signals and reaps processes, and keeps their
//! logs.
//!
//! ```text
//!  start(Job) ──────▶ ┌──────────── one epoll descriptor ────────────┐
//!  stop(task, how) ─▶ │ pidfds of processes · log pipes · one timer  │ ──▶ drain() ──▶ ProcessEvent
//!  adopt(process) ──▶ └───────────────── AsFd ───────────────────────┘
//! ```
//!
//! The program that it lives in waits until the descriptor is readable, in
//! whatever loop it has, and calls [`Supervisor::drain`], which never blocks.
//!
//! What it promises:
//!
//! - An attempt has ended only when its whole process tree is gone. What its
//!   first process left behind is terminated, then killed.
//! - It reaps and ends only what it started, and the orphans of that. Other
//!   children of the program, its signal handlers and its signal mask are not
//!   touched. [`Children`] says which orphans it takes for its own.
//! - A signal that a terminal sends to the program's process group never reaches
//!   an attempt.
//! - Output is read as it comes, in pieces, and goes to the attempt's log; a
//!   task that writes a gigabyte neither blocks the others nor grows our memory.
//!   Lines of metrics in it are told, before the attempt's end at the latest.
//! - Nothing here polls. With no output, no exit and no time limit due, nothing
//!   wakes up.
//! - Whatever goes wrong with one attempt is that attempt's outcome, or a
//!   [`ProcessEvent::Trouble`](packhorse_model::ProcessEvent::Trouble); the others go on.
//! - An attempt of a Python task that wants modules preloaded is forked from a Python
//!   that has imported them, and becomes our child: see `preload`.
//!
//! What it never does: decide what runs, handle signals, or print.
//!
//! It needs Linux 5.4 or newer, for pidfds.

mod adopt;
mod argv;
mod attempt;
mod deadlines;
mod deferred;
mod descriptor_limit;
mod drain;
mod environment;
mod exit;
mod job;
mod log;
mod metric_scanner;
mod own_log;
mod pipes;
mod preload;
mod process_tree;
mod programs;
mod settle;
mod short_slice;
mod signals;
mod slot_outputs;
mod spawn;
mod start;
mod supervisor;

pub use adopt::AdoptedProcess;
pub use deferred::StartResult;
pub use job::Job;
pub use log::LogReader;
pub use own_log::{find_log, is_system_path};
pub use process_tree::{end_leftovers, processes_of_attempt};
pub use short_slice::request_short_slice;
pub use signals::SignalMask;
pub use supervisor::{Children, EndNotice, Supervisor, SupervisorSettings};
