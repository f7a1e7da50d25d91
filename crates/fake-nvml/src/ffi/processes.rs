//! Who is on a device.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::call::{Call, unreadable};
use super::nvml;
use super::pointers::{Array, InOut};
use super::target::{CallTarget, NvmlHandle};
use crate::{Code, FakeProcess, Growth, ProcessKind};

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
pub struct ProcessRowV1 {
    pid: u32,
    memory: u64,
}

/// `nvmlProcessInfo_t`, as the second and third version of the calls have it.
#[repr(C)]
pub struct ProcessRow {
    pid: u32,
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// What stands for the instance when there is none.
const NO_INSTANCE: u32 = u32::MAX;

/// The ids of processes that appear by the fault [`Growth`].
const GROWN: u32 = 4_000_000;

nvml!(nvmlDeviceGetComputeRunningProcesses:
fn(handle: NvmlHandle, count: InOut<u32>, rows: Array<ProcessRowV1>) |call| {
    let listed = list(call, handle, ProcessKind::Compute, is_question(&count, &rows)?)?;
    fill(&count, &rows, listed.into_iter().map(ProcessRowV1::from))
});

nvml!(nvmlDeviceGetComputeRunningProcesses_v2 | nvmlDeviceGetComputeRunningProcesses_v3:
fn(handle: NvmlHandle, count: InOut<u32>, rows: Array<ProcessRow>) |call| {
    let listed = list(call, handle, ProcessKind::Compute, is_question(&count, &rows)?)?;
    fill(&count, &rows, listed.into_iter())
});

nvml!(nvmlDeviceGetGraphicsRunningProcesses:
fn(handle: NvmlHandle, count: InOut<u32>, rows: Array<ProcessRowV1>) |call| {
    let listed = list(call, handle, ProcessKind::Graphics, is_question(&count, &rows)?)?;
    fill(&count, &rows, listed.into_iter().map(ProcessRowV1::from))
});

nvml!(nvmlDeviceGetGraphicsRunningProcesses_v2 | nvmlDeviceGetGraphicsRunningProcesses_v3:
fn(handle: NvmlHandle, count: InOut<u32>, rows: Array<ProcessRow>) |call| {
    let listed = list(call, handle, ProcessKind::Graphics, is_question(&count, &rows)?)?;
    fill(&count, &rows, listed.into_iter())
});

nvml!(nvmlDeviceGetMPSComputeRunningProcesses_v2
    | nvmlDeviceGetMPSComputeRunningProcesses_v3:
fn(handle: NvmlHandle, count: InOut<u32>, rows: Array<ProcessRow>) |call| {
    let listed = list(call, handle, ProcessKind::Mps, is_question(&count, &rows)?)?;
    fill(&count, &rows, listed.into_iter())
});

impl From<ProcessRow> for ProcessRowV1 {
    fn from(row: ProcessRow) -> Self {
        Self {
            pid: row.pid,
            memory: row.memory,
        }
    }
}

/// Whether the caller only wants to know how long the list is.
fn is_question<R>(count: &InOut<u32>, rows: &Array<R>) -> Result<bool, Code> {
    Ok(rows.is_null() || count.get()? == 0)
}

/// Gives the list if there is room for it, and its length in any case.
fn fill<R>(
    count: &InOut<u32>,
    rows: &Array<R>,
    listed: impl ExactSizeIterator<Item = R>,
) -> Result<(), Code> {
    let room = count.get()? as usize;
    let length = listed.len();
    count.put(u32::try_from(length).map_err(|_| Code::Unknown)?)?;
    if length == 0 {
        return Ok(());
    }
    if length > room || rows.is_null() {
        return Err(Code::InsufficientSize);
    }
    rows.put(listed)
}

/// Whether a process appears in a list.
fn is_listed(process: ProcessKind, list: ProcessKind) -> bool {
    process == list || (process == ProcessKind::Both && list != ProcessKind::Mps)
}

fn list(
    call: &Call,
    handle: NvmlHandle,
    kind: ProcessKind,
    question: bool,
) -> Result<Vec<ProcessRow>, Code> {
    let target = CallTarget::read(call, handle)?;
    if kind == ProcessKind::Compute && question {
        // Whoever looks asks for this length, and does so once.
        call.state.count_look(target.uuid()).map_err(unreadable)?;
    }
    let mut rows = Vec::new();
    let mut add = |uuid: &str, gpu_instance, compute_instance| -> Result<(), Code> {
        let processes = call.state.read_processes(uuid).map_err(unreadable)?;
        let of_kind = processes
            .into_iter()
            .filter(|process| is_listed(process.kind, kind));
        rows.extend(of_kind.map(|FakeProcess { pid, memory, .. }| ProcessRow {
            pid,
            memory,
            gpu_instance,
            compute_instance,
        }));
        Ok(())
    };
    if let Some(part) = &target.instance {
        add(&part.uuid, part.gpu_instance, part.compute_instance)?;
    } else {
        add(&target.device.uuid, NO_INSTANCE, NO_INSTANCE)?;
        for part in target.device.instances() {
            add(&part.uuid, part.gpu_instance, part.compute_instance)?;
        }
    }
    if let Some(growth) = target.device.faults.growth
        && kind == ProcessKind::Compute
    {
        rows.extend(
            (0..grown(call, handle, growth, question)).map(|n| ProcessRow {
                pid: GROWN + n,
                memory: 1 << 20,
                gpu_instance: NO_INSTANCE,
                compute_instance: NO_INSTANCE,
            }),
        );
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
