//! Who is on a device.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::call::Call;
use super::nvml;
use super::pointers::Pointer;
use super::target::{NO_INSTANCE, NvmlHandle};
use crate::{Code, Growth, ProcessKind};

/// `nvmlProcessInfo_t`, as the second and third version of the calls have it.
#[repr(C)]
pub struct ProcessRow {
    pid: u32,
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// The ids of processes that appear by the fault [`Growth`].
const GROWN: u32 = 4_000_000;

nvml!(nvmlDeviceGetComputeRunningProcesses_v2 | nvmlDeviceGetComputeRunningProcesses_v3:
fn(handle: NvmlHandle, count: Pointer<u32>, rows: Pointer<ProcessRow>) |call| {
    list(call, handle, ProcessKind::Compute, &count, &rows)
});

nvml!(nvmlDeviceGetGraphicsRunningProcesses_v2 | nvmlDeviceGetGraphicsRunningProcesses_v3:
fn(handle: NvmlHandle, count: Pointer<u32>, rows: Pointer<ProcessRow>) |call| {
    list(call, handle, ProcessKind::Graphics, &count, &rows)
});

nvml!(nvmlDeviceGetMPSComputeRunningProcesses_v2
    | nvmlDeviceGetMPSComputeRunningProcesses_v3:
fn(handle: NvmlHandle, count: Pointer<u32>, rows: Pointer<ProcessRow>) |call| {
    list(call, handle, ProcessKind::Mps, &count, &rows)
});

/// Gives the list if there is room for it, and its length in any case.
fn list(
    call: &Call,
    handle: NvmlHandle,
    kind: ProcessKind,
    count: &Pointer<u32>,
    rows: &Pointer<ProcessRow>,
) -> Result<(), Code> {
    let room = count.get()?;
    // Whether the caller only wants to know how long the list is.
    let question = rows.is_null() || room == 0;
    let listed = processes(call, handle, kind, question)?;
    let length = u32::try_from(listed.len()).map_err(|_| Code::Unknown)?;
    count.put(length)?;
    if length == 0 {
        return Ok(());
    }
    if length > room || rows.is_null() {
        return Err(Code::InsufficientSize);
    }
    rows.put_all(listed)
}

/// Whether a process appears in a list.
fn is_listed(process: ProcessKind, list: ProcessKind) -> bool {
    process == list || (process == ProcessKind::Both && list != ProcessKind::Mps)
}

fn processes(
    call: &Call,
    handle: NvmlHandle,
    kind: ProcessKind,
    question: bool,
) -> Result<Vec<ProcessRow>, Code> {
    let target = call.read(handle)?;
    if kind == ProcessKind::Compute && question {
        // Whoever looks asks for this length, and does so once.
        call.state.count_look(target.uuid())?;
    }
    let mut rows = Vec::new();
    let mut add = |uuid: &str, gpu_instance, compute_instance| -> Result<(), Code> {
        let mut processes = call.state.read_processes(uuid)?;
        processes.retain(|process| is_listed(process.kind, kind));
        rows.extend(processes.iter().map(|process| ProcessRow {
            pid: process.pid,
            memory: process.memory,
            gpu_instance,
            compute_instance,
        }));
        Ok(())
    };
    let mut instances = target.instance.as_slice();
    if instances.is_empty() {
        add(&target.device.uuid, NO_INSTANCE, NO_INSTANCE)?;
        instances = target.device.instances();
    }
    for part in instances {
        add(&part.uuid, part.gpu_instance, part.compute_instance)?;
    }
    if let Some(growth) = target.device.faults.growth
        && kind == ProcessKind::Compute
    {
        let grown = 0..grown(call, handle, growth, question);
        rows.extend(grown.map(|number| ProcessRow {
            pid: GROWN + number,
            memory: 1 << 20,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        }));
    }
    Ok(rows)
}

/// How many processes have appeared by now: the list grows each time right
/// after somebody has asked for its length.
fn grown(call: &Call, handle: NvmlHandle, growth: Growth, question: bool) -> u32 {
    static ASKED: Mutex<BTreeMap<(PathBuf, usize), u32>> = Mutex::new(BTreeMap::new());
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (call.state.path().to_owned(), handle.addr());
    let times = asked.entry(key).or_default();
    let so_far = *times;
    *times += u32::from(question);
    growth.by * so_far.min(growth.times)
}
