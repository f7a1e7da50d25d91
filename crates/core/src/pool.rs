use std::hash::Hash;
use std::time::Duration;

use packhorse_model::{Bytes, CoreId, DeviceId, Milli, NodeId, Placing};
use rustc_hash::FxHashSet;

/// What tasks may be placed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The machines. Their order, and that of their devices, is "the pool's
    /// order", which decides between equals.
    pub nodes: Vec<NodeSpec>,
    /// At most so many attempts at once, whatever they need.
    pub slots: Option<u32>,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its id: any number, once in the pool.
    pub id: NodeId,
    pub devices: Vec<DeviceSpec>,
    /// The cores that may be given to one attempt alone.
    pub cores: Vec<CoreSpec>,
    /// How busy its cores may be kept. `None`: that is not counted.
    pub cpu: Option<Milli>,
    /// Its main memory. `None`: that is not counted.
    pub ram: Option<Bytes>,
}

/// A core, as the kernel numbers them: of a physical core that runs several threads at a
/// time, one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSpec {
    /// Its id: any number, once on its node.
    pub id: CoreId,
    /// The physical core it is a thread of: any number, on its node the same for all
    /// threads of one and for no others.
    pub physical: u32,
    /// The part of the machine it is in: memory and devices of the same part are near.
    pub numa: u32,
}

impl CoreSpec {
    /// One that is a whole physical core, on a machine with one part.
    pub const fn whole(id: CoreId) -> Self {
        Self { id, physical: id.0, numa: 0 }
    }
}

/// One device, or a group of them that is only given out together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Its id: any number, once in the pool.
    pub id: DeviceId,
    /// The cores that reach it fastest. Those that are not among the node's
    /// are ignored: a driver also names cores that we may not use.
    pub near_cores: Vec<CoreId>,
    /// Its memory; of a group, that of its smallest member. 0: nobody knows, so
    /// no amount can be promised there.
    pub memory: Bytes,
    /// The number of its model in this pool, below 64.
    pub model: u8,
    /// Whether one process at a time may compute on it, so that it cannot be shared.
    pub one_process: bool,
}

/// How to place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// Which of several places that fit.
    ///
    /// `Pack`: where the least becomes useless for tasks like those seen so far:
    /// what is left of a device may be too little for any of them, and whole
    /// devices are for nothing on a node that has no cores left. Of places that
    /// are about as good, the fullest node, and there the fullest device.
    ///
    /// `Spread`: the device with the least share given out, then with the fewest
    /// attempts; for whole devices the node with the most free ones; without a
    /// device the node with the fewest attempts.
    pub policy: Placing,
    /// At most so many attempts on one device.
    pub max_per_device: Option<u32>,
    /// How old a look at the devices may be when one of several is chosen. `None`: nobody
    /// can look.
    pub look_lasts: Option<Duration>,
    /// How long a task waits to rise by one priority. `None`: waiting does not
    /// raise it. All rise at the same pace, so nobody's place in line changes
    /// after it was given: it is the submission's time plus so much for each
    /// priority.
    pub ageing: Option<Duration>,
}

/// What is wrong with a pool, a part of it, or its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There is nothing to run on.
    #[error("the pool has no node\nhint: a machine without GPUs is a node without devices")]
    NoNodes,
    /// No attempt would ever have a slot.
    #[error("the pool has 0 slots, so nothing could run\nhint: give at least 1, or no limit")]
    NoSlots,
    /// No attempt would ever get a device.
    #[error(
        "at most 0 tasks a device are allowed, so none could be used\nhint: give at least 1, or no limit"
    )]
    NoneAllowedOnDevice,
    /// Two nodes have one id.
    #[error("node {} is in the pool twice", .0.0)]
    DuplicateNode(NodeId),
    /// Two devices have one id.
    #[error("device {} is in the pool twice", .0.0)]
    DuplicateDevice(DeviceId),
    /// There is no such node, or it is being removed.
    #[error("node {} is not in the pool", .0.0)]
    UnknownNode(NodeId),
    /// A model's number is too large.
    #[error("device {} is of model {model}, and a pool has no more than 64 models", .device.0)]
    TooManyModels { device: DeviceId, model: u8 },
    /// A node names a core twice.
    #[error("core {core} is twice among the cores of node {}", .node.0)]
    DuplicateCore { node: NodeId, core: CoreId },
}

/// The first value that occurs twice.
fn duplicate<T: Copy + Eq + Hash>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut seen = FxHashSet::default();
    values.into_iter().find(|&value| !seen.insert(value))
}

impl Pool {
    /// Finds what would make nonsense of any placement.
    pub(crate) fn validate(&self, settings: &SchedulerSettings) -> Result<(), PoolError> {
        if self.nodes.is_empty() {
            return Err(PoolError::NoNodes);
        }
        if self.slots == Some(0) {
            return Err(PoolError::NoSlots);
        }
        if settings.max_per_device == Some(0) {
            return Err(PoolError::NoneAllowedOnDevice);
        }
        if let Some(node) = duplicate(self.nodes.iter().map(|node| node.id)) {
            return Err(PoolError::DuplicateNode(node));
        }
        let devices = self.nodes.iter().flat_map(|node| &node.devices);
        if let Some(device) = duplicate(devices.map(|device| device.id)) {
            return Err(PoolError::DuplicateDevice(device));
        }
        self.nodes.iter().try_for_each(NodeSpec::validate)
    }
}

impl NodeSpec {
    /// The same for one machine.
    pub(crate) fn validate(&self) -> Result<(), PoolError> {
        if let Some(device) = duplicate(self.devices.iter().map(|device| device.id)) {
            return Err(PoolError::DuplicateDevice(device));
        }
        if let Some(core) = duplicate(self.cores.iter().map(|core| core.id)) {
            let node = self.id;
            return Err(PoolError::DuplicateCore { node, core });
        }
        self.devices.iter().try_for_each(DeviceSpec::validate)
    }
}

impl DeviceSpec {
    /// The same for one device.
    pub(crate) fn validate(&self) -> Result<(), PoolError> {
        if self.model >= 64 {
            return Err(PoolError::TooManyModels { device: self.id, model: self.model });
        }
        Ok(())
    }
}
