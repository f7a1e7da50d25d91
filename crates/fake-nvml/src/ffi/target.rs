//! What a handle stands for.

use std::ffi::c_void;
use std::time::Duration;

use super::call::Call;
use crate::{Code, FakeDevice, FakeUnit, Lost};

/// `nvmlDevice_t`: the index plus one in the low 16 bits, the MIG slot plus one
/// in the next 16. Never null, never followed.
pub(super) type NvmlHandle = *mut c_void;

/// What stands for an instance's number when there is no instance.
pub(super) const NO_INSTANCE: u32 = u32::MAX;

impl Call {
    /// What `handle` stands for, to take a reading of it.
    pub(super) fn read(&self, handle: NvmlHandle) -> Result<FakeUnit, Code> {
        let unit = self.find(handle)?;
        match unit.device.faults.lost {
            None => Ok(unit),
            Some(_) => Err(Code::GpuIsLost),
        }
    }

    /// What `handle` stands for, to say something that the driver remembers
    /// even of a device that is lost.
    pub(super) fn identify(&self, handle: NvmlHandle) -> Result<FakeUnit, Code> {
        let unit = self.find(handle)?;
        match unit.device.faults.lost {
            Some(Lost::Entirely) => Err(Code::GpuIsLost),
            _ => Ok(unit),
        }
    }

    fn find(&self, handle: NvmlHandle) -> Result<FakeUnit, Code> {
        let (index, slot) = decode(handle).ok_or(Code::InvalidArgument)?;
        let device = self.state.read_device(index)?;
        let device = device.ok_or(Code::InvalidArgument)?;
        be_slow(device.faults.slow_ms);
        self.state.wait_while_hung(index, self.function)?;
        if let Some(code) = device.faults.fail.get(self.function) {
            return Err(*code);
        }
        let instance = slot.map(|slot| {
            let found = device.instances().iter().find(|i| i.slot == slot);
            found.cloned().ok_or(Code::InvalidArgument)
        });
        let instance = instance.transpose()?;
        Ok(FakeUnit { device, instance })
    }
}

impl FakeUnit {
    /// The device, when it is not just an instance of it.
    pub(super) fn whole(&self) -> Result<&FakeDevice, Code> {
        match self.instance {
            None => Ok(&self.device),
            Some(_) => Err(Code::NotSupported),
        }
    }
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

/// The fault of a driver that takes its time.
#[expect(clippy::disallowed_methods, reason = "the sleep is the very fault that is asked for")]
fn be_slow(milliseconds: u64) {
    if milliseconds > 0 {
        std::thread::sleep(Duration::from_millis(milliseconds));
    }
}
