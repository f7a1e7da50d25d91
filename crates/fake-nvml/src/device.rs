use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Code;

/// One GPU of the pretended machine. Readings that are `None` are not
/// supported by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FakeDevice {
    /// NVML's index, in the order of PCI addresses.
    pub index: u32,
    /// `GPU-` and 36 characters.
    pub uuid: String,
    /// The product's name.
    pub name: String,
    /// All of its memory, in bytes.
    pub memory_total: u64,
    /// What the driver keeps for itself, in bytes.
    pub memory_reserved: u64,
    /// Percent, at least; what processes cause is added.
    pub utilisation: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Milliwatts.
    pub power: Option<u32>,
    /// Milliwatts.
    pub power_limit: Option<u32>,
    /// `00000000:01:00.0`.
    pub pci_bus_id: String,
    /// N of its file `/dev/nvidiaN`; `None`: the same as the index.
    #[serde(default)]
    pub minor: Option<u32>,
    /// CUDA's order `FASTEST_FIRST` starts with the highest.
    pub speed: u32,
    /// The kernel's numbers of the cores near to it.
    pub near_cores: Vec<u32>,
    /// How many programs may compute on it.
    #[serde(default)]
    pub compute_mode: FakeComputeMode,
    /// Whether an X server has memory for a screen on it. That can be without a monitor, and
    /// is not told of by every card (`nvmlDeviceGetDisplayActive` in NVIDIA's NVML API
    /// Reference).
    #[serde(default)]
    pub display_active: Option<bool>,
    /// Whether it can be divided, and into what it is.
    pub mig: Mig,
    /// What is wrong with it.
    pub faults: Faults,
}

/// `nvmlComputeMode_t`, as NVIDIA's NVML API Reference numbers it; 1 is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum FakeComputeMode {
    /// Any number of contexts.
    #[default]
    Default = 0,
    /// No contexts.
    Prohibited = 2,
    /// The contexts of one process.
    ExclusiveProcess = 3,
}

/// Whether a device can be divided into MIG instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mig {
    /// It cannot.
    #[default]
    Unsupported,
    /// It could, but is not.
    Disabled,
    /// It is in MIG mode, with these instances.
    Enabled(Vec<FakeMig>),
}

/// One MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FakeMig {
    /// Its place among the possible instances; there may be holes.
    pub slot: u32,
    /// `MIG-` and 36 characters.
    pub uuid: String,
    /// Such as `1g.5gb`.
    pub profile: String,
    /// All of its memory, in bytes.
    pub memory_total: u64,
    /// The GPU instance it is part of.
    pub gpu_instance: u32,
    /// Its number in that GPU instance.
    pub compute_instance: u32,
}

/// What is wrong with a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// It has fallen off the bus.
    pub lost: Option<Lost>,
    /// How long every call about it takes, in milliseconds.
    pub slow_ms: u64,
    /// Its process lists grow while they are read.
    pub growth: Option<Growth>,
    /// The memory of dead processes stays taken.
    pub memory_lingers: bool,
    /// Functions that fail for it, by the name of their C symbol.
    pub fail: BTreeMap<String, Code>,
}

/// How much of a lost device is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lost {
    /// There is not even a handle to it.
    Entirely,
    /// What the library remembers of it (name, UUID, address) is still told,
    /// every reading fails.
    Readings,
}

/// Process lists get longer right after their length was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// By how many processes at a time.
    pub by: u32,
    /// How often; then the list stays as it is.
    pub times: u32,
}

/// A device, or one MIG instance of it: what NVML has handles to, and CUDA counts.
#[derive(Clone, Debug)]
pub struct FakeUnit {
    /// The whole device.
    pub device: FakeDevice,
    /// The part of it that is meant.
    pub instance: Option<FakeMig>,
}

impl FakeUnit {
    /// Of the instance, or else the device.
    pub fn uuid(&self) -> &str {
        match &self.instance {
            Some(instance) => &instance.uuid,
            None => &self.device.uuid,
        }
    }
}

impl FakeDevice {
    /// A healthy data-centre card with 24 GiB in slot `index`.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            uuid: format!("GPU-{index:08x}-0000-4000-8000-00000000fa4e"),
            name: "NVIDIA Fake 24GB".to_owned(),
            memory_total: 24 << 30,
            memory_reserved: 512 << 20,
            utilisation: Some(0),
            temperature: Some(40),
            power: Some(60_000),
            power_limit: Some(300_000),
            pci_bus_id: format!("00000000:{:02X}:00.0", index + 1),
            minor: None,
            speed: 0,
            near_cores: Vec::new(),
            compute_mode: FakeComputeMode::Default,
            display_active: None,
            mig: Mig::Unsupported,
            faults: Faults::default(),
        }
    }

    /// Its MIG instances; none when it is whole.
    pub fn instances(&self) -> &[FakeMig] {
        match &self.mig {
            Mig::Enabled(instances) => instances,
            Mig::Unsupported | Mig::Disabled => &[],
        }
    }

    /// All memory of it or of its instance with this UUID, and how much of that the
    /// driver keeps for itself.
    pub fn memory_of(&self, uuid: &str) -> (u64, u64) {
        match self.instances().iter().find(|i| i.uuid == uuid) {
            Some(instance) => (instance.memory_total, 0),
            None => (self.memory_total, self.memory_reserved),
        }
    }

    /// Domain, bus and device of its PCI address.
    pub(crate) fn pci_address(&self) -> Option<(u32, u32, u32)> {
        let (rest, _function) = self.pci_bus_id.split_once('.')?;
        let mut parts = rest.split(':').map(|part| u32::from_str_radix(part, 16).ok());
        Some((parts.next()??, parts.next()??, parts.next()??))
    }
}

impl FakeMig {
    /// The instance in `slot` of the device `parent`, with 5 GiB.
    pub fn new(parent: u32, slot: u32) -> Self {
        Self {
            slot,
            uuid: format!("MIG-{parent:08x}-{slot:04x}-5000-8000-00000000fa4e"),
            profile: "1g.5gb".to_owned(),
            memory_total: 5 << 30,
            gpu_instance: 7 + slot,
            compute_instance: 0,
        }
    }
}
