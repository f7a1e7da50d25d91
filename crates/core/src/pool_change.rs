//! Adding and removing nodes and devices.
//!
//! Nodes and devices are known by their places in the pool's order, so all places
//! behind one that is added or removed move. That looks at everything that runs,
//! which is fine: it happens seldom.
//!
//! What is removed while it is in use takes nothing new, and is gone when it is
//! empty.

use packhorse_model::{DeviceId, NodeId};

use crate::state::SchedulerState;
use crate::{DeviceSpec, NodeSpec, PoolError};

pub(crate) fn add_node(state: &mut SchedulerState, spec: &NodeSpec) -> Result<(), PoolError> {
    spec.validate()?;
    if state.ledger.find_node(spec.id).is_some() {
        return Err(PoolError::DuplicateNode(spec.id));
    }
    let mut devices = spec.devices.iter().map(|device| device.id);
    if let Some(device) = devices.find(|&device| state.ledger.find(device).is_some()) {
        return Err(PoolError::DuplicateDevice(device));
    }
    let node = state.ledger.add_node(spec);
    changed(state);
    state.stale.touch(node);
    Ok(())
}

pub(crate) fn add_device(
    state: &mut SchedulerState,
    node: NodeId,
    spec: &DeviceSpec,
) -> Result<(), PoolError> {
    spec.validate()?;
    let place = state.ledger.find_node(node);
    let place = place.filter(|&place| !state.ledger.nodes[place].leaving);
    let node = place.ok_or(PoolError::UnknownNode(node))?;
    if state.ledger.find(spec.id).is_some() {
        return Err(PoolError::DuplicateDevice(spec.id));
    }
    let added = state.ledger.add_device(node, spec);
    move_devices(state, |device| device + usize::from(device >= added));
    changed(state);
    state.stale.touch(node);
    Ok(())
}

pub(crate) fn remove_node(state: &mut SchedulerState, node: NodeId) {
    let Some(node) = state.ledger.find_node(node) else {
        return;
    };
    let account = &mut state.ledger.nodes[node];
    account.leaving = true;
    for device in &mut state.ledger.devices[account.devices.clone()] {
        device.leaving = true;
    }
    start_leaving(state, node);
}

pub(crate) fn remove_device(state: &mut SchedulerState, device: DeviceId) {
    let Some(place) = state.ledger.find(device) else {
        return;
    };
    let device = &mut state.ledger.devices[place];
    device.leaving = true;
    let node = device.node;
    start_leaving(state, node);
}

fn start_leaving(state: &mut SchedulerState, node: usize) {
    state.ledger.changes += 1;
    state.stale.touch(node);
    remove_unused(state, node);
}

/// Removes `node` and those of its devices that are leaving and no longer in use.
pub(crate) fn remove_unused(state: &mut SchedulerState, node: usize) {
    for device in state.ledger.nodes[node].devices.clone().rev() {
        let account = &state.ledger.devices[device];
        if !account.leaving || !account.tenants.is_empty() {
            continue;
        }
        state.reservation.take_if(|kept| kept.has_device(device));
        state.ledger.remove_device(device);
        move_devices(state, |other| other - usize::from(other > device));
        changed(state);
    }
    let account = &state.ledger.nodes[node];
    if account.leaving && account.guests.is_empty() {
        state.reservation.take_if(|kept| kept.spot.node == node);
        state.ledger.remove_node(node);
        let moved = |other: usize| other - usize::from(other > node);
        state.stale.remove_node(node);
        for running in &mut state.running {
            running.allocation.node = moved(running.allocation.node);
        }
        if let Some(kept) = &mut state.reservation {
            kept.spot.node = moved(kept.spot.node);
        }
        changed(state);
    }
}

fn move_devices(state: &mut SchedulerState, moved: impl Fn(usize) -> usize) {
    let running = state.running.iter_mut();
    let running = running.map(|running| &mut running.allocation.devices);
    let kept = state.reservation.iter_mut();
    let kept = kept.map(|kept| &mut kept.spot.devices);
    for device in running.chain(kept).flatten() {
        *device = moved(*device);
    }
}

fn changed(state: &mut SchedulerState) {
    state.ledger.changes += 1;
    state.mix.measure(&state.ledger);
}
