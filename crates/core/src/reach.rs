//! What could start if nothing of ours were running.
//!
//! One that could not even then waits for a drained device or for strangers to
//! go. Nothing is kept for it, and those behind it go on.

use packhorse_model::{Bytes, GpuRequest};

use crate::SchedulerSettings;
use crate::device::DeviceLedger;
use crate::ledger::Ledger;
use crate::place::nth_largest;
use crate::queue::Demand;
use crate::state::SchedulerState;
use crate::tasks::Handle;

/// Finds out anew how far each shape of those who wait reaches, where that may
/// have changed.
pub(crate) fn refresh(state: &mut SchedulerState) {
    let (ledger, settings) = (&state.ledger, state.settings);
    for shape in state.queue.shapes_mut() {
        if shape.reached != ledger.changes {
            shape.reached = ledger.changes;
            shape.reach = of(ledger, &shape.demand, |device| {
                device.reach(settings, &shape.demand.request)
            });
        }
    }
}

/// The first in line that could start if nothing of ours were running.
pub(crate) fn first(state: &SchedulerState) -> Option<Handle> {
    state.queue.first_within(|shape| shape.reach)
}

/// Whether none of those who wait could start even if nobody's processes were
/// running: what they need is drained.
pub(crate) fn nothing_ever(state: &SchedulerState) -> bool {
    let first = state
        .queue
        .first_within(|shape| undrained(&state.ledger, state.settings, &shape.demand));
    first.is_none()
}

/// How much memory one with the shape of `demand` could be promised if nobody's
/// processes were running.
pub(crate) fn undrained(
    ledger: &Ledger,
    settings: SchedulerSettings,
    demand: &Demand,
) -> Option<Bytes> {
    of(ledger, demand, |device| {
        let size = device.size(settings, &demand.request);
        size.filter(|_| !device.drained)
    })
}

/// How much memory of each of its devices one with the shape of `demand` could
/// be promised on the best node, where `room` says that of a device.
pub(crate) fn of(
    ledger: &Ledger,
    demand: &Demand,
    room: impl Fn(&DeviceLedger) -> Option<Bytes>,
) -> Option<Bytes> {
    let able = ledger
        .nodes
        .iter()
        .filter(|node| node.needs(&demand.request).is_within(node.size));
    let rooms = able.filter_map(|node| {
        let rooms = ledger.devices[node.devices.clone()].iter();
        let mut rooms = rooms.filter_map(&room);
        match demand.request.gpus {
            GpuRequest::None => Some(Bytes(u64::MAX)),
            GpuRequest::Share(_) => rooms.by_ref().max(),
            GpuRequest::Whole(wanted) => nth_largest(rooms, wanted),
        }
    });
    rooms.max()
}
