//! GPU memory: what tasks are promised, what they are seen to hold, what that teaches,
//! and what becomes of those that run out of it.
//!
//! ```text
//!   task ──▶ needs ──▶ scheduler: promises
//!              ▲                    │ start
//!              │ learned            ▼
//!  journal ◀── peaks ◀── tracks ◀── samples of the devices, their health
//!                          │
//!                          └─▶ scheduler: observed, outside, out of memory
//! ```
//!
//! Nothing here happens in a run that counts no memory on devices that no driver knows.

mod attribution;
mod awake;
mod health;
mod judge;
mod lingering;
mod monitor;
mod needs;
mod oom;
mod pace;
mod probing;
mod shape;
mod track;

pub use needs::{forecast, models, models_named};
pub use oom::{OomSigns, OomSignsError};

pub(crate) use judge::Judgement;
pub(crate) use monitor::Monitor;
pub(crate) use needs::{Needs, VramNeed, VramUse, signature_of};
pub(crate) use shape::Shape;
