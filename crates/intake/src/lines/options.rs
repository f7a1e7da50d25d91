use std::time::Duration;

use packhorse_model::{GpuRequest, Priority};

/// What a directive said about the next command. What it did not say is left
/// to the defaults of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `gpus=0.5`: how much GPU it needs.
    pub gpus: Option<GpuRequest>,
    /// `cores=2`: how many cores of its own.
    pub cores: Option<u32>,
    /// `priority=-3`: its place in the order.
    pub priority: Option<Priority>,
    /// `retries=2`: how many more attempts a failure gets.
    pub retries: Option<u32>,
    /// `timeout=2h`: how long an attempt may take.
    pub time_limit: Option<Duration>,
    /// `name=prep`: what later tasks call it.
    pub name: Option<String>,
    /// `after=prep,other`: the names of the earlier tasks it waits for, sorted,
    /// each once.
    pub after: Vec<String>,
}
