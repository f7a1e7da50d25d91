//! What is promised to whom: the whole pool's account.
//!
//! A device's account is a [`DeviceLedger`], a machine's a [`NodeLedger`].
//! Another resource of a machine is another place in its [`Amounts`].

use std::ops::Range;

use packhorse_model::{
    Bytes, CoreId, DeviceId, Granted, MemoryRequest, Milli, NodeId, Placement, Request,
};
use rustc_hash::FxHashMap;

use crate::cores::CoreSet;
use crate::device::{DeviceLedger, Tenant, is_whole};
use crate::place::Spot;
use crate::tasks::Handle;
use crate::time::{EndTimes, Moment};
use crate::{NodeSpec, Pool};

/// Nodes and devices are known by their place in the pool's order.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) nodes: Vec<NodeLedger>,
    pub(crate) devices: Vec<DeviceLedger>,
    by_id: FxHashMap<DeviceId, usize>,
    pub(crate) slots: Option<u32>,
    pub(crate) attempts: u32,
    /// How often what others hold, or what is drained, has changed; from 1.
    pub(crate) changes: u64,
}

/// What a machine has beside its devices: cores, thousandths of a core that may
/// be kept busy, bytes of main memory. Of what is not counted there is no end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amounts {
    pub(crate) cores: u64,
    pub(crate) cpu: u64,
    pub(crate) ram: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeLedger {
    pub(crate) id: NodeId,
    pub(crate) devices: Range<usize>,
    pub(crate) cores: Vec<CoreId>,
    pub(crate) free_cores: CoreSet,
    pub(crate) size: Amounts,
    pub(crate) free: Amounts,
    /// Our attempts on it, in no order that means anything.
    pub(crate) guests: Vec<Guest>,
    /// Whether it is to go when the last of those has ended.
    pub(crate) leaving: bool,
}

/// An attempt on a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest {
    pub(crate) task: Handle,
    pub(crate) amounts: Amounts,
    pub(crate) ends: EndTimes,
}

/// What one attempt holds, until it gives it back.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) node: usize,
    pub(crate) devices: Vec<usize>,
    pub(crate) cores: Vec<usize>,
    pub(crate) amounts: Amounts,
}

/// A count as a number of the ledger. More cores or devices than `u32` can
/// count are as good as `u32::MAX`: no request can name more.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Amounts {
    /// What `request` needs of a machine where all is counted.
    pub(crate) fn of(request: &Request) -> Self {
        let cores = u64::from(request.cores);
        Self {
            cores,
            cpu: u64::from(request.cpu.0).max(cores * u64::from(Milli::ONE.0)),
            ram: request.ram.0,
        }
    }

    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cores: with(self.cores, other.cores),
            cpu: with(self.cpu, other.cpu),
            ram: with(self.ram, other.ram),
        }
    }

    /// How much of each is lacking in `free`.
    pub(crate) fn beyond(self, free: Self) -> Self {
        self.zip(free, u64::saturating_sub)
    }

    /// Whether there is so much of each in `free`.
    pub(crate) fn is_within(self, free: Self) -> bool {
        self.beyond(free) == Self::default()
    }

    /// The same, of what is `lacking` only.
    pub(crate) fn where_lacking(self, lacking: Self) -> Self {
        self.zip(
            lacking,
            |amount, lacking| if lacking > 0 { amount } else { 0 },
        )
    }
}

impl NodeLedger {
    fn new(spec: &NodeSpec, devices: Range<usize>) -> Self {
        let size = Amounts {
            cores: spec.cores.len() as u64,
            cpu: spec.cpu.map_or(u64::MAX, |cpu| cpu.0.into()),
            ram: spec.ram.map_or(u64::MAX, |ram| ram.0),
        };
        Self {
            id: spec.id,
            devices,
            free_cores: CoreSet::all(spec.cores.len()),
            cores: spec.cores.clone(),
            size,
            free: size,
            guests: Vec::new(),
            leaving: false,
        }
    }

    /// What `request` needs here.
    pub(crate) fn needs(&self, request: &Request) -> Amounts {
        let counted = |need, size| if size == u64::MAX { 0 } else { need };
        Amounts::of(request).zip(self.size, counted)
    }

