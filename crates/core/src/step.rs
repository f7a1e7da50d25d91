//! One event in, effects out.

use std::collections::VecDeque;
use std::time::Duration;

use packhorse_model::{Bytes, DeviceId, MemoryRequest, Outcome, Request, RunId, TaskId};

use crate::adopt::on_adopt;
use crate::device::DeviceLedger;
use crate::dispatch::dispatch;
use crate::finished::TaskEnding;
use crate::ladder::{self, Next};
use crate::ledger::count;
use crate::pool_change::{self, remove_unused};
use crate::queue::{ClassId, Demand};
use crate::queue_key::QueueKey;
use crate::refusal::impossible;
use crate::state::SchedulerState;
use crate::tasks::{Handle, TaskRecord, TaskStatus};
use crate::time::{Bound, Length};
use crate::{
    Effect, EndCause, Now, ProbePlan, RefusalReason, RetryReason, SchedulerEvent, Submission,
};

/// Takes note of `event`, which happened at `now`, and appends what is to be
/// done about it to `effects`.
///
/// Tasks that cannot run any more because of the event are finished breadth
/// first, those after one task in the order of their submission. Starts come
/// last, in the order of the queue.
pub fn step(
    state: &mut SchedulerState,
    event: SchedulerEvent,
    now: Now,
    effects: &mut Vec<Effect>,
) {
    // Time never runs backwards, whatever a clock says.
    state.now = state.now.max(now);
    match event {
        SchedulerEvent::Submit(submission) => on_submit(state, &submission, effects),
        SchedulerEvent::Adopt { submission, attempt, placement, since } => {
            on_adopt(state, &submission, attempt, &placement, since, effects);
        }
        SchedulerEvent::Ended { task, attempt, outcome, cause } => {
            on_ended(state, (task, attempt), outcome, cause, effects);
        }
        SchedulerEvent::Observed { task, attempt, device, memory } => {
            on_observed(state, (task, attempt), device, memory);
        }
        SchedulerEvent::Promised { task, attempt, memory } => {
            on_promised(state, (task, attempt), memory);
        }
        SchedulerEvent::Outside { device, held } => {
            change(state, device, |device| std::mem::replace(&mut device.outside, held) != held);
        }
        SchedulerEvent::Drain(device) => {
            change(state, device, |device| !std::mem::replace(&mut device.drained, true));
        }
        SchedulerEvent::Restore(device) => {
            change(state, device, |device| std::mem::replace(&mut device.drained, false));
        }
        SchedulerEvent::Revise { task, request, expected, probe } => {
            on_revise(state, task, request, expected, probe);
        }
        SchedulerEvent::Cancel(task) => on_cancel(state, task, effects),
        SchedulerEvent::Looked => (state.looked, state.looking) = (Some(state.now), false),
        SchedulerEvent::Hold => state.held = true,
        SchedulerEvent::Unhold => state.held = false,
        SchedulerEvent::MoreToCome(more) => state.mix.more_to_come = more,
        SchedulerEvent::HoldRun(run) => hold_run(state, run),
        SchedulerEvent::UnholdRun(run) => unhold_run(state, run),
        SchedulerEvent::AddNode(spec) => {
            let added = pool_change::add_node(state, &spec);
            effects.extend(added.err().map(Effect::NotAdded));
        }
        SchedulerEvent::AddDevice { node, device } => {
            let added = pool_change::add_device(state, node, &device);
            effects.extend(added.err().map(Effect::NotAdded));
        }
        SchedulerEvent::RemoveNode(node) => pool_change::remove_node(state, node),
        SchedulerEvent::RemoveDevice(device) => pool_change::remove_device(state, device),
    }
    dispatch(state, effects);
}

fn on_submit(state: &mut SchedulerState, submission: &Submission, effects: &mut Vec<Effect>) {
    let task = submission.id;
    if let Err(reason) = acceptable(state, submission) {
        effects.push(Effect::Refused { task, reason });
        return;
    }
    if let Some(outcome) = doomed(state, &submission.after) {
        state.submitted += 1;
        state.finished.record(task, outcome.into());
        effects.push(Effect::Finished { task, attempts: 0, outcome });
        return;
    }
    let handle = record(state, submission);
    for &on in &submission.after {
        if let Some(on) = state.tasks.find(on) {
            state.deps.add(handle, on);
        }
    }
    if !state.deps.is_blocked(handle) {
        enqueue(state, handle);
    }
}

/// Makes the record of a task that was accepted; it is not in line yet.
pub(crate) fn record(state: &mut SchedulerState, submission: &Submission) -> Handle {
    let limit = Length::new(submission.time_limit);
    let expected = Length::new(submission.expected);
    state.mix.see(&state.ledger, &submission.request);
    let class = state.queue.join_class(Demand {
        request: submission.request.clone(),
        bound: Bound::new(limit, expected),
    });
    let key = QueueKey::new(
        submission.batch,
        submission.priority,
        state.settings.ageing,
        submission.arrived.unwrap_or(state.now).min(state.now),
        submission.arrival_number.unwrap_or(state.submitted),
    );
    state.submitted += 1;
    state.tasks.insert(TaskRecord {
        id: submission.id,
        key,
        class,
        owner: submission.owner,
        retries: submission.retries,
        attempts: 0,
        limit,
        expected,
        status: TaskStatus::Blocked,
        collateral: 0,
        probe: submission.probe,
        fresh: false,
    })
}

