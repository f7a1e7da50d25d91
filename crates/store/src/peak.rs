use std::sync::Arc;
use std::time::Duration;

use packhorse_model::Bytes;

use crate::UnixMicros;

/// How many samples are kept for each signature and GPU model: the newest.
pub(crate) const KEPT: u32 = 64;

/// What an attempt taught about commands of its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The task's number.
    pub task: u32,
    /// Which attempt of it; 0 is a probe.
    pub attempt: u32,
    /// The shape of its command.
    pub signature: Arc<str>,
    /// The model of the GPU it ran on.
    pub model: Arc<str>,
    /// What was seen.
    pub sample: Sample,
}

/// How much memory of a GPU an attempt took, as far as that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was over.
    pub at: UnixMicros,
    /// The most it held of any of its GPUs.
    pub peak: Bytes,
    /// Between two looks it may have been so much more.
    pub error: Bytes,
    /// How long it took, to the microsecond; `None` where that tells nothing of
    /// how long others will: of a probe, or of one that did not come to its end.
    pub duration: Option<Duration>,
    /// What the peak is worth.
    pub whence: Whence,
}

/// How a sample was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// An attempt ran to its end.
    Run,
    /// A probe.
    Probe,
    /// An attempt ran out of memory: it would have taken more.
    OutOfMemory,
}
