//! The readings that change, for a run that samples all the time.

use nvml_wrapper::error::NvmlError;

use super::Nvidia;
use super::broken::lost;
use super::device::{HealthTracker, NvmlDevice, holders, memory, percent};
use crate::{DeviceReading, Health, ProcessMemory, UnitMember};

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
        Self {
            driver,
            index,
            instance,
            handle: None,
        }
    }

    /// Its state now.
    pub(crate) fn read(&mut self) -> DeviceReading {
        if self.handle.is_none() {
            match self.find() {
                Ok(handle) => self.handle = Some(handle),
                Err(error) => {
                    let reason = lost(&error).map_or_else(|| error.to_string(), str::to_owned);
                    return DeviceReading::lost(reason);
                }
            }
        }
        let Some(handle) = &self.handle else {
            return DeviceReading::lost("it cannot be found".to_owned());
        };
        let mut tracker = HealthTracker { health: Health::Ok };
        let memory = tracker.read(|| memory(&self.driver.nvml, handle));
        let processes = holders(&mut tracker, handle).map(|held| {
            held.into_iter()
                .map(|(pid, memory)| ProcessMemory { pid, memory })
                .collect()
        });
        let utilisation = tracker
            .read(|| handle.utilization_rates())
            .map(|rates| percent(rates.gpu));
        DeviceReading {
            memory,
            processes,
            utilisation,
            health: tracker.health,
        }
    }

    fn find(&self) -> Result<NvmlDevice<'nvml>, NvmlError> {
        match &self.instance {
            Some(uuid) => self.driver.nvml.device_by_uuid(uuid.as_str()),
            None => self.driver.nvml.device_by_index(self.index),
        }
    }
}