/// Takes note that a task needs `request` after all. Returns the class that it was
/// in, which has yet to be left.
fn change_class(state: &mut SchedulerState, task: Handle, request: Request) -> ClassId {
    let record = state.tasks.get_mut(task);
    let before = record.class;
    let needed = &state.queue.demand(before).request;
    if let TaskStatus::Running(_) = record.status {
        state.mix.wait_again(needed);
        state.mix.forget(needed);
        state.mix.see(&state.ledger, &request);
        state.mix.stop_waiting(&request);
    } else {
        state.mix.forget(needed);
        state.mix.see(&state.ledger, &request);
    }
    let bound = Bound::new(record.limit, record.expected);
    record.class = state.queue.join_class(Demand { request, bound });
    before
}

fn acceptable(state: &SchedulerState, submission: &Submission) -> Result<(), RefusalReason> {
    if state.knows(submission.id) {
        return Err(RefusalReason::AlreadyKnown);
    }
    for &on in &submission.after {
        if on == submission.id {
            return Err(RefusalReason::AfterItself);
        }
        if !state.knows(on) {
            return Err(RefusalReason::UnknownDependency(on));
        }
    }
    impossible(&state.ledger, &submission.request).map_or(Ok(()), Err)
}

/// What becomes of a task at once because of one in `after` that has finished.
/// Being interrupted outranks being skipped: it can still be resumed.
fn doomed(state: &SchedulerState, after: &[TaskId]) -> Option<Outcome> {
    let endings = after.iter().filter_map(|&on| state.finished.get(on));
    endings.max()?.passed_on()
}

/// The place in `SchedulerState::running` of an attempt, if it runs.
fn find_running(state: &SchedulerState, (task, attempt): (TaskId, u32)) -> Option<usize> {
    let record = state.tasks.get(state.tasks.find(task)?);
    let TaskStatus::Running(place) = record.status else {
        return None;
    };
    let place = place as usize;
    (state.running[place].attempt == attempt).then_some(place)
}

fn on_ended(
    state: &mut SchedulerState,
    attempt: (TaskId, u32),
    outcome: Outcome,
    cause: EndCause,
    effects: &mut Vec<Effect>,
) {
    let Some(place) = find_running(state, attempt) else {
        return;
    };
    let next = ladder::next(state, &state.running[place], outcome, cause);
    let ended = state.running.swap_remove(place);
    if let Some(moved) = state.running.get(place) {
        state.tasks.get_mut(moved.task).status = TaskStatus::Running(count(place));
    }
    state.ledger.give_back(&ended.allocation, ended.task);
    state.queue.leave_class(ended.class);
    state.stale.touch(ended.allocation.node);
    remove_unused(state, ended.allocation.node);
    let (why, request) = match next {
        Next::Finish(outcome) => return finish(state, ended.task, outcome, effects),
        Next::Again(why, request) => (why, request),
    };
    if let Some(request) = request {
        let before = change_class(state, ended.task, request);
        state.queue.leave_class(before);
    }
    let record = state.tasks.get_mut(ended.task);
    match why {
        RetryReason::Retry => record.retries -= 1,
        RetryReason::Collateral => record.collateral = record.collateral.saturating_add(1),
        RetryReason::MoreMemory { .. }
        | RetryReason::Alone
        | RetryReason::LargerDevice { .. }
        | RetryReason::Probed => {}
    }
    effects.push(Effect::Retrying {
        task: record.id,
        next_attempt: record.next_attempt(),
        outcome,
        why,
        left: record.retries,
    });
    let class = record.class;
    state.mix.wait_again(&state.queue.demand(class).request);
    enqueue(state, ended.task);
}

fn on_observed(
    state: &mut SchedulerState,
    attempt: (TaskId, u32),
    device: DeviceId,
    memory: Bytes,
) {
    let running = find_running(state, attempt).map(|place| &state.running[place]);
    let (Some(running), Some(device)) = (running, state.ledger.find(device)) else {
        return;
    };
    let device = &mut state.ledger.devices[device];
    if device.observe(running.task, memory) {
        state.stale.touch(device.node);
    }
}

fn on_promised(state: &mut SchedulerState, attempt: (TaskId, u32), memory: Bytes) {
    let running = find_running(state, attempt).map(|place| &state.running[place]);
    let Some(running) = running else {
        return;
    };
    let request = &state.queue.demand(running.class).request;
    let least = match request.memory {
        MemoryRequest::AtLeast(_) => Bytes(0),
        MemoryRequest::Bytes(asked) => asked,
        MemoryRequest::Uncounted | MemoryRequest::Whole => return,
    };
    for &device in &running.allocation.devices {
        let device = &mut state.ledger.devices[device];
        if device.change_promise(running.task, memory, least) {
            state.stale.touch(device.node);
        }
    }
}

