use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Programs on a GPU that no run started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StrangersOn {
    /// The GPU, as in `gpus`.
    pub gpu: String,
    /// What they hold together, also what the driver shows no process for.
    pub memory: Bytes,
    /// Those that the driver tells, 16 at most: programs that compute first, then the
    /// largest.
    pub processes: Vec<Stranger>,
}

/// A process on a GPU that no run started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stranger {
    pub pid: u32,
    /// Its program and its user, as far as they can be seen: `python of bob`.
    pub who: String,
    /// What it holds on the GPU; null if the driver does not tell.
    pub memory: Option<Bytes>,
    /// Whether it only draws, as the programs of a desktop do.
    pub draws: bool,
}
