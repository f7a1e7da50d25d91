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

/// A share in a lease's file, which is a whole number there.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Milli")]
struct Thousandths(u32);
