use std::fmt;

use packhorse_model::{Bytes, CoreId};

/// Who made a device, and so by which variables its programs are told to use
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// NVIDIA, through CUDA.
    Nvidia,
    /// AMD, through ROCm.
    Amd,
}

impl Vendor {
    /// One word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
        }
    }

    /// The environment variables that limit what a program sees, the one that
    /// rules first.
    pub const fn visible_variables(self) -> &'static [&'static str] {
        match self {
            Self::Nvidia => &["CUDA_VISIBLE_DEVICES"],
            Self::Amd => &["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"],
        }
    }
}

/// Parts of a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(pub u8);

/// A temperature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Celsius(pub i32);

/// A power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliwatts(pub u64);

/// One GPU, as it was when the driver was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver's number for it, in the order of PCI addresses.
    pub index: u32,
    /// `GPU-…`. `None` for one that cannot even say who it is.
    pub uuid: Option<String>,
    /// The product's name.
    pub name: Option<String>,
    /// Who made it.
    pub vendor: Vendor,
    /// Such as `0000:01:00.0`.
    pub pci_bus_id: Option<String>,
    /// The cores near to it, in ascending order. Empty: not known.
    pub near_cores: Vec<CoreId>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// How busy it is.
    pub utilisation: Option<Percent>,
    /// How hot it is.
    pub temperature: Option<Celsius>,
    /// What it draws.
    pub power: Option<Milliwatts>,
    /// What it may draw.
    pub power_limit: Option<Milliwatts>,
    /// Who is on it, by process id; of a divided device, also those on its
    /// instances. `None`: the driver does not tell, which is not the same as
    /// nobody.
    pub processes: Option<Vec<Process>>,
    /// Whether it is whole or in MIG mode. `Some` of nothing is a device in
    /// MIG mode that has not been divided, on which nothing can run.
    pub mig: Option<Vec<MigInstance>>,
    /// Whether it works.
    pub health: Health,
}

/// The memory of a device or MIG instance. The four do not always add up: ask
/// `free`, do not compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All there is.
    pub total: Bytes,
    /// What processes hold.
    pub used: Bytes,
    /// What can still be had.
    pub free: Bytes,
    /// What the driver keeps for itself, where it says so; else it is part of
    /// `used`.
    pub reserved: Bytes,
}

/// A process on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// What it holds on the device.
    pub memory: Option<Bytes>,
    /// Whose it is: a name, or a number where there is none. `None`: it has
    /// gone meanwhile.
    pub user: Option<String>,
    /// Its command line, without control characters.
    pub command: Option<String>,
}

/// A part of a divided device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// `MIG-…`.
    pub uuid: String,
    /// Such as `1g.5gb`.
    pub profile: Option<String>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Who is on it.
    pub processes: Option<Vec<Process>>,
}

/// Whether a device works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ok,
    /// It does not, and why.
    Lost(String),
}

impl Device {
    /// A device of which nothing is known but that it is there.
    pub(crate) fn unknown(index: u32, vendor: Vendor) -> Self {
        Self {
            index,
            uuid: None,
            name: None,
            vendor,
            pci_bus_id: None,
            near_cores: Vec::new(),
            memory: None,
            utilisation: None,
            temperature: None,
            power: None,
            power_limit: None,
            processes: None,
            mig: None,
            health: Health::Ok,
        }
    }

    /// Whether it works.
    pub const fn is_healthy(&self) -> bool {
        matches!(self.health, Health::Ok)
    }

    /// Its MIG instances; none when it is whole.
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
