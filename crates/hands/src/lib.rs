//! Hands: the part that starts, watches, signals and reaps processes, and keeps
//! their logs.
//!
//! ```text
//!                    ┌────────────── one epoll loop ───────────────┐
//!  start(Job) ──────▶│ clone         log pipes   signalfd   timers │──▶ Happening
//!  stop(task, how) ─▶│ watched descriptors: input, store           │
//!                    └─────────────────────────────────────────────┘
//! ```
//!
//! What it promises:
//!
//! - An attempt has ended only when its whole process tree is gone. What its
//!   first process left behind is terminated, then killed.
//! - Output is read as it comes, in pieces, and goes to the attempt's log; a
//!   task that writes a gigabyte neither blocks the others nor grows our memory.
//! - Nothing here polls. With no output, no exit and no time limit due, nothing
//!   wakes up.
//! - Whatever goes wrong with one attempt is that attempt's outcome, or a
//!   [`Happening::Trouble`]; the others go on.
//!
//! What it never does: decide what runs, or print.
//!
//! Exits arrive as SIGCHLD through a signalfd and not through a pidfd for each
//! attempt: as the subreaper we also inherit orphans that we hold no pidfd for,
//! and must reap them too. One mechanism does for both, and saves three system
//! calls an attempt.

mod arguments;
mod attempt;
mod deferred;
mod family;
mod files;
mod log;
mod pipes;
mod prompt;
mod signals;
mod spawn;
mod start;
mod supervisor;
mod words;

pub use attempt::{Job, Stop};
pub use deferred::Start;
pub use family::{ancestry, end_leftovers_of_run};
pub use log::{LogReader, Stream, log_path};
pub use supervisor::{Ended, Hands, Happening, Output, Settings, Signal};
