//! The scheduler: who runs where, and when.
//!
//! ```text
//!             Submit ──▶ refused, with the reason
//!                │
//!                ▼            all of `after` succeeded
//!            blocked ─────────────────────────▶ waiting ◀──┐
//!                │                                 │       │ probed, out of memory,
//!                │ one of `after` did not succeed  │ fits  │ not its fault,
//!                ▼                                 ▼       │ or retries left
//!            finished ◀─────────────────────── running ────┘
//!                                                  ▲
//!             Adopt ───────────────────────────────┘
//! ```
//!
//! [`step`] takes one [`SchedulerEvent`] and appends [`Effect`]s for others to carry
//! out. It promises:
//!
//! - the same events at the same times give the same effects;
//! - no device is given out beyond its share, its memory or its limit of
//!   attempts, counting what others hold there; no core is given twice (what is
//!   adopted is counted even where it is too much; then nothing is added to it);
//! - a task that asks to be alone on a device is alone there; a drained device
//!   gets nothing new;
//! - nothing waits while it could start, except for the reservation of the first
//!   in line, or because its run, or everything, is held;
//! - the first in line is never delayed by one behind it, as far as it is known
//!   how long attempts take and what they need;
//! - every task that was not refused ends in exactly one outcome, provided that
//!   the devices it needs do not stay drained, removed or taken by others;
//! - no event makes it panic, however little sense it makes.
//!
//! An event costs O(log n) in the waiting tasks, however different their requests
//! are, and O(devices) when the first in line changes; whoever starts with cores of
//! its own costs O(cores and devices of its node). It looks at tasks only where
//! something has changed. Holding a run, and adding or removing a node or
//! a device, look at everything.
//!
//! There is no clock, file, thread or random number here; time is passed in.
//!
//! ```
//! use packhorse_core::{
//!     DeviceSpec, NodeSpec, Now, Pool, SchedulerEvent, SchedulerSettings, SchedulerState,
//!     Submission, step,
//! };
//! use packhorse_model::{Bytes, DeviceId, NodeId, Request, RunId, TaskId};
//!
//! let gpu = DeviceSpec { id: DeviceId(40), near_cores: vec![], memory: Bytes(0), model: 0, one_process: false };
//! let node = NodeSpec { id: NodeId(0), devices: vec![gpu], cores: vec![], cpu: None, ram: None };
//! let pool = Pool { nodes: vec![node], slots: None };
//! let mut state = SchedulerState::new(&pool, SchedulerSettings::default())?;
//!
//! let mut effects = Vec::new();
//! let task = Submission::new(TaskId::new(RunId(1), 1), Request::default());
//! step(&mut state, SchedulerEvent::Submit(task), Now::default(), &mut effects);
//! assert_eq!(effects.len(), 1, "it starts at once");
//! # Ok::<(), packhorse_core::PoolError>(())
//! ```

mod adopt;
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
mod pool_change;
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
mod submission;
mod tasks;
mod time;

#[cfg(test)]
mod tests;

pub use explain::explain;
pub use learn::{agree, expected, reservation};
pub use pool::{CoreSpec, DeviceSpec, NodeSpec, Pool, PoolError, SchedulerSettings};
pub use refusal::RefusalReason;
pub use scheduler_event::{Effect, EndCause, KeptRoom, Now, Outside, RetryReason, SchedulerEvent};
pub use state::{DeviceLoad, PlacedTask, SchedulerCounts, SchedulerState, WantedDevices};
pub use step::step;
pub use submission::{OwnerId, ProbePlan, Submission};
