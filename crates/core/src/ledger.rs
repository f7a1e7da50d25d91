//! What is promised to whom: the whole pool's account.
//!
//! A device's account is a [`DeviceLedger`], a machine's a [`NodeLedger`].
//! Another resource of a machine is another place in its [`Amounts`].

use std::ops::Range;

use packhorse_model::{Bytes, CoreId, DeviceId, Granted, Milli, NodeId, Placement, Request};
use rustc_hash::FxHashMap;

use crate::cores::CoreLayout;
use crate::device::{DeviceLedger, Tenant, is_whole};
use crate::place::Spot;
use crate::tasks::Handle;
use crate::time::{EndTimes, Moment};
use crate::{DeviceSpec, NodeSpec, Pool};

/// Nodes and devices are known by their place in the pool's order.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) nodes: Vec<NodeLedger>,
    pub(crate) devices: Vec<DeviceLedger>,
    by_id: FxHashMap<DeviceId, usize>,
    /// At most so many attempts on a device.
    max_per_device: Option<u32>,
    pub(crate) slots: Option<u32>,
    pub(crate) attempts: u32,
    /// How often what others hold, or what is drained, has changed; from 1.
    pub(crate) changes: u64,
}

/// What a machine has beside its devices: cores, thousandths of a core that may
/// be kept busy, bytes of main memory. What is not counted is `u64::MAX`.
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
    pub(crate) layout: CoreLayout,
    /// For each of them, whether nobody holds it.
    pub(crate) free_cores: Vec<bool>,
    /// Cores that more than one attempt holds, and how many more: some were
    /// adopted.
    pub(crate) shared_cores: FxHashMap<usize, u32>,
    pub(crate) size: Amounts,
    /// What our attempts hold: more than there is, if some were adopted.
    pub(crate) used: Amounts,
    pub(crate) free: Amounts,
    /// Our attempts on it, in no order that means anything.
    pub(crate) guests: Vec<Guest>,
    /// Whether it is removed when the last of those has ended.
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
pub(crate) struct AttemptAllocation {
    pub(crate) node: usize,
    pub(crate) devices: Vec<usize>,
    pub(crate) cores: Vec<usize>,
    pub(crate) amounts: Amounts,
}

/// A count as a number of the ledger. More cores or devices than `u32` can
/// count are as good as `u32::MAX`: no request can name more.
pub(crate) fn count(len: usize) -> u32 {
    small(len as u64)
}

/// The same of an amount.
pub(crate) fn small(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
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

    /// How busy its cores are kept, or may be.
    pub(crate) fn busy(self) -> Milli {
        Milli(small(self.cpu))
    }

    pub(crate) fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cores: with(self.cores, other.cores),
            cpu: with(self.cpu, other.cpu),
            ram: with(self.ram, other.ram),
        }
    }

    /// All of them together.
    pub(crate) fn sum(amounts: impl Iterator<Item = Self>) -> Self {
        amounts.fold(Self::default(), |sum, more| sum.zip(more, u64::saturating_add))
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
        self.zip(lacking, |amount, lacking| if lacking > 0 { amount } else { 0 })
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
            free_cores: vec![true; spec.cores.len()],
            shared_cores: FxHashMap::default(),
            cores: spec.cores.iter().map(|core| core.id).collect(),
            layout: CoreLayout::new(&spec.cores),
            size,
            used: Amounts::default(),
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

    fn enter(&mut self, guest: Guest, cores: &[usize]) {
        for &core in cores {
            if !std::mem::take(&mut self.free_cores[core]) {
                *self.shared_cores.entry(core).or_default() += 1;
            }
        }
        self.used = self.used.zip(guest.amounts, u64::saturating_add);
        self.free = self.size.beyond(self.used);
        self.guests.push(guest);
    }

    fn leave(&mut self, task: Handle, cores: &[usize]) {
        for &core in cores {
            match self.shared_cores.get_mut(&core) {
                Some(1) => drop(self.shared_cores.remove(&core)),
                Some(more) => *more -= 1,
                None => self.free_cores[core] = true,
            }
        }
        self.guests.retain(|guest| guest.task != task);
        self.used = Amounts::sum(self.guests.iter().map(|guest| guest.amounts));
        self.free = self.size.beyond(self.used);
    }

    /// When there will be enough for `request`, if our attempts end when they
    /// should.
    pub(crate) fn ready(&self, request: &Request, now: Moment) -> Moment {
        let needs = self.needs(request);
        if needs.is_within(self.free) {
            return now;
        }
        let mut used = self.used;
        let mut guests: Vec<(Moment, Amounts)> =
            self.guests.iter().map(|guest| (guest.ends.at(now), guest.amounts)).collect();
        guests.sort_unstable();
        for (end, amounts) in guests {
            used = used.beyond(amounts);
            if end == Moment::NEVER || needs.is_within(self.size.beyond(used)) {
                return end;
            }
        }
        Moment::NEVER
    }
}

impl Ledger {
    pub(crate) fn new(pool: &Pool, max_per_device: Option<u32>) -> Self {
        let mut ledger = Self {
            nodes: Vec::with_capacity(pool.nodes.len()),
            devices: Vec::new(),
            by_id: FxHashMap::default(),
            max_per_device,
            slots: pool.slots,
            attempts: 0,
            changes: 1,
        };
        for node in &pool.nodes {
            ledger.add_node(node);
        }
        ledger
    }

