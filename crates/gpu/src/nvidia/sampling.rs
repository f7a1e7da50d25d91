//! What changes, and no more: a run asks for it all the time.

use nvml_wrapper::error::NvmlError;

use super::Nvidia;
use super::broken::lost;
use super::reading::{NvmlDevice, Patient, holders, memory, percent};
use crate::{Health, Held, Member, Reading};

/// Reads one device or MIG instance again and again.
pub(crate) struct Sampler<'nvml> {
    driver: &'nvml Nvidia,
    index: u32,
    /// Of the instance, when it is one.
    instance: Option<String>,
    /// Looked up until it can be had.
    handle: Option<NvmlDevice<'nvml>>,
}

impl<'nvml> Sampler<'nvml> {
    /// Asks nothing yet.
    pub(crate) fn new(driver: &'nvml Nvidia, index: u32, member: &Member) -> Self {
        let instance = member.uuid.clone().filter(|uuid| uuid.starts_with("MIG-"));
        Self {
            driver,
            index,
            instance,
            handle: None,
        }
    }

    /// How it is now.
    pub(crate) fn read(&mut self) -> Reading {
        if self.handle.is_none() {
            match self.find() {
                Ok(handle) => self.handle = Some(handle),
                Err(error) => {
                    let reason = lost(&error).map_or_else(|| error.to_string(), str::to_owned);
                    return Reading::lost(reason);
                }
            }
        }
        let Some(handle) = &self.handle else {
            return Reading::lost("it cannot be found".to_owned());
        };
        let mut patient = Patient { health: Health::Ok };
        let memory = patient.take(|| memory(&self.driver.nvml, handle));
        let processes = holders(&mut patient, handle).map(|held| {
            held.into_iter()
                .map(|(pid, memory)| Held { pid, memory })
                .collect()
        });
        let utilisation = patient
            .take(|| handle.utilization_rates())
            .map(|rates| percent(rates.gpu));
        Reading {
            memory,
            processes,
            utilisation,
            health: patient.health,
        }
    }

    fn find(&self) -> Result<NvmlDevice<'nvml>, NvmlError> {
        match &self.instance {
            Some(uuid) => self.driver.nvml.device_by_uuid(uuid.as_str()),
            None => self.driver.nvml.device_by_index(self.index),
        }
    }
}
