//! Devices that are divided.

use super::nvml;
use super::pointers::Pointer;
use super::target::{NvmlHandle, handle_to};
use crate::{Code, Mig};

/// How many instances the largest devices can be divided into.
const MOST: u32 = 7;

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Default)]
pub struct Attributes {
    multiprocessors: u32,
    shared_copy_engines: u32,
    shared_decoders: u32,
    shared_encoders: u32,
    shared_jpeg: u32,
    shared_ofa: u32,
    gpu_instance_slices: u32,
    compute_instance_slices: u32,
    memory_size_mb: u64,
}

nvml!(nvmlDeviceGetMigMode: fn(handle: NvmlHandle, current: Pointer<u32>, pending: Pointer<u32>) |call| {
    let target = call.read(handle)?;
    let mode = match target.whole()?.mig {
        Mig::Unsupported => return Err(Code::NotSupported),
        Mig::Disabled => 0,
        Mig::Enabled(_) => 1,
    };
    current.put(mode)?;
    pending.put(mode)
});

nvml!(nvmlDeviceGetMaxMigDeviceCount: fn(handle: NvmlHandle, count: Pointer<u32>) |call| {
    let target = call.read(handle)?;
    count.put(match target.whole()?.mig {
        Mig::Unsupported => 0,
        Mig::Disabled | Mig::Enabled(_) => MOST,
    })
});

nvml!(nvmlDeviceGetMigDeviceHandleByIndex:
fn(handle: NvmlHandle, slot: u32, instance: Pointer<NvmlHandle>) |call| {
    let target = call.read(handle)?;
    let device = target.whole()?;
    if slot >= MOST {
        return Err(Code::InvalidArgument);
    }
    if !device.instances().iter().any(|instance| instance.slot == slot) {
        return Err(Code::NotFound);
    }
    instance.put(handle_to(device, Some(slot))?)
});

nvml!(nvmlDeviceGetDeviceHandleFromMigDeviceHandle:
fn(instance: NvmlHandle, parent: Pointer<NvmlHandle>) |call| {
    let target = call.identify(instance)?;
    target.part()?;
    parent.put(handle_to(&target.device, None)?)
});

nvml!(nvmlDeviceIsMigDeviceHandle: fn(handle: NvmlHandle, answer: Pointer<u32>) |call| {
    let target = call.identify(handle)?;
    answer.put(u32::from(target.instance.is_some()))
});

nvml!(nvmlDeviceGetGpuInstanceId: fn(instance: NvmlHandle, id: Pointer<u32>) |call| {
    id.put(call.identify(instance)?.part()?.gpu_instance)
});

nvml!(nvmlDeviceGetComputeInstanceId: fn(instance: NvmlHandle, id: Pointer<u32>) |call| {
    id.put(call.identify(instance)?.part()?.compute_instance)
});

nvml!(nvmlDeviceGetAttributes | nvmlDeviceGetAttributes_v2:
fn(instance: NvmlHandle, attributes: Pointer<Attributes>) |call| {
    let target = call.read(instance)?;
    let part = target.instance.as_ref().ok_or(Code::NotSupported)?;
    // `2g.10gb` has two slices of the device.
    let slices = part.profile.split_once('g').and_then(|(n, _)| n.parse().ok());
    let slices: u32 = slices.unwrap_or(1);
    attributes.put(Attributes {
        multiprocessors: 14 * slices,
        shared_copy_engines: slices,
        gpu_instance_slices: slices,
        compute_instance_slices: slices,
        memory_size_mb: part.memory_total >> 20,
        ..Attributes::default()
    })
});
