//! Where a request fits now, and which of those places is best.

use std::cmp::Reverse;

use packhorse_model::{GpuRequest, Milli, Request};

use crate::ledger::{DeviceLedger, Ledger, count};
use crate::reserve::Reservation;
use crate::{Policy, Settings};

/// A place for an attempt: a node, and devices of it in the pool's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) node: usize,
    pub(crate) devices: Vec<usize>,
}

/// The best place where `request` fits without disturbing `reservation`, or
/// `None` if it has to wait.
pub(crate) fn find(
    ledger: &Ledger,
    settings: Settings,
    request: &Request,
    reservation: Option<&Reservation>,
) -> Option<Spot> {
    let search = Search {
        ledger,
        settings,
        cores: request.cores,
        reservation,
    };
    match request.gpus {
        GpuRequest::None => search.node(),
        GpuRequest::Share(share) => search.device(share),
        GpuRequest::Whole(wanted) => search.group(wanted),
    }
}

/// Whether one more attempt with `share` of it may go onto `device`.
pub(crate) fn has_room(device: &DeviceLedger, settings: Settings, share: Milli) -> bool {
    device.free() >= share
        && settings
            .max_per_device
            .is_none_or(|most| device.attempts < most)
}

struct Search<'a> {
    ledger: &'a Ledger,
    settings: Settings,
    cores: u32,
    reservation: Option<&'a Reservation>,
}

impl Search<'_> {
    fn has_cores(&self, node: usize) -> bool {
        let free = self.ledger.nodes[node].free_cores;
        // One that takes no cores cannot take them from anybody.
        let kept = match self.reservation {
            Some(reservation) if self.cores > 0 => reservation.cores_kept(node),
            _ => 0,
        };
        free.checked_sub(self.cores)
            .is_some_and(|left| left >= kept)
    }

    fn is_open(&self, device: usize) -> bool {
        self.reservation
            .is_none_or(|reservation| !reservation.has_device(device))
    }

    fn node(&self) -> Option<Spot> {
        let nodes = &self.ledger.nodes;
        let fitting = (0..nodes.len()).filter(|&node| self.has_cores(node));
        let node = match self.settings.policy {
            Policy::Pack => fitting.min_by_key(|&node| nodes[node].free_cores),
            Policy::Spread => fitting.min_by_key(|&node| nodes[node].attempts),
        }?;
        Some(Spot {
            node,
            devices: Vec::new(),
        })
    }

    fn device(&self, share: Milli) -> Option<Spot> {
        let devices = &self.ledger.devices;
        let fitting = (0..devices.len()).filter(|&index| {
            has_room(&devices[index], self.settings, share)
                && self.is_open(index)
                && self.has_cores(devices[index].node)
        });
        let device = match self.settings.policy {
            Policy::Pack => fitting.min_by_key(|&index| Reverse(devices[index].used)),
            Policy::Spread => {
                fitting.min_by_key(|&index| (devices[index].used, devices[index].attempts))
            }
        }?;
        Some(Spot {
            node: devices[device].node,
            devices: vec![device],
        })
    }

    fn group(&self, wanted: u32) -> Option<Spot> {
        let fitting = (0..self.ledger.nodes.len())
            .filter(|&node| self.has_cores(node))
            .map(|node| (node, count(self.free_devices(node).count())))
            .filter(|&(_, free)| free >= wanted);
        let (node, _) = match self.settings.policy {
            Policy::Pack => fitting.min_by_key(|&(_, free)| free),
            Policy::Spread => fitting.min_by_key(|&(_, free)| Reverse(free)),
        }?;
        Some(Spot {
            node,
            devices: self.free_devices(node).take(wanted as usize).collect(),
        })
    }

    fn free_devices(&self, node: usize) -> impl Iterator<Item = usize> {
        let devices = self.ledger.nodes[node].devices.clone();
        devices.filter(|&device| self.ledger.devices[device].is_free() && self.is_open(device))
    }
}
