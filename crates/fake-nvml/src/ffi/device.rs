//! Which devices there are, and who they are.

use std::ffi::c_char;

use super::nvml;
use super::pointers::Pointer;
use super::target::{NvmlHandle, handle_to};
use crate::{Code, FakeDevice};

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: u32,
    bus: u32,
    device: u32,
    pci_device_id: u32,
    pci_subsystem_id: u32,
    bus_id: [c_char; 32],
}

nvml!(nvmlDeviceGetCount | nvmlDeviceGetCount_v2: fn(count: Pointer<u32>) |call| {
    count.put(u32::try_from(call.state.read_devices()?.len()).map_err(|_| Code::Unknown)?)
});

nvml!(nvmlDeviceGetHandleByIndex | nvmlDeviceGetHandleByIndex_v2:
fn(index: u32, handle: Pointer<NvmlHandle>) |call| {
    let found = call.state.read_device(index)?;
    handle.put(handle_to(&found.ok_or(Code::InvalidArgument)?, None)?)
});

nvml!(nvmlDeviceGetHandleByUUID: fn(uuid: Pointer<c_char>, handle: Pointer<NvmlHandle>) |call| {
    let uuid = uuid.text()?;
    for device in call.state.read_devices()? {
        if device.uuid == uuid {
            return handle.put(handle_to(&device, None)?);
        }
        if let Some(instance) = device.instances().iter().find(|i| i.uuid == uuid) {
            return handle.put(handle_to(&device, Some(instance.slot))?);
        }
    }
    Err(Code::NotFound)
});

nvml!(nvmlDeviceGetName: fn(handle: NvmlHandle, name: Pointer<c_char>, length: u32) |call| {
    let target = call.identify(handle)?;
    match &target.instance {
        None => name.put_text(&target.device.name, length),
        Some(part) => name.put_text(&format!("{} MIG {}", target.device.name, part.profile), length),
    }
});

nvml!(nvmlDeviceGetUUID: fn(handle: NvmlHandle, uuid: Pointer<c_char>, length: u32) |call| {
    uuid.put_text(call.identify(handle)?.uuid(), length)
});

nvml!(nvmlDeviceGetIndex: fn(handle: NvmlHandle, index: Pointer<u32>) |call| {
    let target = call.identify(handle)?;
    index.put(target.instance.map_or(target.device.index, |part| part.slot))
});

nvml!(nvmlDeviceGetMinorNumber: fn(handle: NvmlHandle, minor: Pointer<u32>) |call| {
    let target = call.identify(handle)?;
    let device = target.whole()?;
    minor.put(device.minor.unwrap_or(device.index))
});

nvml!(nvmlDeviceGetPciInfo_v2 | nvmlDeviceGetPciInfo_v3:
fn(handle: NvmlHandle, info: Pointer<PciInfo>) |call| {
    info.put(pci_info(call.identify(handle)?.whole()?)?)
});

fn pci_info(device: &FakeDevice) -> Result<PciInfo, Code> {
    let (domain, bus, slot) = device.pci_address().ok_or(Code::Unknown)?;
    Ok(PciInfo {
        bus_id_legacy: fixed(&format!("{domain:04X}:{bus:02X}:{slot:02X}.0")),
        domain,
        bus,
        device: slot,
        pci_device_id: 0xfa4e_10de,
        pci_subsystem_id: 0,
        bus_id: fixed(&device.pci_bus_id),
    })
}

/// The text in a field of fixed length, with at least one zero after it.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from.cast_signed();
    }
    field
}
