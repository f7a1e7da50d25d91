//! What could start if nothing of ours were running, and other runs made room for it.
//!
//! One that could not even then waits for a drained device, for other users'
//! processes to go, or for a machine to be added. Nothing is kept for it, and
//! those behind it go on.

use packhorse_model::Request;

use crate::device::{DeviceLedger, DeviceRoom};
use crate::ledger::Ledger;
use crate::needs::Rooms;
use crate::state::SchedulerState;
use crate::tasks::Handle;

/// Finds out anew what each family of those who wait may need, where that may
/// have changed.
pub(crate) fn refresh(state: &mut SchedulerState) {
    let ledger = &state.ledger;
    for family in state.queue.families_mut() {
        if family.reached != ledger.changes {
            family.reached = ledger.changes;
            family.reach = of(ledger, &family.request, |device| device.reach(&family.request));
        }
    }
}

/// The first in line that could start if nothing of ours were running, and other runs
/// made room for it.
pub(crate) fn first(state: &SchedulerState) -> Option<Handle> {
    state.queue.first_of(|family| family.index.first(&family.reach))
}

/// Whether none of those who wait could start even if nobody's processes were
/// running: what they need is drained, or gone.
pub(crate) fn nothing_ever(state: &SchedulerState) -> bool {
    let first = state.queue.first_of(|family| {
        let request = &family.request;
        let rooms = of(&state.ledger, request, |device| {
            let size = device.size(request);
            size.filter(|_| !device.is_closed())
        });
        family.index.first(&rooms)
    });
    first.is_none()
}

/// What those like `request` may need to start on one of the machines, if those
/// were as empty as can be and a device had `room`.
pub(crate) fn of(
    ledger: &Ledger,
    request: &Request,
    room: impl Fn(&DeviceLedger) -> Option<DeviceRoom>,
) -> Rooms {
    let mut rooms = Rooms::default();
    for (index, node) in ledger.nodes.iter().enumerate() {
        if !node.leaving {
            let devices = ledger.devices_of(index);
            let devices = devices.filter_map(|(_, device)| room(device));
            rooms.add_machine(u64::MAX, node.size, request.gpus, devices);
        }
    }
    rooms
}
