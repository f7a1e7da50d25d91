use std::fmt;

use packhorse_model::{Bytes, CoreId};
use serde::Serialize;

/// Who made a device. Decides which environment variables tell programs to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// NVIDIA, through CUDA.
    Nvidia,
    /// AMD, through ROCm.
    Amd,
}

impl Vendor {
    /// The environment variables that limit which devices a program sees, the one
    /// that takes precedence first.
    pub const fn visible_variables(self) -> &'static [&'static str] {
        match self {
            Self::Nvidia => &["CUDA_VISIBLE_DEVICES"],
            Self::Amd => &["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"],
        }
    }
}

/// A percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Percent(pub u8);

/// A temperature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Celsius(pub i32);

/// A power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Milliwatts(pub u64);

/// One GPU, as the driver described it when it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The driver's number for it; devices are numbered in the order of their PCI
    /// addresses.
    pub index: u32,
    /// `GPU-…`. `None` if the device cannot even tell that.
    pub uuid: Option<String>,
    /// The product's name.
    pub name: Option<String>,
    /// Who made it.
    pub vendor: Vendor,
    /// Such as `0000:01:00.0`.
    pub pci_bus_id: Option<String>,
    /// NVIDIA's number N of its file `/dev/nvidiaN`, which is not always the index.
    #[serde(skip)]
    pub minor: Option<u32>,
    /// The cores near it, in ascending order. Empty: not known.
    pub near_cores: Vec<CoreId>,
    pub memory: Option<DeviceMemory>,
    /// How busy it is.
    #[serde(rename = "utilisation_percent")]
    pub utilisation: Option<Percent>,
    /// How hot it is.
    #[serde(rename = "temperature_celsius")]
    pub temperature: Option<Celsius>,
    /// How much it draws.
    #[serde(rename = "power_milliwatts")]
    pub power: Option<Milliwatts>,
    /// How much it may draw.
    #[serde(rename = "power_limit_milliwatts")]
    pub power_limit: Option<Milliwatts>,
    /// The processes on it, by process id; for a device in MIG mode, also those on
    /// its instances. `None`: the driver does not tell, which is not the same as
    /// none.
    pub processes: Option<Vec<GpuProcess>>,
    /// Its instances, if it is in MIG mode. An empty list is a device in MIG mode
    /// without instances, on which nothing can run.
    pub mig: Option<Vec<MigInstance>>,
    /// How many programs may compute on it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether a screen, or what stands for one, is drawn on it.
    pub draws_desktop: Option<bool>,
    /// Whether it works.
    #[serde(rename = "lost")]
    pub health: Health,
}

/// How many programs may compute on a device, as an administrator has set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Any number.
    Default,
    /// One process at a time, unless an MPS server stands for several.
    ExclusiveProcess,
    /// None.
    Prohibited,
}

/// The memory of a device or MIG instance. The amounts do not always add up: use
/// `free`, do not compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// All there is.
    pub total: Bytes,
    /// What processes hold.
    pub used: Bytes,
    /// What can still be allocated.
    pub free: Bytes,
    /// What the driver keeps for itself, if it says so; otherwise that is part of
    /// `used`.
    pub reserved: Bytes,
}

/// A process on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuProcess {
    /// Its id.
    pub pid: u32,
    /// What it holds on the device.
    pub memory: Option<Bytes>,
    /// Its user: a name, or a number if there is no name. `None`: the process has
    /// ended meanwhile.
    pub user: Option<String>,
    /// Its command line, without control characters.
    pub command: Option<String>,
    /// Whether it only draws, as the programs of a desktop do.
    pub draws: bool,
}

/// A part of a device in MIG mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigInstance {
    /// `MIG-…`.
    pub uuid: String,
    /// Such as `1g.5gb`.
    pub profile: Option<String>,
    pub memory: Option<DeviceMemory>,
    pub processes: Option<Vec<GpuProcess>>,
}

/// Whether a device works. For programs, why it does not, or null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Health {
    /// It does.
    Ok,
    /// It does not, and why.
    Lost(String),
}

impl Device {
    /// A device of which only the index is known.
    pub(crate) fn unknown(index: u32, vendor: Vendor) -> Self {
        Self {
            index,
            uuid: None,
            name: None,
            vendor,
            pci_bus_id: None,
            minor: None,
            near_cores: Vec::new(),
            memory: None,
            utilisation: None,
            temperature: None,
            power: None,
            power_limit: None,
            processes: None,
            mig: None,
            compute_mode: None,
            draws_desktop: None,
            health: Health::Ok,
        }
    }

    /// Whether it works.
    pub const fn is_healthy(&self) -> bool {
        matches!(self.health, Health::Ok)
    }

    /// Its MIG instances; none if it is not in MIG mode.
    pub fn instances(&self) -> &[MigInstance] {
        self.mig.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

impl fmt::Display for Celsius {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} °C", self.0)
    }
}

impl fmt::Display for Milliwatts {
    /// In watts, which is what people think in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} W", (self.0 + 500) / 1000)
    }
}
