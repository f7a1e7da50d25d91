use std::time::Duration;

use packhorse_model::{Bytes, GpuRequest, Milli, Priority};

use crate::Vram;

/// What a directive said about the next command, or the further columns of a
/// CSV row about its own. What was not said is left to the defaults of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `gpus=0.5`: how much GPU it needs.
    pub gpus: Option<GpuRequest>,
    /// `vram=9G`, `vram=auto`: how much memory of each of its GPUs.
    pub vram: Option<Vram>,
    /// `signature=KEY`: what it is remembered by, instead of its shape.
    pub signature: Option<String>,
    /// `model=A100,H100`: only GPUs whose model is one of these, by names that
    /// the caller understands. Empty: any.
    pub models: Vec<String>,
    /// `cores=2`: how many cores of its own.
    pub cores: Option<u32>,
    /// `cpu=1.5`: how many cores it keeps busy, in thousandths of one.
    pub cpu: Option<Milli>,
    /// `ram=16G`: main memory.
    pub ram: Option<Bytes>,
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

/// Whether a task may be called so: what can be typed without quotes.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && text.chars().all(fits)
}
