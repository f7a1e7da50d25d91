//! One event in, effects out.

use std::collections::VecDeque;

use packhorse_model::{Outcome, TaskId};

use crate::dispatch::dispatch;
use crate::past::Ending;
use crate::queue::Order;
use crate::refusal::impossible;
use crate::state::State;
use crate::tasks::{Handle, Limit, Record, Status};
use crate::{Effect, Event, Now, Refusal, Submission};

/// Takes note of `event`, which happened at `now`, and appends what is to be
/// done about it to `effects`.
///
/// Tasks that cannot run any more because of the event are finished breadth
/// first, those after one task in the order of their submission. Starts come
/// last, in the order of the queue.
pub fn step(state: &mut State, event: Event, now: Now, effects: &mut Vec<Effect>) {
    match event {
        Event::Submit(submission) => on_submit(state, submission, effects),
        Event::Ended {
            task,
            attempt,
            outcome,
        } => on_ended(state, task, attempt, outcome, effects),
        Event::Cancel(task) => on_cancel(state, task, effects),
        Event::Hold => state.held = true,
        Event::Unhold => state.held = false,
    }
    dispatch(state, now, effects);
}

fn on_submit(state: &mut State, submission: Submission, effects: &mut Vec<Effect>) {
    let task = submission.id;
    if let Err(reason) = acceptable(state, &submission) {
        effects.push(Effect::Refused { task, reason });
        return;
    }
    let number = state.submitted;
    state.submitted += 1;
    if let Some(outcome) = doomed(state, &submission.after) {
        state.past.record(task, outcome.into());
        effects.push(Effect::Finished {
            task,
            attempts: 0,
            outcome,
        });
        return;
    }
    let handle = state.tasks.insert(Record {
        id: task,
        order: Order::new(submission.priority, number),
        class: state.queue.class(&submission.request),
        retries: submission.retries,
        attempts: 0,
        limit: Limit::new(submission.time_limit),
        status: Status::Blocked,
    });
    for on in submission.after {
        if let Some(on) = state.tasks.find(on) {
            state.deps.add(handle, on);
        }
    }
    if !state.deps.is_blocked(handle) {
        enqueue(state, handle);
    }
}

fn acceptable(state: &State, submission: &Submission) -> Result<(), Refusal> {
    let is_known =
        |task: TaskId| state.tasks.find(task).is_some() || state.past.get(task).is_some();
    if is_known(submission.id) {
        return Err(Refusal::AlreadyKnown);
    }
    for &on in &submission.after {
        if on == submission.id {
            return Err(Refusal::AfterItself);
        }
        if !is_known(on) {
            return Err(Refusal::UnknownDependency(on));
        }
    }
    impossible(&state.ledger, &submission.request).map_or(Ok(()), Err)
}

/// What becomes of a task at once because of one in `after` that has finished.
/// Being interrupted outranks being skipped: that can still be made good.
fn doomed(state: &State, after: &[TaskId]) -> Option<Outcome> {
    let endings = after.iter().filter_map(|&on| state.past.get(on));
    let passed_on = endings.filter_map(Ending::passed_on);
    passed_on.reduce(|one, other| match (one, other) {
        (Outcome::Interrupted, _) | (_, Outcome::Interrupted) => Outcome::Interrupted,
        _ => one,
    })
}

fn on_ended(
    state: &mut State,
    task: TaskId,
    attempt: u32,
    outcome: Outcome,
    effects: &mut Vec<Effect>,
) {
    let Some(handle) = state.tasks.find(task) else {
        return;
    };
    let record = state.tasks.get(handle);
    let Status::Running(place) = record.status else {
        return;
    };
    if record.attempts != attempt {
        return;
    }
    // An attempt's number has to stay a u32, however many retries were asked for.
    let retries_left = attempt <= record.retries && attempt < u32::MAX;
    let ended = state.running.swap_remove(place as usize);
    if let Some(moved) = state.running.get(place as usize) {
        state.tasks.get_mut(moved.task).status = Status::Running(place);
    }
    state.ledger.give_back(&ended.held);
    if outcome.is_worth_retrying() && retries_left && !ended.stopping {
        effects.push(Effect::Retrying {
            task,
            next_attempt: attempt + 1,
            outcome,
        });
        enqueue(state, handle);
    } else {
        finish(state, handle, outcome, effects);
    }
}

fn on_cancel(state: &mut State, task: TaskId, effects: &mut Vec<Effect>) {
    let Some(handle) = state.tasks.find(task) else {
        return;
    };
    let record = state.tasks.get(handle);
    match record.status {
        Status::Running(place) => {
            let running = &mut state.running[place as usize];
            if !running.stopping {
                running.stopping = true;
                effects.push(Effect::Stop {
                    task,
                    attempt: record.attempts,
                });
            }
        }
        Status::Waiting => {
            state.queue.remove(record.class, record.order);
            finish(state, handle, Outcome::Interrupted, effects);
        }
        Status::Blocked => {
            state.deps.release(handle);
            finish(state, handle, Outcome::Interrupted, effects);
        }
    }
}

fn enqueue(state: &mut State, task: Handle) {
    let record = state.tasks.get_mut(task);
    record.status = Status::Waiting;
    state.queue.insert(record.class, record.order, task);
}

/// Ends a task that is neither in the queue nor running nor blocked any more,
/// and all that can never start because of it.
fn finish(state: &mut State, task: Handle, outcome: Outcome, effects: &mut Vec<Effect>) {
    let mut line = VecDeque::new();
    let mut current = Some((task, outcome));
    while let Some((task, outcome)) = current {
        let record = state.tasks.get(task);
        effects.push(Effect::Finished {
            task: record.id,
            attempts: record.attempts,
            outcome,
        });
        let ending = Ending::from(outcome);
        state.past.record(record.id, ending);
        while let Some(follower) = state.deps.pop_follower(task) {
            if let Some(passed_on) = ending.passed_on() {
                state.deps.release(follower);
                line.push_back((follower, passed_on));
            } else if !state.deps.is_blocked(follower) {
                enqueue(state, follower);
            }
        }
        state.tasks.remove(task);
        current = line.pop_front();
    }
}
