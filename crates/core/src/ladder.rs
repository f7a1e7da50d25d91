//! Whether a task gets another attempt, and what it is given then.
//!
//! ```text
//!  failed by itself ─────▶ a retry, if one is left
//!  its GPU or MPS server ▶ again, without using up a retry; 16 times at most
//!  its memory was taken ─▶ again, without using up a retry; from the fourth time on
//!                          with its devices to itself
//!  out of memory ────────▶ half as much again, or a quarter more than was seen, or
//!                          what its kind is promised
//!                          ─▶ its devices to itself ─▶ devices with more memory
//!                          ─▶ over; no retry is used up on the way
//! ```

use packhorse_model::{Bytes, GpuRequest, MemoryRequest, Outcome, Request};

use crate::learn::round_up;
use crate::refusal::impossible;
use crate::state::{AttemptRecord, SchedulerState};
use crate::{EndCause, RetryReason};

/// After this many collateral failures, count them as the task's own.
const MOST_COLLATERAL: u8 = 16;

/// A task whose memory was taken this often has its devices to itself next.
const MOST_CROWDED: u8 = 3;

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
        EndCause::Crowded => {
            let request = &state.queue.demand(ended.class).request;
            let is_enough = record.collateral >= MOST_CROWDED;
            let alone = is_enough.then(|| alone(state, request)).flatten();
            return match alone {
                Some(request) => Next::Again(RetryReason::Alone, Some(request)),
                // It is never a failure: who took its memory may go on for long.
                None => Next::Again(RetryReason::Collateral, None),
            };
        }
        EndCause::OutOfMemory { peak, at_least } if outcome.is_worth_retrying() => {
            let request = &state.queue.demand(ended.class).request;
            if request.gpus != GpuRequest::None {
                if let Some((why, request)) = more_memory(state, ended, request, (peak, at_least)) {
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

/// The same request with devices to itself, unless it has them already, or never could.
fn alone(state: &SchedulerState, request: &Request) -> Option<Request> {
    let alone = Request { memory: MemoryRequest::Whole, ..request.clone() };
    let is_new = request.gpus != GpuRequest::None && *request != alone;
    (is_new && impossible(&state.ledger, &alone).is_none()).then_some(alone)
}

/// The next rung for an attempt that ran out of memory; `None` at the top.
fn more_memory(
    state: &SchedulerState,
    ended: &AttemptRecord,
    request: &Request,
    (peak, at_least): (Bytes, Bytes),
) -> Option<(RetryReason, Request)> {
    let possible = |request: Request| {
        let refusal = impossible(&state.ledger, &request);
        refusal.is_none().then_some(request)
    };
    if let MemoryRequest::Bytes(promised) = request.memory {
        let half_more = promised.0.saturating_add(promised.0 / 2);
        let seen = peak.0.saturating_add(peak.0 / 4);
        let memory = round_up(Bytes(half_more.max(seen).max(at_least.0)));
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
