use crate::{Bytes, Milli};

/// What a process holds of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeasedDevice {
    /// Its UUID, or its id as it was typed if no driver knows it.
    pub device: Box<str>,
    /// The memory promised to attempts.
    pub memory: Bytes,
    /// The share given to attempts.
    pub share: Milli,
    /// How many attempts run on it.
    pub attempts: u32,
    /// Whether nobody else may use it.
    pub whole: bool,
}
