use serde::{Deserialize, Serialize};

use crate::{Bytes, Milli};

/// What a process holds of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedDevice {
    /// Its UUID, or its id as it was typed if no driver knows it.
    pub device: Box<str>,
    /// The memory promised to attempts.
    pub memory: Bytes,
    /// The share given to attempts.
    #[serde(with = "Thousandths")]
    pub share: Milli,
    /// How many attempts run on it.
    pub attempts: u32,
    /// Whether nobody else may use it.
    pub whole: bool,
}

/// What a process waits for that others hold: those who came later leave it room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Since when, in nanoseconds of the clock that all processes of a machine share from
    /// one boot to the next.
    pub since: u64,
    /// What it wants of which devices, all of them at once.
    pub devices: Vec<LeasedDevice>,
}

/// All that one process tells the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseContent {
    /// What it holds.
    pub held: Vec<LeasedDevice>,
    /// What it waits for.
    pub claim: Option<Claim>,
}

/// A share in a lease's file, which is a whole number there.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Milli")]
struct Thousandths(u32);
