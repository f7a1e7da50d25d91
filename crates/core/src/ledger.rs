//! What is promised to whom.
//!
//! A device's account is one [`DeviceLedger`]; another resource of a device
//! (its memory) is another field there, taken in [`Ledger::take`], returned in
//! [`Ledger::give_back`], and asked for in `place`.

use std::ops::Range;

use packhorse_model::{CoreId, DeviceId, Granted, Milli, NodeId, Placement, Request};
use rustc_hash::FxHashMap;

use crate::Pool;
use crate::cores::CoreSet;
use crate::place::Spot;

/// The whole pool's account. Nodes and devices are known by their place in the
/// pool's order.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) nodes: Vec<NodeLedger>,
    pub(crate) devices: Vec<DeviceLedger>,
    pub(crate) slots: Option<u32>,
    pub(crate) attempts: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeLedger {
    pub(crate) id: NodeId,
    pub(crate) devices: Range<usize>,
    pub(crate) cores: Vec<CoreId>,
    pub(crate) free: CoreSet,
    pub(crate) free_cores: u32,
    pub(crate) attempts: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct DeviceLedger {
    pub(crate) id: DeviceId,
    pub(crate) node: usize,
    pub(crate) near: CoreSet,
    pub(crate) used: Milli,
    pub(crate) attempts: u32,
}

/// What one attempt holds, until it gives it back.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) node: usize,
    pub(crate) devices: Vec<usize>,
    pub(crate) share: Milli,
    pub(crate) cores: Vec<usize>,
}

/// A count as a number of the ledger. More cores or devices than `u32` can
/// count are as good as `u32::MAX`: no request can name more.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl DeviceLedger {
    pub(crate) fn free(&self) -> Milli {
        Milli(Milli::ONE.0 - self.used.0)
    }

    /// Whether nobody is on it.
    pub(crate) fn is_free(&self) -> bool {
        self.attempts == 0
    }
}

impl Ledger {
    pub(crate) fn new(pool: &Pool) -> Self {
        let mut nodes = Vec::with_capacity(pool.nodes.len());
        let mut devices = Vec::new();
        for (index, node) in pool.nodes.iter().enumerate() {
            let places: FxHashMap<CoreId, usize> = node
                .cores
                .iter()
                .enumerate()
                .map(|(place, &core)| (core, place))
                .collect();
            let first = devices.len();
            devices.extend(node.devices.iter().map(|device| {
                let mut near = CoreSet::none(node.cores.len());
                let known = device.near_cores.iter().filter_map(|core| places.get(core));
                known.for_each(|&place| near.insert(place));
                DeviceLedger {
                    id: device.id,
                    node: index,
                    near,
                    used: Milli(0),
                    attempts: 0,
                }
            }));
            nodes.push(NodeLedger {
                id: node.id,
                devices: first..devices.len(),
                free: CoreSet::all(node.cores.len()),
                free_cores: count(node.cores.len()),
                cores: node.cores.clone(),
                attempts: 0,
            });
        }
        Self {
            nodes,
            devices,
            slots: pool.slots,
            attempts: 0,
        }
    }

    /// Whether one more attempt may run at all.
    pub(crate) fn has_slot(&self) -> bool {
        self.slots.is_none_or(|slots| self.attempts < slots)
    }

    /// Takes what `request` needs at `spot`, which `place` found to fit.
    pub(crate) fn take(&mut self, spot: Spot, request: &Request) -> Held {
        let share = request.gpus.share();
        let node = &mut self.nodes[spot.node];
        let cores = if request.cores == 0 {
            Vec::new()
        } else {
            let mut near = CoreSet::none(node.cores.len());
            for &device in &spot.devices {
                near.extend(&self.devices[device].near);
            }
            node.free.pick(request.cores as usize, &near)
        };
        for &core in &cores {
            node.free.remove(core);
        }
        node.free_cores -= count(cores.len());
        node.attempts += 1;
        for &device in &spot.devices {
            let device = &mut self.devices[device];
            device.used.0 += share.0;
            device.attempts += 1;
        }
        self.attempts += 1;
        Held {
            node: spot.node,
            devices: spot.devices,
            share,
            cores,
        }
    }

    /// Returns what an attempt held.
    pub(crate) fn give_back(&mut self, held: &Held) {
        let node = &mut self.nodes[held.node];
        for &core in &held.cores {
            node.free.insert(core);
        }
        node.free_cores += count(held.cores.len());
        node.attempts -= 1;
        for &device in &held.devices {
            let device = &mut self.devices[device];
            device.used.0 -= held.share.0;
            device.attempts -= 1;
        }
        self.attempts -= 1;
    }

    /// The same in everybody's words.
    pub(crate) fn placement(&self, held: &Held) -> Placement {
        let node = &self.nodes[held.node];
        let granted = |&device: &usize| Granted {
            device: self.devices[device].id,
            share: held.share,
        };
        Placement {
            node: node.id,
            devices: held.devices.iter().map(granted).collect(),
            cores: held.cores.iter().map(|&core| node.cores[core]).collect(),
        }
    }
}
