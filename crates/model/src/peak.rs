use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Timestamp};

/// How much GPU memory an attempt took, as far as that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedPeak {
    /// When the attempt ended, or was last seen growing.
    pub at: Timestamp,
    /// The most it held on any one of its GPUs.
    pub peak: Bytes,
    /// It may have been so much more between two samples.
    pub error: Bytes,
    /// How long it took, to the microsecond. `None` where that says nothing about
    /// other attempts: for a probe, or for an attempt that did not run to its end. For one
    /// that was last seen growing, how old it was then.
    pub duration: Option<Duration>,
    /// What the peak is worth.
    pub origin: PeakOrigin,
}

/// Where a peak comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeakOrigin {
    /// An attempt ran to its end.
    Run,
    /// An attempt took more, or tried to, when its memory had rested already.
    GrewLate,
    /// The same, of an attempt that was not seen to its end: how much it would have taken
    /// is not known.
    Growing,
    Probe,
    /// An attempt ran out of memory: it would have taken more.
    OutOfMemory,
}
