//! The loop: it feeds the core with what happens, and carries out what the core
//! decides.
//!
//! ```text
//!  Input ──▶ backlog ──▶ core::step ──▶ effects ──▶ hands
//!              │  ▲          ▲                        │
//!              ▼  │          └────── happenings ◀─────┘
//!             store ◀── records
//!                                 └─▶ Event ──▶ Reporter
//! ```
//!
//! What it promises:
//!
//! - Input is read as it arrives and written to the store at once; only the part
//!   that could start soon is kept in memory.
//! - Whatever ends a run before its time, what has not run is in the store, and
//!   the next session goes on with it.
//! - The end of a task is told to the reporter only when the store has it.
//!
//! It never prints.

mod ask;
mod attempts;
mod backlog;
mod devices;
mod event;
mod feed;
mod foresight;
mod input;
mod known;
mod memory;
mod mps;
mod neighbours;
mod run;
mod settings;
mod told;
mod wishes;

pub use ask::ask_why;
pub use devices::{models, models_named, refusal};
pub use event::{Event, Finished, Line, Phase, Reporter, Summary};
pub use feed::host;
pub use foresight::submissions;
pub use input::{Generator, Input, Source};
pub use memory::{Seen, Signs, SignsError};
pub use mps::{KEPT, mps_alone, mps_folder, mps_shared};
pub use run::run;
pub use settings::{
    About, Appetite, Beginning, Defaults, Ignored, Measure, Mps, Parameters, Places, RunError,
    Settings, Sharing,
};
pub use wishes::{first_request, overrides};
