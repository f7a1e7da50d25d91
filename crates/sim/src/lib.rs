//! A virtual clock around the scheduler.
//!
//! ```text
//!   Work (what the scheduler is told, and what is true) ─┐
//!   other events at set times (strangers, lost devices) ─┤
//!                                                        ▼
//!                       agenda ──▶ core's step ──▶ effects ──▶ History
//!                         ▲                           │
//!                         └── growth and end of what ─┘
//!                             was started
//! ```
//!
//! [`Simulation`] runs tasks that last as long and grow as large as their
//! [`Truth`] says, on the same [`step`](packhorse_core::step) that the real loop
//! uses. Memory is physical: who grows past what a device has dies, as he would
//! on a real one. On top of it:
//!
//! - [`Plan`]: what would run where and when, and [`Gantt`], a chart of it;
//! - [`Trace`]: a production cluster's tasks, replayed to measure placement;
//! - [`Crowd`] and [`original`]: tasks with random peaks, and how the
//!   program that Packhorse's third door comes from would run them.
//!
//! The same input gives the same output: nothing here asks a clock, a file or
//! the system for anything.

mod agenda;
mod axis;
mod crowd;
mod gantt;
mod history;
pub mod original;
mod plan;
mod random;
mod replay;
mod simulation;
mod trace;
mod truth;

pub use crowd::{Crowd, Member};
pub use gantt::{Gantt, Glyphs, Names};
pub use history::{History, Ran};
pub use plan::{Bar, Guess, Job, Plan};
pub use replay::{Mark, Replay, replay};
pub use simulation::Simulation;
pub use trace::{Trace, TraceError};
pub use truth::{Hold, Truth, Work};
