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
//! Nothing here happens on devices that no driver knows.

mod attribution;
mod awake;
mod blame;
mod choice;
mod evidence;
mod family;
mod growth;
mod health;
mod judge;
mod lingering;
mod monitor;
mod needs;
mod oom;
mod outgrown;
mod pace;
mod probing;
mod rest;
mod shape;
mod tenant;
mod track;

pub use family::LearnedPeaks;
pub use needs::{Forecast, draft_of, models, models_named};
pub use oom::{OomSigns, OomSignsError};

pub(crate) use family::Kind;
pub(crate) use judge::Judgement;
pub(crate) use monitor::{FRESH, Monitor};
pub(crate) use needs::{Needs, VramNeed, VramUse, models_together};
