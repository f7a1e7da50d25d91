//! Which cores are near.

use std::ffi::c_ulong;

use super::nvml;
use super::pointers::Array;
use super::target::{CallTarget, NvmlHandle};
use crate::{Code, FakeDevice};

nvml!(nvmlDeviceGetCpuAffinity: fn(handle: NvmlHandle, words: u32, set: Array<c_ulong>) |call| {
    let target = CallTarget::read(call, handle)?;
    set.put(core_set(&target.device, words)?.into_iter())
});

nvml!(nvmlDeviceGetCpuAffinityWithinScope:
fn(handle: NvmlHandle, words: u32, set: Array<c_ulong>, scope: u32) |call| {
    let target = CallTarget::read(call, handle)?;
    // 0 is the NUMA node, 1 the socket; ours have one node a socket.
    if scope > 1 {
        return Err(Code::InvalidArgument);
    }
    set.put(core_set(&target.device, words)?.into_iter())
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
        let word = set
            .get_mut((core / c_ulong::BITS) as usize)
            .ok_or(Code::InsufficientSize)?;
        *word |= 1 << (core % c_ulong::BITS);
    }
    Ok(set)
}
