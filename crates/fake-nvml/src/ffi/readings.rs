//! What changes from moment to moment.

use super::call::Call;
use super::nvml;
use super::pointers::Pointer;
use super::target::NvmlHandle;
use crate::{Code, FakeDevice, FakeUnit, Mig};

/// `nvmlMemory_t`.
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub struct Utilization {
    gpu: u32,
    memory: u32,
}

/// The size of the structure and its version, by which NVML tells versions apart.
const MEMORY_V2: u32 = 40 + (2 << 24);

/// The only sensor that NVML has: the chip itself.
const CHIP: u32 = 0;

nvml!(nvmlDeviceGetMemoryInfo: fn(handle: NvmlHandle, info: Pointer<Memory>) |call| {
    let memory = memory(call, &call.read(handle)?)?;
    // The first version knows no reserved memory and counts it as used.
    info.put(Memory {
        total: memory.total,
        free: memory.free,
        used: memory.total - memory.free,
    })
});

nvml!(nvmlDeviceGetMemoryInfo_v2: fn(handle: NvmlHandle, info: Pointer<MemoryV2>) |call| {
    if info.get()?.version != MEMORY_V2 {
        return Err(Code::ArgumentVersionMismatch);
    }
    info.put(memory(call, &call.read(handle)?)?)
});

nvml!(nvmlDeviceGetUtilizationRates: fn(handle: NvmlHandle, rates: Pointer<Utilization>) |call| {
    let gpu = utilisation(call, call.read(handle)?.whole()?)?;
    rates.put(Utilization { gpu, memory: gpu / 2 })
});

nvml!(nvmlDeviceGetTemperature: fn(handle: NvmlHandle, sensor: u32, temperature: Pointer<u32>) |call| {
    let target = call.read(handle)?;
    if sensor != CHIP {
        return Err(Code::InvalidArgument);
    }
    temperature.put(target.whole()?.temperature.ok_or(Code::NotSupported)?)
});

nvml!(nvmlDeviceGetPowerUsage: fn(handle: NvmlHandle, milliwatts: Pointer<u32>) |call| {
    milliwatts.put(call.read(handle)?.whole()?.power.ok_or(Code::NotSupported)?)
});

nvml!(nvmlDeviceGetPowerManagementLimit | nvmlDeviceGetEnforcedPowerLimit:
fn(handle: NvmlHandle, milliwatts: Pointer<u32>) |call| {
    milliwatts.put(call.read(handle)?.whole()?.power_limit.ok_or(Code::NotSupported)?)
});

nvml!(nvmlDeviceGetComputeMode: fn(handle: NvmlHandle, mode: Pointer<u32>) |call| {
    mode.put(call.read(handle)?.whole()?.compute_mode as u32)
});

nvml!(nvmlDeviceGetDisplayActive: fn(handle: NvmlHandle, active: Pointer<u32>) |call| {
    let active_now = call.read(handle)?.whole()?.display_active;
    active.put(u32::from(active_now.ok_or(Code::NotSupported)?))
});

fn memory(call: &Call, unit: &FakeUnit) -> Result<MemoryV2, Code> {
    let used = call.state.used(&unit.device, unit.uuid())?;
    let (total, reserved) = unit.device.memory_of(unit.uuid());
    let used = used.min(total.saturating_sub(reserved));
    Ok(MemoryV2 {
        version: MEMORY_V2,
        total,
        reserved,
        free: total.saturating_sub(reserved + used),
        used,
    })
}

fn utilisation(call: &Call, device: &FakeDevice) -> Result<u32, Code> {
    if let Mig::Enabled(_) = device.mig {
        return Err(Code::NotSupported);
    }
    let idle = device.utilisation.ok_or(Code::NotSupported)?;
    let processes = call.state.read_processes(&device.uuid)?;
    let busy: u32 = processes.iter().map(|process| process.utilisation).sum();
    Ok((idle + busy).min(100))
}
