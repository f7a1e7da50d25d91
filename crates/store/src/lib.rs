//! What Packhorse remembers: runs, their tasks, every attempt and how it came
//! out, how much memory commands took, and which GPUs are broken, in one SQLite
//! database in a folder that only its owner can read.
//!
//! ```text
//!  the caller's loop                       the writer's thread
//!  ─────────────────                       ───────────────────
//!  Writer::send(Record) ──▶ queue ──▶ one transaction for all that is queued
//!          ▲                                      │
//!          └────── eventfd, committed() ◀─────────┘
//!
//!  Reader::open(&Home) ──▶ runs, tasks, attempts, what is unfinished, peaks
//!  Home::forget, restore, next_ids ──▶ small changes, made at once
//! ```
//!
//! One writer serves any number of runs: each record says which it is about.
//!
//! Promises:
//!
//! - What [`Writer::committed`] has reported is in the database: killing the
//!   process with SIGKILL at any moment does not lose it. Not even the ends of
//!   attempts that are not committed yet are lost: they are in a crash journal,
//!   and whoever opens the store next commits them.
//! - A full disk or a vanished database stops nothing. Records are kept and
//!   tried again, [`Writer::trouble`] says what is wrong, and
//!   [`Writer::finish`] says what could not be written in the end.
//! - A writer with nothing to write is blocked; it has no timer.
//! - Whether a run is alive is decided by a lock that its process holds
//!   ([`RunLock`]), never by a process id that a dead process left behind.
//!
//! A task is stored as its command and the JSON of the rest of its
//! [`TaskSpec`](packhorse_model::TaskSpec): a new field there needs no change here.
//!
//! The store never prints and never decides what runs.

mod columns;
mod database;
mod edit;
mod error;
mod home;
mod home_id;
mod lock;
mod network;
mod numbers;
mod reader;
mod run_seed;
mod run_uuid;
mod schema;
mod writer;

pub use edit::Forget;
pub use error::StoreError;
pub use home::{Home, ReopenedHome};
pub use lock::RunLock;
pub use packhorse_model::{
    EndedAttempt, NewPeak, NewRun, NewTask, Record, StartedAttempt, StoredTask,
};
pub use reader::{
    DrainedDevice, LearnedSignature, ListedTask, Reader, RunState, StoredAttempt, StoredRun,
    TaskCounts, TaskFilter,
};
pub use run_seed::RunSeed;
pub use run_uuid::new_run_uuid;
pub use uuid::Uuid;
pub use writer::{Unwritten, Writer};
