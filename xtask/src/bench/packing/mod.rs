//! `packing`: how full GPUs get, and what deciding that costs.
//!
//! Three measurements in one section:
//!
//! - [`openb`]: a production trace, replayed with each policy, beside the table
//!   of a paper;
//! - [`crowd`]: ten thousand tasks with random peaks through the real binary and
//!   the real NVML calls, beside the lower bound and the program that the third
//!   door comes from;
//! - [`speed`]: the time of a placement, and of an event with a million tasks
//!   waiting.
//!
//! What is simulated or timed by itself is done by examples of the crates
//! concerned, in release builds ([`example`]).

mod crowd;
mod example;
mod lines;
mod openb;
mod section;
mod speed;

pub use section::measure;
