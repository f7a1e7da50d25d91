//! A virtual clock around the scheduler.
//!
//! ```text
//!   SimulatedTask (what the scheduler is told,    ─┐
//!   and what the task will really do)              │
//!   other events at given times (other processes  ─┤
//!   on a device, lost devices)                     ▼
//!                  EventQueue ──▶ core's step ──▶ effects ──▶ History
//!                      ▲                             │
//!                      └── memory growth and end ────┘
//!                          of started attempts
//! ```
//!
//! [`Simulation`] runs tasks that take as long and grow as large as their
//! [`TaskBehaviour`] says, on the same [`step`](packhorse_core::step) that real runs
//! use. Memory is physical: an attempt that grows past what a device has dies, as it
//! would on a real one. On top of it, [`Plan`] says what would run where and when, and
//! [`Gantt`] draws it.
//!
//! The same input gives the same output: nothing here reads a clock, a file or any
//! other state of the system.

mod axis;
mod event_queue;
mod gantt;
mod history;
mod plan;
mod simulation;
mod task;

pub use gantt::{Gantt, Glyphs};
pub use history::{History, SimulatedAttempt};
pub use plan::{DurationGuess, Plan, PlanBar, PlanTask};
pub use simulation::Simulation;
pub use task::{MemoryStep, SimulatedTask, TaskBehaviour, plain_submission};
