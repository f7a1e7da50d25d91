//! Attempts that run already when the scheduler hears of them.

use packhorse_model::{CoreId, Granted, Placement, Request};

use crate::device::is_whole;
use crate::ledger::{AttemptAllocation, count};
use crate::refusal::is_sensible;
use crate::state::SchedulerState;
use crate::step::record;
use crate::time::{EndTimes, Moment};
use crate::{Effect, Now, RefusalReason, Submission};

/// Takes in `attempt` of a task, which holds `placement` since `since`.
pub(crate) fn on_adopt(
    state: &mut SchedulerState,
    submission: &Submission,
    attempt: u32,
    placement: &Placement,
    since: Now,
    effects: &mut Vec<Effect>,
) {
    let (allocation, grants) = match locate(state, submission, placement) {
        Ok(found) => found,
        Err(reason) => {
            let task = submission.id;
            return effects.push(Effect::Refused { task, reason });
        }
    };
    let handle = record(state, submission);
    let record = state.tasks.get_mut(handle);
    record.attempts = attempt;
    let since = since.min(state.now);
    let ends = EndTimes::new(Moment::new(since), record.limit, record.expected);
    let whole = is_whole(&submission.request);
    state.ledger.enter(&allocation, &grants, whole, handle, ends);
    state.stale.touch(allocation.node);
    state.add_running(handle, attempt, since, allocation, true);
}

/// Where `placement` is, and what it has of each device.
fn locate(
    state: &SchedulerState,
    submission: &Submission,
    placement: &Placement,
) -> Result<(AttemptAllocation, Vec<Granted>), RefusalReason> {
    let (ledger, request) = (&state.ledger, &submission.request);
    if state.knows(submission.id) {
        return Err(RefusalReason::AlreadyKnown);
    }
    if !is_sensible(request) {
        return Err(RefusalReason::NotAnAmount(request.gpus));
    }
    let node = ledger.find_node(placement.node);
    let node = node.ok_or(RefusalReason::UnknownNode(placement.node))?;
    let account = &ledger.nodes[node];
    let mut devices = Vec::with_capacity(placement.devices.len());
    let mut grants = Vec::with_capacity(placement.devices.len());
    for &granted in &placement.devices {
        let device = ledger.find(granted.device);
        let device = device.filter(|device| account.devices.contains(device));
        let device = device.ok_or(RefusalReason::UnknownDevice(granted.device))?;
        // Nothing is on a device twice.
        if !devices.contains(&device) {
            devices.push(device);
            grants.push(granted);
        }
    }
    let place = |core: &CoreId| account.cores.iter().position(|other| other == core);
    let mut cores: Vec<usize> = placement.cores.iter().filter_map(place).collect();
    cores.sort_unstable();
    cores.dedup();
    let counted = Request { cores: count(cores.len()), ..request.clone() };
    let allocation = AttemptAllocation { node, devices, amounts: account.needs(&counted), cores };
    Ok((allocation, grants))
}
