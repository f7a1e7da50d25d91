use crate::{Amd, BrokenDriver, Device, GpuConfig, GpuError, Nvidia, Vendor};

/// The driver of this machine's GPUs.
#[derive(Debug)]
pub enum Driver {
    /// NVIDIA's, through NVML.
    Nvidia(Nvidia),
    /// AMD's, through sysfs.
    Amd(Amd),
    /// There is an NVIDIA driver, but it does not work.
    Broken(BrokenDriver),
    /// There is none.
    None,
}

/// How much to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What identifies the devices.
    Identity,
    /// All readings.
    Everything,
}

/// The devices to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inventory {
    /// The driver's devices.
    Devices(Vec<Device>),
    /// There is a driver, but it does not work.
    Broken(BrokenDriver),
    /// There is no driver.
    NoDriver,
}

impl Inventory {
    /// The devices, if there is a driver that knows them.
    pub(crate) fn devices(&self) -> Option<&[Device]> {
        match self {
            Self::Devices(devices) => Some(devices),
            Self::Broken(_) | Self::NoDriver => None,
        }
    }
}

impl Driver {
    /// Finds the driver.
    ///
    /// If a machine has both, NVIDIA's is used if it has any device. A container
    /// image may bring NVIDIA's library without a driver: that must not hide AMD's
    /// devices.
    ///
    /// The only error is a library that the configuration names but that cannot be
    /// loaded.
    pub fn detect(config: &GpuConfig) -> Result<Self, GpuError> {
        let nvidia = match Nvidia::load(config) {
            Ok(Some(nvidia)) if nvidia.has_devices() => return Ok(Self::Nvidia(nvidia)),
            Ok(Some(nvidia)) => Self::Nvidia(nvidia),
            Ok(None) => Self::None,
            Err(GpuError::Broken(broken)) => Self::Broken(broken),
            Err(error) => return Err(error),
        };
        Ok(match Amd::find(config) {
            Some(amd) => Self::Amd(amd),
            None => nvidia,
        })
    }

    /// Whose driver it is.
    pub const fn vendor(&self) -> Option<Vendor> {
        match self {
            Self::Nvidia(_) | Self::Broken(_) => Some(Vendor::Nvidia),
            Self::Amd(_) => Some(Vendor::Amd),
            Self::None => None,
        }
    }

    /// Every device with all its readings.
    pub fn devices(&self) -> Result<Vec<Device>, GpuError> {
        match self {
            Self::Nvidia(nvidia) => Ok(nvidia.devices(Detail::Everything)?),
            Self::Amd(amd) => Ok(amd.devices(Detail::Everything)),
            Self::Broken(broken) => Err(broken.clone().into()),
            Self::None => Ok(Vec::new()),
        }
    }

    /// The devices to choose from, without the readings that change: reading those
    /// is what takes a driver long.
    pub fn inventory(&self) -> Inventory {
        match self {
            Self::Nvidia(nvidia) => {
                nvidia.devices(Detail::Identity).map_or_else(Inventory::Broken, Inventory::Devices)
            }
            Self::Amd(amd) => Inventory::Devices(amd.devices(Detail::Identity)),
            Self::Broken(broken) => Inventory::Broken(broken.clone()),
            Self::None => Inventory::NoDriver,
        }
    }
}
