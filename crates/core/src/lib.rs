//! The scheduler: who runs where, and when.
//!
//! ```text
//!             Submit ──▶ refused, with the reason
//!                │
//!                ▼            all of `after` succeeded
//!            blocked ─────────────────────────▶ waiting ◀──┐
//!                │                                 │       │ worth retrying,
//!                │ one of `after` did not succeed  │ fits  │ retries left
//!                ▼                                 ▼       │
//!            finished ◀─────────────────────── running ────┘
//! ```
//!
//! [`step`] takes one [`Event`] and appends [`Effect`]s for others to carry
//! out. It promises:
//!
//! - the same events at the same times give the same effects;
//! - no device is given out beyond its share or its limit of attempts, and no
//!   core twice;
//! - nothing waits while it could start, except out of respect for the
//!   reservation of the first in line;
//! - the first in line is never delayed by one behind it;
//! - every task that was not refused ends in exactly one outcome;
//! - no event makes it panic, however little sense it makes.
//!
//! An event costs O(log n) in the waiting tasks, and O(devices) for each
//! distinct [`Request`](packhorse_model::Request) that waits.
//!
//! There is no clock, file, thread or random number here; time is passed in.
//!
//! ```
//! use packhorse_core::{DeviceSpec, Event, NodeSpec, Now, Pool, Settings, State, Submission, step};
//! use packhorse_model::{DeviceId, NodeId, Priority, Request, RunId, TaskId};
//!
//! let gpu = DeviceSpec { id: DeviceId(40), near_cores: vec![] };
//! let node = NodeSpec { id: NodeId(0), devices: vec![gpu], cores: vec![] };
//! let pool = Pool { nodes: vec![node], slots: None };
//! let mut state = State::new(&pool, Settings::default())?;
//!
//! let mut effects = Vec::new();
//! let task = Submission {
//!     id: TaskId::new(RunId(1), 1),
//!     request: Request::default(),
//!     priority: Priority(0),
//!     retries: 0,
//!     time_limit: None,
//!     after: vec![],
//! };
//! step(&mut state, Event::Submit(task), Now::default(), &mut effects);
//! assert_eq!(effects.len(), 1, "it starts at once");
//! # Ok::<(), packhorse_core::PoolError>(())
//! ```

mod check;
mod cores;
mod deps;
mod dispatch;
mod event;
mod explain;
mod ledger;
mod past;
mod place;
mod pool;
mod queue;
mod refusal;
mod reserve;
mod state;
mod step;
mod tasks;
mod words;

pub use event::{Effect, Event, Now, Submission};
pub use explain::{
    CoresShort, Explanation, Holder, Missing, Pending, Reason, Reserved, Waiting, explain,
};
pub use past::Ending;
pub use pool::{DeviceSpec, NodeSpec, Policy, Pool, PoolError, Settings};
pub use refusal::Refusal;
pub use state::{Counts, DeviceLoad, RunningTask, State};
pub use step::step;
pub use words::Words;
