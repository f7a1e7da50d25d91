//! Which devices there are, and who they are.

use std::ffi::{c_char, c_int};

use super::call::unreadable;
use super::nvml;
use super::pointers::{Out, TextIn, TextOut};
use super::target::{CallTarget, NvmlHandle, devices, handle_to};
use crate::device::pci_address;
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

nvml!(nvmlDeviceGetCount | nvmlDeviceGetCount_v2: fn(count: Out<u32>) |call| {
    count.put(u32::try_from(devices(call)?.len()).map_err(|_| Code::Unknown)?)
});

nvml!(nvmlDeviceGetHandleByIndex | nvmlDeviceGetHandleByIndex_v2:
fn(index: u32, handle: Out<NvmlHandle>) |call| {
    let found = call.state.read_device(index).map_err(unreadable)?;
    handle.put(handle_to(&found.ok_or(Code::InvalidArgument)?, None)?)
});

nvml!(nvmlDeviceGetHandleByUUID: fn(uuid: TextIn, handle: Out<NvmlHandle>) |call| {
    let uuid = uuid.get()?;
    for device in devices(call)? {
        if device.uuid == uuid {
            return handle.put(handle_to(&device, None)?);
        }
        if let Some(instance) = device.instances().iter().find(|i| i.uuid == uuid) {
            return handle.put(handle_to(&device, Some(instance.slot))?);
        }
    }
    Err(Code::NotFound)
});

nvml!(nvmlDeviceGetHandleByPciBusId | nvmlDeviceGetHandleByPciBusId_v2:
fn(bus_id: TextIn, handle: Out<NvmlHandle>) |call| {
    let wanted = pci_address(bus_id.get()?).ok_or(Code::InvalidArgument)?;
    let found = devices(call)?.into_iter().find(|d| d.pci_address() == Some(wanted));
    handle.put(handle_to(&found.ok_or(Code::NotFound)?, None)?)
});

nvml!(nvmlDeviceGetHandleBySerial: fn(serial: TextIn, handle: Out<NvmlHandle>) |call| {
    let wanted = Some(serial.get()?);
    let found = devices(call)?.into_iter().find(|d| d.serial.as_deref() == wanted);
    handle.put(handle_to(&found.ok_or(Code::NotFound)?, None)?)
});

nvml!(nvmlDeviceGetName: fn(handle: NvmlHandle, name: TextOut, length: u32) |call| {
    let target = CallTarget::identify(call, handle)?;
    match &target.instance {
        None => name.put(&target.device.name, length),
        Some(part) => name.put(&format!("{} MIG {}", target.device.name, part.profile), length),
    }
});

nvml!(nvmlDeviceGetUUID: fn(handle: NvmlHandle, uuid: TextOut, length: u32) |call| {
    uuid.put(CallTarget::identify(call, handle)?.uuid(), length)
});

nvml!(nvmlDeviceGetSerial: fn(handle: NvmlHandle, serial: TextOut, length: u32) |call| {
    let target = CallTarget::identify(call, handle)?;
    let text = target.whole()?.serial.as_ref().ok_or(Code::NotSupported)?;
    serial.put(text, length)
});

nvml!(nvmlDeviceGetIndex: fn(handle: NvmlHandle, index: Out<u32>) |call| {
    let target = CallTarget::identify(call, handle)?;
    index.put(target.instance.map_or(target.device.index, |part| part.slot))
});

nvml!(nvmlDeviceGetMinorNumber: fn(handle: NvmlHandle, minor: Out<u32>) |call| {
    minor.put(CallTarget::identify(call, handle)?.whole()?.minor)
});

nvml!(nvmlDeviceGetCudaComputeCapability:
fn(handle: NvmlHandle, major: Out<c_int>, minor: Out<c_int>) |call| {
    let capability = CallTarget::identify(call, handle)?.device.compute_capability;
    major.put(capability.0)?;
    minor.put(capability.1)
});

nvml!(nvmlDeviceGetPciInfo_v2 | nvmlDeviceGetPciInfo_v3:
fn(handle: NvmlHandle, info: Out<PciInfo>) |call| {
    info.put(pci_info(CallTarget::identify(call, handle)?.whole()?)?)
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
