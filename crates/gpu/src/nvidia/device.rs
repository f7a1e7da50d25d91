//! Reads devices one by one.

use std::collections::BTreeMap;

use nvml_wrapper::enum_wrappers::device::{ComputeMode as NvmlComputeMode, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper_sys::bindings::nvmlMemory_t;
use packhorse_model::{Bytes, CoreId};

use super::Nvidia;
use super::broken::{lost, not_found};
use crate::driver::Detail;
use crate::process::ProcessLookup;
use crate::{
    Celsius, ComputeMode, Device, DeviceMemory, Health, MigInstance, Milliwatts, Percent,
    ProcessMemory, Vendor, cores,
};

pub(super) type NvmlDevice<'nvml> = nvml_wrapper::Device<'nvml>;

/// How often to try to read a process list that keeps outgrowing its buffer.
const LIST_TRIES: u32 = 8;

/// The length of a core set in words: enough for 4096 cores.
const CORE_WORDS: usize = 64;

/// Reads all devices once.
pub(super) struct DeviceReader<'a> {
    driver: &'a Nvidia,
    lookup: ProcessLookup,
    detail: Detail,
}

/// Reads one device and notices when it is lost. A lost device is not read any
/// further: each call could take seconds.
pub(super) struct HealthTracker {
    pub(super) health: Health,
}

impl HealthTracker {
    /// A reading, if the device has it.
    pub(super) fn read<T>(&mut self, read: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        if self.health != Health::Ok {
            return None;
        }
        let lost_by = |error: &NvmlError| {
            if let Some(reason) = lost(error) {
                self.health = Health::Lost(reason.to_owned());
            }
        };
        read().inspect_err(lost_by).ok()
    }
}

impl<'a> DeviceReader<'a> {
    pub(super) fn new(driver: &'a Nvidia, detail: Detail) -> Self {
        Self { driver, lookup: ProcessLookup::default(), detail }
    }

    /// The device with this index, whatever state it is in.
    pub(super) fn device(&mut self, index: u32) -> Device {
        let mut device = Device::unknown(index, Vendor::Nvidia);
        let handle = match self.driver.nvml.device_by_index(index) {
            Ok(handle) => handle,
            Err(error) => {
                device.health = Health::Lost(not_found(&error));
                return device;
            }
        };
        let mut tracker = HealthTracker { health: Health::Ok };
        device.uuid = tracker.read(|| handle.uuid());
        device.name = tracker.read(|| handle.name());
        device.pci_bus_id = tracker.read(|| handle.pci_info()).map(|pci| bus_id(&pci.bus_id));
        device.minor = tracker.read(|| handle.minor_number());
        // Every device has this reading: without it, there is no device.
        device.memory = tracker.read(|| memory(self.driver, &handle));
        device.near_cores = tracker
            .read(|| handle.cpu_affinity(CORE_WORDS))
            .map(|words| cores::from_words(&words))
            .or_else(|| self.cores_by_address(device.pci_bus_id.as_deref()?))
            .unwrap_or_default();
        device.mig = self.instances(&mut tracker, &handle);
        device.compute_mode = tracker.read(|| handle.compute_mode()).map(compute_mode);
        device.draws_desktop = tracker.read(|| handle.is_display_active());
        if self.detail == Detail::Everything {
            device.utilisation =
                tracker.read(|| handle.utilization_rates()).map(|rates| percent(rates.gpu));
            device.temperature = tracker
                .read(|| handle.temperature(TemperatureSensor::Gpu))
                .and_then(|degrees| i32::try_from(degrees).ok())
                .map(Celsius);
            device.power = tracker.read(|| handle.power_usage()).map(milliwatts);
            let limit = || {
                let enforced = handle.enforced_power_limit();
                enforced.or_else(|_| handle.power_management_limit())
            };
            device.power_limit = tracker.read(limit).map(milliwatts);
            device.processes = self.lookup.processes(holders(&mut tracker, &handle));
        }
        device.health = tracker.health;
        device
    }

    /// The instances of a device in MIG mode.
    fn instances(
        &mut self,
        tracker: &mut HealthTracker,
        handle: &NvmlDevice,
    ) -> Option<Vec<MigInstance>> {
        const ENABLED: u32 = 1;
        let mode = tracker.read(|| handle.mig_mode())?;
        if mode.current != ENABLED {
            return None;
        }
        let slots = tracker.read(|| handle.mig_device_count()).unwrap_or(0);
        // There may be empty slots before filled ones.
        let instances = (0..slots).filter_map(|slot| {
            let part = tracker.read(|| handle.mig_device_by_index(slot))?;
            let uuid = tracker.read(|| part.uuid())?;
            let name = tracker.read(|| part.name());
            let processes = match self.detail {
                Detail::Identity => None,
                Detail::Everything => self.lookup.processes(holders(tracker, &part)),
            };
            Some(MigInstance {
                uuid,
                profile: name.as_deref().and_then(profile),
                memory: tracker.read(|| memory(self.driver, &part)),
                processes,
            })
        });
        Some(instances.collect())
    }

