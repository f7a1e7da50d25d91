//! Whether a task gets another attempt, and what it is given then.
//!
//! ```text
//!  failed by itself ─────▶ a retry, if one is left
//!  another one's doing ──▶ again, without using up a retry; 16 times at most
//!  out of memory ────────▶ half as much again, or a quarter more than was seen
//!                          ─▶ its devices to itself ─▶ devices with more memory
//!                          ─▶ over; no retry is used up on the way
//! ```

use packhorse_model::{Bytes, GpuRequest, MemoryRequest, Outcome, Request};

use crate::learn::round_up;
use crate::refusal::impossible;
use crate::state::{AttemptRecord, SchedulerState};
use crate::{EndCause, RetryReason};

/// More often than this, another one's doing is as good as its own.
const MOST_COLLATERAL: u8 = 16;

/// What comes after an attempt.
pub(crate) enum Next {
    /// The task is over.
    Finish(Outcome),
    /// It goes back in line, and may need something else.
    Again(RetryReason, Option<Request>),
}

/// What comes after `ended`.
pub(crate) fn next(
    state: &SchedulerState,
    ended: &AttemptRecord,
    outcome: Outcome,
    cause: EndCause,
) -> Next {
    let record = state.tasks.get(ended.task);
    if ended.attempt == 0 {
        // The task itself has not run: whatever its probe did, it has not
        // succeeded.
        return if ended.stopping || outcome == Outcome::Interrupted {
            Next::Finish(Outcome::Interrupted)
        } else {
            Next::Again(RetryReason::Probed, None)
        };
    }
    // An attempt's number has to stay a u32, however many were asked for.
    if ended.stopping || outcome.is_success() || ended.attempt == u32::MAX {
        return Next::Finish(outcome);
    }
    match cause {
        EndCause::Collateral if record.collateral < MOST_COLLATERAL => {
            return Next::Again(RetryReason::Collateral, None);
        }
        EndCause::OutOfMemory { peak } if outcome.is_worth_retrying() => {
            let request = &state.queue.demand(ended.class).request;
            if request.gpus != GpuRequest::None {
                if let Some((why, request)) = more_memory(state, ended, request, peak) {
                    return Next::Again(why, Some(request));
                }
                // One that never asked for memory may still have its retries.
                if request.memory != MemoryRequest::Uncounted {
                    return Next::Finish(outcome);
                }
            }
        }
        EndCause::Own | EndCause::OutOfMemory { .. } | EndCause::Collateral => {}
    }
    if outcome.is_worth_retrying() && record.retries > 0 {
        Next::Again(RetryReason::Retry, None)
    } else {
        Next::Finish(outcome)
    }
}

/// The next rung for an attempt that ran out of memory; `None` at the top.
fn more_memory(
    state: &SchedulerState,
    ended: &AttemptRecord,
    request: &Request,
    peak: Bytes,
) -> Option<(RetryReason, Request)> {
    let possible = |request: Request| {
        let refusal = impossible(&state.ledger, &request);
        refusal.is_none().then_some(request)
    };
    if let MemoryRequest::Bytes(promised) = request.memory {
        let half_more = promised.0.saturating_add(promised.0 / 2);
        let seen = peak.0.saturating_add(peak.0 / 4);
        let memory = round_up(Bytes(half_more.max(seen)));
        let more = Request { memory: MemoryRequest::Bytes(memory), ..request.clone() };
        let devices = state.ledger.devices.iter();
        let devices = devices.filter(|device| request.models.contains(device.model));
        let largest = devices.map(|device| device.capacity).max();
        // All of the largest is what being alone there gives.
        if largest.is_some_and(|largest| memory < largest)
            && let Some(request) = possible(more)
        {
            return Some((RetryReason::MoreMemory { memory }, request));
        }
    }
    let mut devices = state.ledger.at(&ended.allocation.devices);
    let least = devices.clone().map(|device| device.capacity).min();
    // One with whole devices was alone there, unless strangers were not few; and so was one
    // that never had to leave anything to anybody.
    let was_alone = match request.memory {
        MemoryRequest::AtLeast(_) => devices.all(|device| device.is_all_promised_to(ended.task)),
        _ => {
            matches!(request.gpus, GpuRequest::Whole(_))
                && !devices.any(|device| device.is_load(device.outside.computing()))
        }
    };
    if request.memory != MemoryRequest::Whole && !was_alone {
        // What it would not fit on it need not be alone on.
        let device_memory = match least {
            Some(Bytes(0)) | None => request.device_memory,
            Some(_) => request.device_memory.max(peak),
        };
        let alone = Request { memory: MemoryRequest::Whole, device_memory, ..request.clone() };
        return possible(alone).map(|request| (RetryReason::Alone, request));
    }
    let above = least.filter(|&capacity| capacity > Bytes(0))?;
    let larger = Request {
        memory: MemoryRequest::Whole,
        device_memory: Bytes(above.0.checked_add(1)?),
        ..request.clone()
    };
    possible(larger).map(|request| (RetryReason::LargerDevice { above }, request))
}