    /// When there will be enough for `request`, if our attempts end when they
    /// should.
    pub(crate) fn ready(&self, request: &Request, now: Moment) -> Moment {
        let needs = self.needs(request);
        let mut free = self.free;
        if needs.is_within(free) {
            return now;
        }
        let mut guests: Vec<(Moment, Amounts)> = self
            .guests
            .iter()
            .map(|guest| (guest.ends.at(now), guest.amounts))
            .collect();
        guests.sort_unstable();
        for (end, amounts) in guests {
            free = free.zip(amounts, u64::saturating_add);
            if end == Moment::NEVER || needs.is_within(free) {
                return end;
            }
        }
        Moment::NEVER
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
                DeviceLedger::new(device, index, near)
            }));
            nodes.push(NodeLedger::new(node, first..devices.len()));
        }
        let by_id = devices
            .iter()
            .enumerate()
            .map(|(index, device)| (device.id, index))
            .collect();
        Self {
            nodes,
            devices,
            by_id,
            slots: pool.slots,
            attempts: 0,
            changes: 1,
        }
    }

    /// The place of a device in the pool's order.
    pub(crate) fn find(&self, device: DeviceId) -> Option<usize> {
        self.by_id.get(&device).copied()
    }

    /// The devices of `node` with their places.
    pub(crate) fn devices_of(
        &self,
        node: usize,
    ) -> impl Iterator<Item = (usize, &DeviceLedger)> + Clone {
        let devices = self.nodes[node].devices.clone();
        devices.clone().zip(&self.devices[devices])
    }

    /// Whether one more attempt may run at all.
    pub(crate) fn has_slot(&self) -> bool {
        self.slots.is_none_or(|slots| self.attempts < slots)
    }

    /// Takes what `request` needs at `spot`, which `place` found to fit, for an
    /// attempt of `task`.
    pub(crate) fn take(
        &mut self,
        spot: Spot,
        request: &Request,
        task: Handle,
        ends: EndTimes,
    ) -> Allocation {
        let node = &mut self.nodes[spot.node];
        let cores = if request.cores == 0 {
            Vec::new()
        } else {
            let mut near = CoreSet::none(node.cores.len());
            for &device in &spot.devices {
                near.extend(&self.devices[device].near);
            }
            node.free_cores.pick(request.cores as usize, &near)
        };
        for &core in &cores {
            node.free_cores.remove(core);
        }
        let amounts = node.needs(request);
        node.free = node.free.zip(amounts, u64::saturating_sub);
        node.guests.push(Guest {
            task,
            amounts,
            ends,
        });
        for &device in &spot.devices {
            let device = &mut self.devices[device];
            device.enter(Tenant {
                task,
                share: request.gpus.share(),
                promised: match request.memory {
                    MemoryRequest::Uncounted => Bytes(0),
                    MemoryRequest::Bytes(memory) => memory,
                    MemoryRequest::Whole => device.capacity,
                },
                observed: Bytes(0),
                whole: is_whole(request),
                ends,
            });
        }
        self.attempts += 1;
        Allocation {
            node: spot.node,
            devices: spot.devices,
            cores,
            amounts,
        }
    }

    /// Returns what an attempt of `task` held.
    pub(crate) fn give_back(&mut self, held: &Allocation, task: Handle) {
        let node = &mut self.nodes[held.node];
        for &core in &held.cores {
            node.free_cores.insert(core);
        }
        node.free = node.free.zip(held.amounts, u64::saturating_add);
        node.guests.retain(|guest| guest.task != task);
        for &device in &held.devices {
            self.devices[device].leave(task);
        }
        self.attempts -= 1;
    }

    /// The same in everybody's words.
    pub(crate) fn placement(&self, held: &Allocation, task: Handle) -> Placement {
        let node = &self.nodes[held.node];
        let granted = |&device: &usize| {
            let device = &self.devices[device];
            let tenant = device.tenants.iter().find(|tenant| tenant.task == task)?;
            Some(Granted {
                device: device.id,
                share: tenant.share,
                memory: tenant.promised,
            })
        };
        Placement {
            node: node.id,
            devices: held.devices.iter().filter_map(granted).collect(),
            cores: held.cores.iter().map(|&core| node.cores[core]).collect(),
        }
    }
}
