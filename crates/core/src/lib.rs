//! The scheduler: who runs where, and when.
//!
//! ```text
//!             Submit ──▶ refused, with the reason
//!                │
//!                ▼            all of `after` succeeded
//!            blocked ─────────────────────────▶ waiting ◀──┐
//!                │                                 │       │ probed, out of memory,
//!                │ one of `after` did not succeed  │ fits  │ another one's doing,
//!                ▼                                 ▼       │ or retries left
//!            finished ◀─────────────────────── running ────┘
//! ```
//!
//! [`step`] takes one [`SchedulerEvent`] and appends [`Effect`]s for others to carry
//! out. It promises:
//!
//! - the same events at the same times give the same effects;
//! - no device is given out beyond its share, its memory or its limit of
//!   attempts, what others hold there included; no core is given twice;
//! - one that is to be alone on a device is; a drained device gets nothing new;
//! - nothing waits while it could start, except out of respect for the
//!   reservation of the first in line;
//! - the first in line is never delayed by one behind it, as far as it is known
//!   how long attempts take and what they need;
//! - every task that was not refused ends in exactly one outcome, if devices
//!   that it needs do not stay drained or taken by others;
//! - no event makes it panic, however little sense it makes.
//!
//! An event costs O(log n) in the waiting tasks, and O(devices) when the first
//! in line changes; it looks at tasks only where something has changed.
//!
//! There is no clock, file, thread or random number here; time is passed in.
//!
//! ```
//! use packhorse_core::{
//!     DeviceSpec, Event, NodeSpec, Now, Pool, ProbePlan, SchedulerSettings, SchedulerState, Submission, step,
//! };
//! use packhorse_model::{Bytes, DeviceId, NodeId, Priority, Request, RunId, TaskId};
//!
//! let gpu = DeviceSpec { id: DeviceId(40), near_cores: vec![], memory: Bytes(0), model: 0 };
//! let node = NodeSpec { id: NodeId(0), devices: vec![gpu], cores: vec![], cpu: None, ram: None };
//! let pool = Pool { nodes: vec![node], slots: None };
//! let mut state = SchedulerState::new(&pool, SchedulerSettings::default())?;
//!
//! let mut effects = Vec::new();
//! let task = Submission {
//!     id: TaskId::new(RunId(1), 1),
//!     request: Request::default(),
//!     batch: 0,
//!     priority: Priority(0),
//!     retries: 0,
//!     time_limit: None,
//!     expected: None,
//!     probe: ProbePlan::None,
//!     after: vec![],
//! };
//! step(&mut state, Event::Submit(task), Now::default(), &mut effects);
//! assert_eq!(effects.len(), 1, "it starts at once");
//! # Ok::<(), packhorse_core::PoolError>(())
//! ```

mod check;
mod cores;
mod deps;
mod device;
mod dispatch;
mod explain;
mod finished;
mod fit_index;
mod fragmentation;
mod ladder;
mod learn;
mod ledger;
mod needs;
mod place;
mod pool;
mod prose;
mod queue;
mod queue_key;
mod reach;
mod refusal;
mod reserve;
mod scheduler_event;
mod slack;
mod state;
mod step;
mod tasks;
mod time;

pub use explain::{
    Explanation, Holder, MissingResources, PendingDependency, Reserved, Short, WaitReason,
    WaitingTask, explain,
};
pub use finished::Ending;
pub use learn::{PeakSample, expected, reservation};
pub use pool::{DeviceSpec, NodeSpec, Policy, Pool, PoolError, SchedulerSettings};
pub use prose::Prose;
pub use refusal::RefusalReason;
pub use scheduler_event::{
    Effect, EndCause, Now, Outside, ProbePlan, RetryReason, SchedulerEvent, Submission,
};
pub use state::{DeviceLoad, RunningTask, SchedulerState, TaskCounts};
pub use step::step;
