//! GPU memory: what tasks are promised, what they are seen to hold, what that
//! teaches, and what becomes of those that run out of it.
//!
//! ```text
//!   task ──▶ needs ──▶ core: promises
//!              ▲                │ start
//!              │ learned        ▼
//!   store ◀── peaks ◀── tracks ◀── watch: samples, health
//!                          │
//!                          └─▶ core: observed, outside, out of memory
//! ```
//!
//! Nothing here happens in a run that counts no memory on devices that no driver
//! knows.

mod awake;
mod book;
mod health;
mod judge;
mod lingering;
mod needs;
mod oom;
mod pace;
mod probing;
mod shape;
mod track;
mod watching;

pub use oom::{Signs, SignsError};
pub use track::Seen;

pub(crate) use judge::{Judgement, Pending};
pub(crate) use needs::{Needs, Wants, foresee};
pub(crate) use oom::tail;
pub(crate) use watching::Watching;