    /// The cores near a device as the kernel knows them: by its own list, or by the NUMA
    /// node that it is in.
    fn cores_by_address(&self, bus_id: &str) -> Option<Vec<CoreId>> {
        let sysfs = &self.driver.sysfs;
        let device = sysfs.join("bus/pci/devices").join(bus_id);
        let list = |file| cores::parse_list(&fs_err::read_to_string(file).ok()?);
        list(device.join("local_cpulist")).or_else(|| {
            // On a machine with one part it is -1.
            let node = fs_err::read_to_string(device.join("numa_node")).ok()?;
            let node: u32 = node.trim().parse().ok()?;
            list(sysfs.join(format!("devices/system/node/node{node}/cpulist")))
        })
    }
}

/// The processes on a device and what they hold, by id, each once. `None`: the
/// driver does not tell.
pub(super) fn holders(
    tracker: &mut HealthTracker,
    handle: &NvmlDevice,
) -> Option<Vec<ProcessMemory>> {
    let compute = || {
        let newer = handle.running_compute_processes();
        or_older(newer, || handle.running_compute_processes_v2())
    };
    let graphics = || {
        let newer = handle.running_graphics_processes();
        or_older(newer, || handle.running_graphics_processes_v2())
    };
    let compute = tracker.read(|| retried(compute));
    let graphics = tracker.read(|| retried(graphics));
    // Clients of an MPS server have a list of their own.
    let served = tracker.read(|| retried(|| handle.mps_running_compute_processes()));
    // The other lists may be missing; without the compute list nothing is known.
    let mut held: BTreeMap<u32, ProcessMemory> = BTreeMap::new();
    let computing = compute?.into_iter().chain(served.into_iter().flatten());
    let computing = computing.map(|process| (process, false));
    let drawing = graphics.into_iter().flatten().map(|process| (process, true));
    for (process, draws) in computing.chain(drawing) {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        // A process in several lists is in each with all it holds, and does not only draw.
        let pid = process.pid;
        let known = held.entry(pid).or_insert(ProcessMemory { pid, memory, draws });
        known.memory = known.memory.max(memory);
    }
    Some(held.into_values().collect())
}

/// The answer to the newer form of a call if the driver has that, else to the older one.
fn or_older<T>(
    newer: Result<T, NvmlError>,
    older: impl FnOnce() -> Result<T, NvmlError>,
) -> Result<T, NvmlError> {
    match newer {
        Err(error) if is_too_new(&error) => older(),
        other => other,
    }
}

/// Reads the list again while it outgrows the buffer that was made for it.
fn retried(
    list: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    let outgrown = |answer: &_| matches!(answer, Err(NvmlError::InsufficientSize(_)));
    let mut tries = (1..LIST_TRIES).map(|_| list());
    tries.find(|answer| !outgrown(answer)).unwrap_or_else(list)
}

/// The memory, by the second version of the call if the driver has it: only that
/// tells reserved memory apart.
pub(super) fn memory(driver: &Nvidia, device: &NvmlDevice) -> Result<DeviceMemory, NvmlError> {
    let newer = device.memory_info().map(|info| DeviceMemory {
        total: Bytes(info.total),
        used: Bytes(info.used),
        free: Bytes(info.free),
        reserved: Bytes(info.reserved),
    });
    or_older(newer, || memory_v1(driver, device))
}

fn memory_v1(driver: &Nvidia, device: &NvmlDevice) -> Result<DeviceMemory, NvmlError> {
    let call = nvml_sym(driver.nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the handle comes from this NVML and does not outlive it, and `info` is
    // what the call fills in.
    nvml_try(unsafe { call(device.handle(), &raw mut info) })?;
    Ok(DeviceMemory {
        total: Bytes(info.total),
        used: Bytes(info.used),
        free: Bytes(info.free),
        reserved: Bytes(0),
    })
}

/// Whether a call failed because the driver is older than the call.
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

/// Of one thread there can be no more than of one process.
fn compute_mode(mode: NvmlComputeMode) -> ComputeMode {
    match mode {
        NvmlComputeMode::Default => ComputeMode::Default,
        NvmlComputeMode::ExclusiveThread | NvmlComputeMode::ExclusiveProcess => {
            ComputeMode::ExclusiveProcess
        }
        NvmlComputeMode::Prohibited => ComputeMode::Prohibited,
    }
}

fn milliwatts(number: u32) -> Milliwatts {
    Milliwatts(u64::from(number))
}
