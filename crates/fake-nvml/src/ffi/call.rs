//! What every call has in common.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::events;
use crate::{Code, FakeState};

/// How often the library was initialised and not yet shut down.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// A call in progress.
pub(super) struct Call {
    /// The C function's name, by which faults are found.
    pub(super) function: &'static str,
    /// The machine.
    pub(super) state: FakeState,
}

/// Runs the body of an NVML function.
pub(super) fn call(function: &'static str, body: impl FnOnce(&Call) -> Result<(), Code>) -> u32 {
    guarded(|| {
        if USERS.load(Ordering::SeqCst) == 0 {
            return Err(Code::Uninitialized);
        }
        body(&begin(function)?)
    })
}

/// `nvmlInit`, in whichever version.
pub(super) fn init(function: &'static str) -> u32 {
    guarded(|| {
        let call = begin(function)?;
        if let Some(code) = call.state.read_driver()?.init {
            return Err(code);
        }
        events::forget_past(&call.state)?;
        USERS.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })
}

/// `nvmlShutdown`. It needs no machine.
pub(super) fn shutdown() -> u32 {
    guarded(|| {
        USERS
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
            .map_err(|_| Code::Uninitialized)?;
        Ok(())
    })
}

fn begin(function: &'static str) -> Result<Call, Code> {
    let state = FakeState::from_env().ok_or(Code::DriverNotLoaded)?;
    match state.read_driver()?.fail.get(function) {
        Some(code) => Err(*code),
        None => Ok(Call { function, state }),
    }
}

fn guarded(body: impl FnOnce() -> Result<(), Code>) -> u32 {
    // No state of ours is left half changed by a panic: all of it is files
    // that are replaced whole, and counters.
    let code = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Success,
        Ok(Err(code)) => code,
        Err(_panic) => Code::Unknown,
    };
    code as u32
}