    /// Adds a node, the last in the pool's order. Returns its place.
    pub(crate) fn add_node(&mut self, spec: &NodeSpec) -> usize {
        let node = self.nodes.len();
        let end = self.devices.len();
        self.nodes.push(NodeLedger::new(spec, end..end));
        for device in &spec.devices {
            self.add_device(node, device);
        }
        node
    }

    /// Adds a device, the last of `node`. Returns its place; devices that were
    /// there or behind have moved by one.
    pub(crate) fn add_device(&mut self, node: usize, spec: &DeviceSpec) -> usize {
        let account = &mut self.nodes[node];
        let cores = &account.cores;
        let near = account.layout.with(|core| spec.near_cores.contains(&cores[core]));
        let place = account.devices.end;
        account.devices.end += 1;
        for later in &mut self.nodes[node + 1..] {
            later.devices = later.devices.start + 1..later.devices.end + 1;
        }
        let device = DeviceLedger::new(spec, node, near, self.max_per_device);
        self.devices.insert(place, device);
        self.number_devices(place);
        place
    }

    /// Removes a device that nothing of ours is on. Those behind it have moved by
    /// one.
    pub(crate) fn remove_device(&mut self, place: usize) {
        let device = self.devices.remove(place);
        self.by_id.remove(&device.id);
        self.nodes[device.node].devices.end -= 1;
        for later in &mut self.nodes[device.node + 1..] {
            later.devices = later.devices.start - 1..later.devices.end - 1;
        }
        self.number_devices(place);
    }

    /// Removes a node without devices that nothing of ours is on. Those behind it
    /// have moved by one.
    pub(crate) fn remove_node(&mut self, node: usize) {
        self.nodes.remove(node);
        for device in &mut self.devices {
            device.node -= usize::from(device.node > node);
        }
    }

    fn number_devices(&mut self, from: usize) {
        for (place, device) in self.devices.iter().enumerate().skip(from) {
            self.by_id.insert(device.id, place);
        }
    }

    /// The place of a node in the pool's order.
    pub(crate) fn find_node(&self, id: NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// The place of a device in the pool's order.
    pub(crate) fn find(&self, device: DeviceId) -> Option<usize> {
        self.by_id.get(&device).copied()
    }

    /// The devices at these places.
    pub(crate) fn at(&self, places: &[usize]) -> impl Iterator<Item = &DeviceLedger> + Clone {
        places.iter().map(|&place| &self.devices[place])
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
    /// attempt of `task`, one of so many `known` tasks that run or could.
    pub(crate) fn take(
        &mut self,
        spot: Spot,
        request: &Request,
        (task, known): (Handle, usize),
        ends: EndTimes,
    ) -> AttemptAllocation {
        let node = &self.nodes[spot.node];
        let cores = if request.cores == 0 {
            Vec::new()
        } else {
            let near = self.at(&spot.devices).map(|device| device.near.as_slice());
            let whole_part = self.whole_part(spot.node, request, known);
            let (free, wanted) = (&node.free_cores, request.cores as usize);
            node.layout.pick(free, wanted, whole_part, &near)
        };
        let amounts = node.needs(request);
        let grants = self.at(&spot.devices).map(|device| Granted {
            device: device.id,
            share: request.gpus.share(),
            memory: device.promise(request),
        });
        let grants: Vec<Granted> = grants.collect();
        let allocation =
            AttemptAllocation { node: spot.node, devices: spot.devices, cores, amounts };
        self.enter(&allocation, &grants, is_whole(request), task, ends);
        allocation
    }

    /// Counts what an attempt of `task` holds, whether there is so much or not.
    /// `grants` are the parts of its devices.
    pub(crate) fn enter(
        &mut self,
        allocation: &AttemptAllocation,
        grants: &[Granted],
        whole: bool,
        task: Handle,
        ends: EndTimes,
    ) {
        let amounts = allocation.amounts;
        let guest = Guest { task, amounts, ends };
        self.nodes[allocation.node].enter(guest, &allocation.cores);
        for (&device, granted) in allocation.devices.iter().zip(grants) {
            self.devices[device].enter(Tenant {
                task,
                share: granted.share,
                promised: granted.memory,
                observed: Bytes(0),
                whole,
                ends,
            });
        }
        self.attempts += 1;
    }

    /// Returns what an attempt of `task` held.
    pub(crate) fn give_back(&mut self, allocation: &AttemptAllocation, task: Handle) {
        self.nodes[allocation.node].leave(task, &allocation.cores);
        for &device in &allocation.devices {
            self.devices[device].leave(task);
        }
        self.attempts -= 1;
    }

    /// The allocation as a placement, with ids instead of places.
    pub(crate) fn placement(&self, held: &AttemptAllocation, task: Handle) -> Placement {
        let node = &self.nodes[held.node];
        let granted = |&device: &usize| {
            let device = &self.devices[device];
            let tenant = device.tenants.iter().find(|tenant| tenant.task == task)?;
            Some(Granted { device: device.id, share: tenant.share, memory: tenant.promised })
        };
        Placement {
            node: node.id,
            devices: held.devices.iter().filter_map(granted).collect(),
            cores: held.cores.iter().map(|&core| node.cores[core]).collect(),
        }
    }
}
