//! What a handle stands for.

use std::ffi::c_void;

use super::call::{Call, be_slow, unreadable};
use crate::{Code, FakeDevice, FakeMig, Lost};

/// `nvmlDevice_t`: the index plus one in the low 16 bits, the MIG slot plus one
/// in the next 16. Never null, never followed.
pub(super) type NvmlHandle = *mut c_void;

/// A device or one of its MIG instances.
pub(super) struct CallTarget {
    pub(super) device: FakeDevice,
    pub(super) instance: Option<FakeMig>,
}

impl CallTarget {
    /// What `handle` stands for, to take a reading of it.
    pub(super) fn read(call: &Call, handle: NvmlHandle) -> Result<Self, Code> {
        let target = Self::find(call, handle)?;
        if target.device.faults.lost.is_some() {
            return Err(Code::GpuIsLost);
        }
        Ok(target)
    }

    /// What `handle` stands for, to say something that the driver remembers
    /// even of a device that is lost.
    pub(super) fn identify(call: &Call, handle: NvmlHandle) -> Result<Self, Code> {
        let target = Self::find(call, handle)?;
        if target.device.faults.lost == Some(Lost::Entirely) {
            return Err(Code::GpuIsLost);
        }
        Ok(target)
    }

    fn find(call: &Call, handle: NvmlHandle) -> Result<Self, Code> {
        let (index, slot) = decode(handle).ok_or(Code::InvalidArgument)?;
        let device = call.state.read_device(index).map_err(unreadable)?;
        let device = device.ok_or(Code::InvalidArgument)?;
        be_slow(device.faults.slow_ms);
        let hung = call.state.wait_while_hung(index, call.function);
        hung.map_err(unreadable)?;
        if let Some(code) = device.faults.fail.get(call.function) {
            return Err(*code);
        }
        let instance = match slot {
            None => None,
            Some(slot) => Some(
                device
                    .instances()
                    .iter()
                    .find(|instance| instance.slot == slot)
                    .cloned()
                    .ok_or(Code::InvalidArgument)?,
            ),
        };
        Ok(Self { device, instance })
    }

    /// Of the MIG instance if it is one, else of the device.
    pub(super) fn uuid(&self) -> &str {
        match &self.instance {
            Some(instance) => &instance.uuid,
            None => &self.device.uuid,
        }
    }

    /// The device, when it is not just an instance of it.
    pub(super) fn whole(&self) -> Result<&FakeDevice, Code> {
        match self.instance {
            None => Ok(&self.device),
            Some(_) => Err(Code::NotSupported),
        }
    }

    /// The instance, when it is one.
    pub(super) fn part(&self) -> Result<&FakeMig, Code> {
        self.instance.as_ref().ok_or(Code::InvalidArgument)
    }
}

/// All devices of the machine.
pub(super) fn devices(call: &Call) -> Result<Vec<FakeDevice>, Code> {
    call.state.read_devices().map_err(unreadable)
}

/// A handle to a device, if it can still be had, or to an instance of it.
pub(super) fn handle_to(device: &FakeDevice, slot: Option<u32>) -> Result<NvmlHandle, Code> {
    if device.faults.lost == Some(Lost::Entirely) {
        return Err(Code::GpuIsLost);
    }
    let low = device.index as usize + 1;
    let high = slot.map_or(0, |slot| slot as usize + 1);
    Ok(std::ptr::without_provenance_mut(low | (high << 16)))
}

fn decode(handle: NvmlHandle) -> Option<(u32, Option<u32>)> {
    let number = u32::try_from(handle.addr()).ok()?;
    let index = (number & 0xffff).checked_sub(1)?;
    Some((index, (number >> 16).checked_sub(1)))
}
