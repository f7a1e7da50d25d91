use std::time::Instant;

use packhorse_model::Bytes;

use crate::{Device, DeviceMemory, GpuProcess, Health, Percent, Xid};

/// What a [`Sampler`](crate::Sampler) reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SamplerReport {
    /// The state of a unit.
    Sample(DeviceSample),
    /// The driver reported an error of a unit's device. Every unit that has a
    /// part of the device gets the report.
    Xid {
        /// The unit's place in the list that the sampler was started with.
        unit: usize,
        /// The error.
        xid: Xid,
    },
}

/// The state of a unit's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSample {
    /// The unit's place in the list that the sampler was started with.
    pub unit: usize,
    /// When reading began: the sample includes what happened before.
    pub at: Instant,
    /// One for each member of the unit, in order.
    pub members: Vec<DeviceReading>,
}

/// The state of a device or MIG instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReading {
    pub memory: Option<DeviceMemory>,
    /// The processes that hold memory of it, by process id. `None`: the driver
    /// does not tell, which is not the same as none.
    pub processes: Option<Vec<ProcessMemory>>,
    /// How busy it is.
    pub utilisation: Option<Percent>,
    /// Whether it works.
    pub health: Health,
}

/// What a process holds of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// The process.
    pub pid: u32,
    /// How much it holds. `None`: the driver does not tell.
    pub memory: Option<Bytes>,
    /// Whether it only draws, as the programs of a desktop do.
    pub draws: bool,
}

impl DeviceReading {
    /// What is known of a device, or of the instance of it with this UUID.
    pub fn of(device: &Device, instance: Option<&str>) -> Self {
        let mut instances = device.instances().iter();
        let instance = instances.find(|it| Some(it.uuid.as_str()) == instance);
        let (memory, processes) = match instance {
            Some(instance) => (instance.memory, &instance.processes),
            None => (device.memory, &device.processes),
        };
        let held = |process: &GpuProcess| ProcessMemory {
            pid: process.pid,
            memory: process.memory,
            draws: process.draws,
        };
        Self {
            memory,
            processes: processes.as_ref().map(|processes| processes.iter().map(held).collect()),
            utilisation: device.utilisation,
            health: device.health.clone(),
        }
    }

    /// A device that does not work.
    pub(crate) fn lost(reason: String) -> Self {
        Self { memory: None, processes: None, utilisation: None, health: Health::Lost(reason) }
    }
}
