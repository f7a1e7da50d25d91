//! What Packhorse remembers: runs, their tasks, every attempt and how it came
//! out, how much memory commands took, and which GPUs are broken, in one SQLite
//! database in a folder that is its owner's alone.
//!
//! ```text
//!  the runner's loop                       the writer's thread
//!  ─────────────────                       ───────────────────
//!  Writer::send(Record) ──▶ queue ──▶ one transaction for all that is queued
//!          ▲                                      │
//!          └────── eventfd, committed() ◀─────────┘
//!
//!  Reader::open(&Home) ──▶ runs, tasks, attempts, what is unfinished, peaks
//!  Home::forget, restore, next_ids ──▶ small changes, made at once
//! ```
//!
//! Promises:
//!
//! - What [`Writer::committed`] has reported is in the database: killing the
//!   process with SIGKILL at any moment does not lose it. How tasks fared is not
//!   lost even before that: whoever opens the store next takes it in.
//! - A full disk or a vanished database stops nothing. Records are kept and
//!   tried again, [`Writer::trouble`] says what is wrong, and
//!   [`Writer::finish`] says what could not be written in the end.
//! - A writer with nothing to write is blocked; it has no timer.
//! - Whether a run is alive is told by a lock that its process holds
//!   ([`RunLock`]), never by a number that a dead process left behind.
//!
//! It never prints, never decides what runs, and never reads the settings and
//! the messages that others hand it.

mod columns;
mod database;
mod edit;
mod error;
mod home;
mod lock;
mod network;
mod numbers;
mod peak;
mod reader;
mod record;
mod schema;
mod time;
mod uuid;
mod writer;

pub use edit::Forget;
pub use error::Error;
pub use home::Home;
pub use lock::RunLock;
pub use peak::{Peak, Sample, Whence};
pub use reader::{
    Attempt, Counts, Drained, Learned, Listed, Reader, Run, RunState, Select, StoredTask,
};
pub use record::{End, NewRun, NewTask, Overrides, Record, Start, TimeLimit, Verdict, Vram};
pub use time::UnixMicros;
pub use uuid::RunUuid;
pub use writer::{Backlog, Writer};
