//! A virtual clock around the scheduler.
//!
//! [`Plan`] says what would run where and when, by the same
//! [`step`](packhorse_core::step) that real runs use, and [`Gantt`] draws it.
//!
//! The same input gives the same output: nothing here reads a clock, a file or any
//! other state of the system.

mod axis;
mod gantt;
mod plan;

pub use gantt::{Gantt, Glyphs};
pub use plan::{DurationGuess, Plan, PlanBar, PlanStart, PlanTask};
