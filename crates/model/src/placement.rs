use crate::{Bytes, CoreId, DeviceId, Milli, NodeId};

/// What one attempt was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The machine it runs on.
    pub node: NodeId,
    /// Its devices, in the pool's order.
    pub devices: Vec<Granted>,
    /// The cores that are its own. Empty: any, shared with everybody.
    pub cores: Vec<CoreId>,
}

/// A device, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub device: DeviceId,
    /// How much of it, in thousandths.
    pub share: Milli,
    /// How much of its memory is promised; nothing where memory is not counted.
    pub memory: Bytes,
}
