//! Which cores are near.

use std::ffi::c_ulong;

use super::nvml;
use super::pointers::Pointer;
use super::target::NvmlHandle;
use crate::{Code, FakeDevice};

nvml!(nvmlDeviceGetCpuAffinity:
fn(handle: NvmlHandle, words: u32, set: Pointer<c_ulong>) |call| {
    set.put_all(core_set(&call.read(handle)?.device, words)?)
});

fn core_set(device: &FakeDevice, words: u32) -> Result<Vec<c_ulong>, Code> {
    if words == 0 {
        return Err(Code::InvalidArgument);
    }
    if device.near_cores.is_empty() {
        return Err(Code::NotSupported);
    }
    let mut set = vec![0; words as usize];
    for core in &device.near_cores {
        let word = set.get_mut((core / c_ulong::BITS) as usize);
        *word.ok_or(Code::InsufficientSize)? |= 1 << (core % c_ulong::BITS);
    }
    Ok(set)
}
