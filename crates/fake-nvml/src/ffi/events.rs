//! Waiting for something to happen.
//!
//! A set is told of what happens after the library was initialised, and once: a
//! test need not know when exactly a program begins to wait.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::call::Call;
use super::nvml;
use super::pointers::Pointer;
use super::target::{NO_INSTANCE, NvmlHandle, handle_to};
use crate::event::{FakeEvent, XID};
use crate::{Code, FakeState, wait_for};

/// `nvmlEventSet_t`: a number, never null, never followed.
type SetHandle = *mut c_void;

/// `nvmlEventData_t`.
#[repr(C)]
pub struct EventData {
    device: NvmlHandle,
    kind: u64,
    data: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// Single and double bit errors, performance states, Xids and clocks.
const SUPPORTED: u64 = 0b1_0111 | XID;

/// The sets of this process.
static SETS: Mutex<BTreeMap<usize, Set>> = Mutex::new(BTreeMap::new());

/// The number of the last event of each machine that this process has got past.
static SEEN: Mutex<BTreeMap<PathBuf, u64>> = Mutex::new(BTreeMap::new());

struct Set {
    /// The kinds that are waited for, by device.
    kinds: BTreeMap<u32, u64>,
    /// The number of the last event that this set has got past.
    seen: u64,
}

/// What has happened up to now is of no interest.
pub(super) fn forget_past(state: &FakeState) -> Result<(), Code> {
    let last = state.last_event()?;
    seen().insert(state.path().to_owned(), last);
    Ok(())
}

nvml!(nvmlDeviceGetSupportedEventTypes: fn(handle: NvmlHandle, kinds: Pointer<u64>) |call| {
    call.read(handle)?.whole()?;
    kinds.put(SUPPORTED)
});

nvml!(nvmlEventSetCreate: fn(set: Pointer<SetHandle>) |call| {
    let seen = seen().get(call.state.path()).copied().unwrap_or(0);
    let mut sets = sets();
    let number = sets.last_key_value().map_or(1, |(last, _)| last + 1);
    let kinds = BTreeMap::new();
    sets.insert(number, Set { kinds, seen });
    set.put(std::ptr::without_provenance_mut(number))
});

nvml!(nvmlDeviceRegisterEvents: fn(handle: NvmlHandle, kinds: u64, set: SetHandle) |call| {
    let target = call.read(handle)?;
    let index = target.whole()?.index;
    if kinds & !SUPPORTED != 0 {
        return Err(Code::NotSupported);
    }
    let mut sets = sets();
    let set = sets.get_mut(&set.addr()).ok_or(Code::InvalidArgument)?;
    *set.kinds.entry(index).or_default() |= kinds;
    Ok(())
});

nvml!(nvmlEventSetWait | nvmlEventSetWait_v2:
fn(set: SetHandle, data: Pointer<EventData>, milliseconds: u32) |call| {
    let deadline = Instant::now() + Duration::from_millis(u64::from(milliseconds));
    let look = || Ok(next(call, set).transpose());
    let found = wait_for(&call.state.event_folder(), Some(deadline), look)?;
    let event = found.ok_or(Code::Timeout)??;
    let device = call.state.read_device(event.device)?;
    data.put(EventData {
        device: handle_to(&device.ok_or(Code::Unknown)?, None)?,
        kind: event.kind,
        data: event.data,
        gpu_instance: NO_INSTANCE,
        compute_instance: NO_INSTANCE,
    })
});

nvml!(nvmlEventSetFree: fn(set: SetHandle) |_call| {
    sets().remove(&set.addr()).map(|_| ()).ok_or(Code::InvalidArgument)
});

/// The next event for the set, which has then seen it.
fn next(call: &Call, set: SetHandle) -> Result<Option<FakeEvent>, Code> {
    let last = call.state.last_event()?;
    let mut sets = sets();
    let set = sets.get_mut(&set.addr()).ok_or(Code::InvalidArgument)?;
    while set.seen < last {
        set.seen += 1;
        seen().insert(call.state.path().to_owned(), set.seen);
        let event = call.state.event(set.seen)?;
        let wanted = set.kinds.get(&event.device).copied().unwrap_or(0);
        if wanted & event.kind != 0 {
            return Ok(Some(event));
        }
    }
    Ok(None)
}

fn sets() -> MutexGuard<'static, BTreeMap<usize, Set>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seen() -> MutexGuard<'static, BTreeMap<PathBuf, u64>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}
