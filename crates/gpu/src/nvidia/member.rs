//! The readings that change, for a run that samples all the time.

use nvml_wrapper::error::NvmlError;

use super::Nvidia;
use super::broken::not_found;
use super::device::{HealthTracker, NvmlDevice, holders, memory, percent};
use crate::{DeviceReading, Health, UnitMember};

/// Samples one device or MIG instance.
pub(crate) struct MemberReader<'nvml> {
    driver: &'nvml Nvidia,
    index: u32,
    /// The UUID of the instance, if it is one.
    instance: Option<String>,
    /// `None` until it was found.
    handle: Option<NvmlDevice<'nvml>>,
}

impl<'nvml> MemberReader<'nvml> {
    /// Does not call the driver yet.
    pub(crate) fn new(driver: &'nvml Nvidia, index: u32, member: &UnitMember) -> Self {
        let instance = member.uuid.clone().filter(|uuid| uuid.starts_with("MIG-"));
        Self { driver, index, instance, handle: None }
    }

    /// Its state now.
    pub(crate) fn read(&mut self) -> DeviceReading {
        let handle = match &self.handle {
            Some(handle) => handle,
            None => match self.find() {
                Ok(handle) => self.handle.insert(handle),
                Err(error) => return DeviceReading::lost(not_found(&error)),
            },
        };
        let mut tracker = HealthTracker { health: Health::Ok };
        let memory = tracker.read(|| memory(self.driver, handle));
        let processes = holders(&mut tracker, handle);
        let utilisation =
            tracker.read(|| handle.utilization_rates()).map(|rates| percent(rates.gpu));
        DeviceReading { memory, processes, utilisation, health: tracker.health }
    }

    fn find(&self) -> Result<NvmlDevice<'nvml>, NvmlError> {
        match &self.instance {
            Some(uuid) => self.driver.nvml.device_by_uuid(uuid.as_str()),
            None => self.driver.nvml.device_by_index(self.index),
        }
    }
}
