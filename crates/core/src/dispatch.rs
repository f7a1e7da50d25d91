//! Handing out: after every event, whatever can start does.

use std::cmp::Reverse;

use crate::ledger::count;
use crate::place::{self, Spot};
use crate::reserve::{self, Reservation};
use crate::state::{Running, State};
use crate::tasks::{Handle, Status};
use crate::{Effect, Now};

/// Starts what fits, in order; what does not fit is passed over together with
/// all others of its class. The first that is passed over has, or gets, the
/// reservation that those behind it have to respect.
pub(crate) fn dispatch(state: &mut State, now: Now, effects: &mut Vec<Effect>) {
    drop_stale_reservation(state);
    if state.held || !state.ledger.has_slot() {
        return;
    }
    let mut heads = std::mem::take(&mut state.heads);
    heads.extend(
        state
            .queue
            .heads()
            .map(|(order, class, _)| Reverse((order, class))),
    );
    let mut first_waits = false;
    while let Some(Reverse((_, class))) = heads.pop() {
        if !state.ledger.has_slot() {
            break;
        }
        let Some((_, task)) = state.queue.head(class) else {
            continue;
        };
        let request = state.queue.request(class);
        let kept = state.reservation.as_ref().filter(|_| first_waits);
        if let Some(spot) = place::find(&state.ledger, state.settings, request, kept) {
            start(state, task, spot, now, effects);
            if !first_waits {
                state.reservation = None;
            }
            let next = state.queue.head(class);
            heads.extend(next.map(|(order, _)| Reverse((order, class))));
        } else if !first_waits {
            first_waits = true;
            reserve(state, task);
        }
    }
    heads.clear();
    state.heads = heads;
}

fn drop_stale_reservation(state: &mut State) {
    if let Some(reservation) = &state.reservation
        && state.queue.first() != Some(reservation.holder)
    {
        state.reservation = None;
    }
}

/// Keeps devices for `task`, the first in line, unless it has them already.
fn reserve(state: &mut State, task: Handle) {
    if state.reservation.is_some() {
        return;
    }
    let request = state.queue.request(state.tasks.get(task).class);
    state.reservation = reserve::soonest(&state.ledger, request).map(|spot| Reservation {
        holder: task,
        spot,
        cores: request.cores,
        made: state.started,
    });
}

fn start(state: &mut State, task: Handle, spot: Spot, now: Now, effects: &mut Vec<Effect>) {
    let record = state.tasks.get_mut(task);
    state.queue.remove(record.class, record.order);
    let held = state.ledger.take(spot, state.queue.request(record.class));
    record.attempts += 1;
    record.status = Status::Running(count(state.running.len()));
    effects.push(Effect::Start {
        task: record.id,
        attempt: record.attempts,
        placement: state.ledger.placement(&held),
        time_limit: record.limit.get(),
    });
    state.running.push(Running {
        task,
        since: now,
        number: state.started,
        held,
        stopping: false,
    });
    state.started += 1;
}