/// Lets `apply` change a device; it returns whether it did.
fn change(state: &mut SchedulerState, device: DeviceId, apply: impl Fn(&mut DeviceLedger) -> bool) {
    let Some(device) = state.ledger.find(device) else {
        return;
    };
    let device = &mut state.ledger.devices[device];
    if apply(device) {
        state.ledger.changes += 1;
        state.stale.touch(device.node);
    }
}

fn on_revise(
    state: &mut SchedulerState,
    task: TaskId,
    request: Request,
    expected: Option<Duration>,
    probe: ProbePlan,
) {
    let Some(handle) = state.tasks.find(task) else {
        return;
    };
    if impossible(&state.ledger, &request).is_some() {
        return;
    }
    let record = state.tasks.get_mut(handle);
    let (status, key) = (record.status, record.key);
    let is_probe = record.probe == ProbePlan::First;
    if let TaskStatus::Running(place) = status
        && state.running[place as usize].attempt > 0
    {
        return;
    }
    record.expected = Length::new(expected);
    record.probe = probe;
    let before = change_class(state, handle, request);
    let is_moved =
        state.tasks.get(handle).class != before || is_probe != (probe == ProbePlan::First);
    match status {
        TaskStatus::Waiting if is_moved || probe == ProbePlan::Awaited => {
            state.queue.remove(before, key);
            enqueue(state, handle);
        }
        TaskStatus::Blocked if !state.deps.is_blocked(handle) => enqueue(state, handle),
        _ => {}
    }
    state.queue.leave_class(before);
}

fn on_cancel(state: &mut SchedulerState, task: TaskId, effects: &mut Vec<Effect>) {
    let Some(handle) = state.tasks.find(task) else {
        return;
    };
    let record = state.tasks.get(handle);
    match record.status {
        TaskStatus::Running(place) => {
            let running = &mut state.running[place as usize];
            if !running.stopping {
                running.stopping = true;
                effects.push(Effect::Stop { task, attempt: running.attempt });
            }
        }
        TaskStatus::Waiting => {
            state.queue.remove(record.class, record.key);
            finish(state, handle, Outcome::Interrupted, effects);
        }
        TaskStatus::Blocked => {
            state.deps.release(handle);
            finish(state, handle, Outcome::Interrupted, effects);
        }
    }
}

fn hold_run(state: &mut SchedulerState, run: RunId) {
    if !state.held_runs.insert(run) {
        return;
    }
    let waiting: Vec<Handle> = state.queue.iter().map(|(.., task)| task).collect();
    for task in waiting {
        let record = state.tasks.get_mut(task);
        if record.id.run == run {
            record.status = TaskStatus::Blocked;
            state.queue.remove(record.class, record.key);
        }
    }
}

fn unhold_run(state: &mut SchedulerState, run: RunId) {
    if !state.held_runs.remove(&run) {
        return;
    }
    let tasks = state.tasks.iter().filter(|(task, record)| {
        record.id.run == run
            && record.status == TaskStatus::Blocked
            && !state.deps.is_blocked(*task)
    });
    let tasks: Vec<Handle> = tasks.map(|(task, _)| task).collect();
    for task in tasks {
        enqueue(state, task);
    }
}

/// Puts a task in line, unless it waits for a measurement, or its run is held.
fn enqueue(state: &mut SchedulerState, task: Handle) {
    let record = state.tasks.get_mut(task);
    if record.probe == ProbePlan::Awaited || state.held_runs.contains(&record.id.run) {
        record.status = TaskStatus::Blocked;
        return;
    }
    record.status = TaskStatus::Waiting;
    let is_probe = record.probe == ProbePlan::First;
    record.key = record.key.for_probe(is_probe, state.settings.ageing);
    state.queue.insert(record.class, record.key, task);
    if !record.fresh {
        record.fresh = true;
        state.stale.arrive(task);
    }
}

/// Ends a task that is neither in the queue nor running nor blocked any more,
/// and all that can never start because of it.
fn finish(state: &mut SchedulerState, task: Handle, outcome: Outcome, effects: &mut Vec<Effect>) {
    let mut line = VecDeque::new();
    let mut current = Some((task, outcome));
    while let Some((task, outcome)) = current {
        let record = state.tasks.get(task);
        effects.push(Effect::Finished { task: record.id, attempts: record.attempts, outcome });
        let class = record.class;
        if !matches!(record.status, TaskStatus::Running(_)) {
            let request = &state.queue.demand(class).request;
            state.mix.stop_waiting(request);
        }
        let ending = TaskEnding::from(outcome);
        state.finished.record(record.id, ending);
        while let Some(follower) = state.deps.pop_follower(task) {
            if let Some(passed_on) = ending.passed_on() {
                state.deps.release(follower);
                line.push_back((follower, passed_on));
            } else if !state.deps.is_blocked(follower) {
                enqueue(state, follower);
            }
        }
        state.queue.leave_class(class);
        state.tasks.remove(task);
        current = line.pop_front();
    }
}
