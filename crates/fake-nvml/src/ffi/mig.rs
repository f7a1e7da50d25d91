//! Devices that are divided.

use super::nvml;
use super::pointers::Pointer;
use super::target::{NvmlHandle, handle_to};
use crate::{Code, Mig};

/// How many instances the largest devices can be divided into.
const MOST: u32 = 7;

nvml!(nvmlDeviceGetMigMode:
fn(handle: NvmlHandle, current: Pointer<u32>, pending: Pointer<u32>) |call| {
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
