//! One device after the other, reading by reading.

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper_sys::bindings::nvmlMemory_t;
use packhorse_model::{Bytes, CoreId};

use super::broken::lost;
use crate::people::People;
use crate::{
    Celsius, Device, Health, Memory, MigInstance, Milliwatts, Percent, Process, Vendor, cores,
};

pub(super) type NvmlDevice<'nvml> = nvml_wrapper::Device<'nvml>;

/// How often to ask for a process list that keeps outgrowing its buffer.
const PATIENCE: u32 = 8;

/// Words of a core set: enough for 4096 cores.
const CORE_WORDS: usize = 64;

/// How much to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Who the devices are.
    Identity,
    /// Also how they are.
    Everything,
}

/// One pass over the devices.
pub(super) struct Reader<'a> {
    nvml: &'a Nvml,
    sysfs: &'a Path,
    people: People<'a>,
    detail: Detail,
}

/// The readings of one device. Once it turns out to be lost it stays so, and
/// is asked nothing more: each further call could take seconds.
pub(super) struct Patient {
    pub(super) health: Health,
}

impl Patient {
    /// A reading, if the device has it.
    pub(super) fn take<T>(&mut self, read: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        if self.health != Health::Ok {
            return None;
        }
        match read() {
            Ok(value) => Some(value),
            Err(error) => {
                if let Some(reason) = lost(&error) {
                    self.health = Health::Lost(reason.to_owned());
                }
                None
            }
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(nvml: &'a Nvml, sysfs: &'a Path, proc: &'a Path, detail: Detail) -> Self {
        Self {
            nvml,
            sysfs,
            people: People::new(proc),
            detail,
        }
    }

    /// The device with this index, whatever state it is in.
    pub(super) fn device(&mut self, index: u32) -> Device {
        let mut device = Device::unknown(index, Vendor::Nvidia);
        let handle = match self.nvml.device_by_index(index) {
            Ok(handle) => handle,
            Err(error) => {
                let reason = lost(&error).map_or_else(|| error.to_string(), str::to_owned);
                device.health = Health::Lost(reason);
                return device;
            }
        };
        let mut patient = Patient { health: Health::Ok };
        device.uuid = patient.take(|| handle.uuid());
        device.name = patient.take(|| handle.name());
        device.pci_bus_id = patient
            .take(|| handle.pci_info())
            .map(|pci| bus_id(&pci.bus_id));
        // The reading that every device has: without it, it is not there.
        device.memory = patient.take(|| memory(self.nvml, &handle));
        device.near_cores = patient
            .take(|| handle.cpu_affinity(CORE_WORDS))
            .map(|words| cores::from_words(&words))
            .or_else(|| self.cores_by_address(device.pci_bus_id.as_deref()?))
            .unwrap_or_default();
        device.mig = self.instances(&mut patient, &handle);
        if self.detail == Detail::Everything {
            device.utilisation = patient
                .take(|| handle.utilization_rates())
                .map(|rates| percent(rates.gpu));
            device.temperature = patient
                .take(|| handle.temperature(TemperatureSensor::Gpu))
                .and_then(|degrees| i32::try_from(degrees).ok())
                .map(Celsius);
            device.power = patient.take(|| handle.power_usage()).map(milliwatts);
            device.power_limit = patient
                .take(|| {
                    handle
                        .enforced_power_limit()
                        .or_else(|_| handle.power_management_limit())
                })
                .map(milliwatts);
            device.processes = self.processes(&mut patient, &handle);
        }
        device.health = patient.health;
        device
    }

    /// The parts of a device in MIG mode.
    fn instances(
        &mut self,
        patient: &mut Patient,
        handle: &NvmlDevice,
    ) -> Option<Vec<MigInstance>> {
        const ENABLED: u32 = 1;
        let mode = patient.take(|| handle.mig_mode())?;
        if mode.current != ENABLED {
            return None;
        }
        let slots = patient.take(|| handle.mig_device_count()).unwrap_or(0);
        let mut instances = Vec::new();
        for slot in 0..slots {
            // Slots may be empty, also before filled ones.
            let Some(part) = patient.take(|| handle.mig_device_by_index(slot)) else {
                continue;
            };
            let Some(uuid) = patient.take(|| part.uuid()) else {
                continue;
            };
            let name = patient.take(|| part.name());
            let processes = match self.detail {
                Detail::Identity => None,
                Detail::Everything => self.processes(patient, &part),
            };
            instances.push(MigInstance {
                uuid,
                profile: name.as_deref().and_then(profile),
                memory: patient.take(|| memory(self.nvml, &part)),
                processes,
            });
        }
        Some(instances)
    }

    /// Who is on a device, each process once, by id.
    fn processes(&mut self, patient: &mut Patient, handle: &NvmlDevice) -> Option<Vec<Process>> {
        let held = holders(patient, handle)?;
        let people = &mut self.people;
        Some(
            held.into_iter()
                .map(|(pid, memory)| people.process(pid, memory))
                .collect(),
        )
    }

    fn cores_by_address(&self, bus_id: &str) -> Option<Vec<CoreId>> {
        let file = self
            .sysfs
            .join("bus/pci/devices")
            .join(bus_id)
            .join("local_cpulist");
        cores::parse_list(&fs_err::read_to_string(file).ok()?)
    }
}

/// Who is on a device with how much, each process once, by id. `None`: the
/// driver does not tell.
pub(super) fn holders(
    patient: &mut Patient,
    handle: &NvmlDevice,
) -> Option<BTreeMap<u32, Option<Bytes>>> {
    let compute = patient.take(|| {
        whole_list(
            || handle.running_compute_processes(),
            || handle.running_compute_processes_v2(),
        )
    });
    let graphics = patient.take(|| {
        whole_list(
            || handle.running_graphics_processes(),
            || handle.running_graphics_processes_v2(),
        )
    });
    // Programs that compute through an MPS server have a list of their own.
    let served = patient.take(|| patiently(|| handle.mps_running_compute_processes()));
    // Displays and servers are a bonus; without the compute list nothing is known.
    let mut held: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    let others = [graphics, served].into_iter().flatten().flatten();
    for process in compute?.into_iter().chain(others) {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        // A process in several lists is shown in each with all it holds.
        let known = held.entry(process.pid).or_default();
        *known = (*known).max(memory);
    }
    Some(held)
}

/// The list, in the older form where the driver has no newer.
fn whole_list(
    newer: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
    older: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    match patiently(newer) {
        Err(error) if is_too_new(&error) => patiently(older),
        other => other,
    }
}

/// Asks again while the list outgrows the buffer that was made for it.
fn patiently(
    list: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    let mut answer = list();
    for _ in 1..PATIENCE {
        if !matches!(answer, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
        answer = list();
    }
    answer
}

/// The memory: the second version of the call where the driver has it, because
/// only that tells reserved memory apart.
pub(super) fn memory(nvml: &Nvml, device: &NvmlDevice) -> Result<Memory, NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok(Memory {
            total: Bytes(info.total),
            used: Bytes(info.used),
            free: Bytes(info.free),
            reserved: Bytes(info.reserved),
        }),
        Err(error) if is_too_new(&error) => first_memory(nvml, device),
        Err(error) => Err(error),
    }
}

fn first_memory(nvml: &Nvml, device: &NvmlDevice) -> Result<Memory, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle is one that this very NVML gave out and that lives no
    // longer than it, and `info` is what the call fills in.
    nvml_try(unsafe { call(device.handle(), &raw mut info) })?;
    Ok(Memory {
        total: Bytes(info.total),
        used: Bytes(info.used),
        free: Bytes(info.free),
        reserved: Bytes(0),
    })
}

/// Whether a call failed because the driver is older than it.
fn is_too_new(error: &NvmlError) -> bool {
    const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    matches!(
        error,
        NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::NotSupported
            | NvmlError::UnexpectedVariant(ARGUMENT_VERSION_MISMATCH)
    )
}

/// NVML writes the domain with eight digits, sysfs with four.
fn bus_id(nvml: &str) -> String {
    let short = nvml.strip_prefix("0000").filter(|rest| rest.len() == 12);
    short.unwrap_or(nvml).to_ascii_lowercase()
}

/// The profile is the end of an instance's name: `NVIDIA A100 MIG 1g.5gb`.
fn profile(name: &str) -> Option<String> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    Some(profile.to_owned())
}

pub(super) fn percent(number: u32) -> Percent {
    Percent(u8::try_from(number.min(100)).unwrap_or(100))
}

fn milliwatts(number: u32) -> Milliwatts {
    Milliwatts(u64::from(number))
}
