//! `packing`: how full GPUs get, and what the decisions cost.
//!
//! Four measurements in one section:
//!
//! - [`openb`]: a production trace, replayed with each policy, next to the table of a
//!   paper;
//! - [`mixes`]: tasks that come and go on a machine of 1 to 8 GPUs, beside simple policies;
//! - [`synthetic`]: ten thousand tasks with random peaks through the real binary and the
//!   real NVML calls, next to the lower bound and the original of `packhorse csv`;
//! - [`speed`]: the time of a placement, and of an event while a million tasks wait.
//!
//! [`simulation`] is a virtual clock around the scheduler.
//!
//! [`simulate`] does what is simulated or timed by itself, in a process of a release build.

mod lines;
mod load;
mod mixes;
mod openb;
mod original;
mod replay;
mod section;
mod simulate;
mod simulation;
mod speed;
mod synthetic;
mod trace;

pub use section::measure;
pub use simulate::{SimulateArgs, simulate};
