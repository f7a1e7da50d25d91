//! What a place costs those who will come.
//!
//! A free device is worth what it can still be used for. Half a device is worth
//! nothing to whoever needs a whole one, and a whole one is worth nothing on a
//! machine whose cores are all busy. So each place is judged by how much of the
//! free room around it becomes useless for those who will come, the
//! [`RequestMix`]; that is called fragmentation. Everything here is in thousandths of
//! a device, and in whole numbers.
//!
//! - The room of a device is what is neither given out nor held by others, by
//!   its share or its memory, whichever is less.
//! - `one` is what tasks of one kind could fill of the devices of a node: of a
//!   device with room for two such tasks and a half, two. It is nothing if the
//!   node lacks devices, cores or main memory for a single one.
//! - `many` is the same, but no more than the node's cores and main memory
//!   suffice for.
//! - The use of a node is the sum of both over all kinds, each as often as it will
//!   come. `one` alone is too hopeful: eight free devices beside cores for one
//!   task are not all of use. `many` alone is too gloomy: tasks of other kinds
//!   will come as well.
//! - A kind counts for more the fewer devices of the pool it could ever use,
//!   by the root of how many times more there are. What is lost on one of them is
//!   hard to find elsewhere, so those who may go anywhere leave the devices alone
//!   that others must have. (The root, since the others have to go somewhere
//!   too: without it, those that nobody insists on become fragmented.)
//! - A place costs the use that is lost, less what is taken; and, a little, what
//!   is left of the node. The latter is best fit: it decides between places that
//!   fragment about as much, so that what is empty stays so.
//!
//! To put a task where fragmentation grows least is the idea of Weng et al.
//! (ATC '23).

use std::hash::{Hash, Hasher};

use packhorse_model::{Bytes, Milli, Request};
use rustc_hash::{FxHashMap, FxHasher};

use crate::device::{DeviceLedger, TenantLoad, is_whole, memory_of};
use crate::ledger::{Amounts, Ledger, NodeLedger};

/// So many kinds of tasks are told apart. Of more, the most frequent remain.
const KINDS: usize = 64;

/// What an empty node costs more than a full one, for its devices and again for
/// its cores, in thousandths of a device.
const FIT: i128 = 16;

const ALL: u64 = Milli::ONE.0 as u64;

/// The weight of a kind that may use all devices.
const WEIGHT: u64 = 1 << 8;

/// Which kinds of tasks will come, and how often.
///
/// If all tasks are known, those are the ones that have not started. If more may
/// come, those that were seen so far stand for them.
///
/// Each task counts once, by what is known of its needs now. There is room for
/// a few kinds; a new one takes the place, and the count, of the rarest that needs
/// the same of devices, or of the rarest of all. So those that come again and again
/// are never pushed out for long, and of many that are equally rare some are
/// there, which will do as well.
#[derive(Clone, Debug)]
pub(crate) struct RequestMix {
    kinds: Vec<RequestKind>,
    /// Whether tasks may come that nobody knows of yet.
    pub(crate) more_to_come: bool,
    /// The most cores of a node.
    cores: u64,
    /// The most that one may be kept busy, where that is counted.
    cpu: u64,
    /// The most devices of one.
    devices: u64,
    /// How many devices there are.
    all_devices: u64,
    /// Of nodes that were made alike, one, and how many there are.
    sorts: Vec<(usize, u64)>,
}

#[derive(Clone, Debug)]
struct RequestKind {
    request: Request,
    seen: u64,
    /// How many of those have not started. Too few if the kind had no place for a
    /// while.
    waiting: u64,
    weight: u64,
}

impl RequestMix {
    pub(crate) fn new(ledger: &Ledger) -> Self {
        let mut mix = Self {
            kinds: Vec::new(),
            more_to_come: true,
            cores: 0,
            cpu: 0,
            devices: 0,
            all_devices: 0,
            sorts: Vec::new(),
        };
        mix.measure(ledger);
        mix
    }

    /// Takes note of what the nodes have.
    pub(crate) fn measure(&mut self, ledger: &Ledger) {
        let counted = |size: u64| if size == u64::MAX { 0 } else { size };
        let largest = |of: fn(&NodeLedger) -> u64| {
            let sizes = ledger.nodes.iter().map(|node| counted(of(node)));
            sizes.max().unwrap_or(0)
        };
        self.cores = largest(|node| node.size.cores);
        self.cpu = largest(|node| node.size.cpu);
        self.devices = largest(|node| node.devices.len() as u64);
        self.all_devices = ledger.devices.len() as u64;
        self.sorts.clear();
        let mut places: FxHashMap<u64, usize> = FxHashMap::default();
        for node in 0..ledger.nodes.len() {
            let place = places.entry(make(ledger, node)).or_insert(self.sorts.len());
            match self.sorts.get_mut(*place) {
                Some((_, count)) => *count += 1,
                None => self.sorts.push((node, 1)),
            }
        }
        for place in 0..self.kinds.len() {
            self.kinds[place].weight = self.weight(ledger, &self.kinds[place].request);
        }
    }

    /// How much it counts if a task like `request` loses something.
    fn weight(&self, ledger: &Ledger, request: &Request) -> u64 {
        let wanted = request.gpus.devices() as usize;
        if wanted == 0 {
            return WEIGHT;
        }
        let usable = self.sorts.iter().map(|&(node, count)| {
            let own = &ledger.nodes[node];
            let devices = ledger.devices_of(node);
            let suiting = devices.filter(|(_, device)| device.suits(request)).count();
            let suffices = suiting >= wanted && own.needs(request).is_within(own.size);
            if suffices { count * suiting as u64 } else { 0 }
        });
        let scarce = (self.all_devices * WEIGHT * WEIGHT).checked_div(usable.sum());
        scarce.map_or(WEIGHT, u64::isqrt)
    }

    fn find(&self, request: &Request) -> Option<usize> {
        self.kinds.iter().position(|kind| kind.request == *request)
    }

    /// There is one more task that needs this; it has not started.
    pub(crate) fn see(&mut self, ledger: &Ledger, request: &Request) {
        let place = self.find(request).unwrap_or_else(|| {
            let mut kind = RequestKind {
                request: request.clone(),
                seen: 0,
                waiting: 0,
                weight: self.weight(ledger, request),
            };
            if self.kinds.len() < KINDS {
                self.kinds.push(kind);
                return self.kinds.len() - 1;
            }
            let places = 0..self.kinds.len();
            let rarest = places.min_by_key(|&place| {
                let kind = &self.kinds[place];
                (!need_same_devices(&kind.request, request), kind.seen)
            });
            let rarest = rarest.unwrap_or(0);
            kind.seen = self.kinds[rarest].seen;
            self.kinds[rarest] = kind;
            rarest
        });
        self.kinds[place].seen += 1;
        self.kinds[place].waiting += 1;
    }

    /// A task that was seen has started, or never will.
    pub(crate) fn stop_waiting(&mut self, request: &Request) {
        if let Some(place) = self.find(request) {
            let waiting = &mut self.kinds[place].waiting;
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// A task that had started will start once more.
    pub(crate) fn wait_again(&mut self, request: &Request) {
        if let Some(place) = self.find(request) {
            self.kinds[place].waiting += 1;
        }
    }

    /// A task that was seen and has not started needs something else after all.
    pub(crate) fn forget(&mut self, request: &Request) {
        self.stop_waiting(request);
        let Some(place) = self.find(request) else {
            return;
        };
        self.kinds[place].seen -= 1;
        if self.kinds[place].seen == 0 {
            self.kinds.remove(place);
        }
    }

    /// How often a kind will come.
    fn count(&self, kind: &RequestKind) -> u64 {
        if self.more_to_come { kind.seen } else { kind.waiting }
    }
}

/// How much of a device is left beside this `load` of ours.
fn room(device: &DeviceLedger, load: TenantLoad) -> u64 {
    if load.whole || device.outside.whole {
        return 0;
    }
    ALL.saturating_sub(device.fullness(load))
}

/// How much of each of its devices `request` takes, if they are like this one.
fn size(device: &DeviceLedger, request: &Request) -> u64 {
    if is_whole(request) {
        return ALL;
    }
    let memory = memory_of(request).0.saturating_mul(ALL);
    let memory = memory.checked_div(device.capacity.0).unwrap_or(0);
    memory.max(request.gpus.share().0.into())
}

/// Whether both need the same of devices, whatever they need of a machine.
fn need_same_devices(one: &Request, other: &Request) -> bool {
    one.gpus == other.gpus
        && one.memory == other.memory
        && one.models == other.models
        && one.device_memory == other.device_memory
}

/// What it would be with one more attempt for `request`.
fn joined(device: &DeviceLedger, request: &Request) -> TenantLoad {
    let promised = device.promise(request);
    TenantLoad {
        share: Milli(device.load.share.0.saturating_add(request.gpus.share().0)),
        memory: Bytes(device.load.memory.0.saturating_add(promised.0)),
        attempts: device.load.attempts + 1,
        whole: device.load.whole || is_whole(request),
    }
}

/// Whether nothing that matters here tells them apart.
pub(crate) fn are_alike(one: &DeviceLedger, other: &DeviceLedger) -> bool {
    one.load == other.load
        && one.capacity == other.capacity
        && one.model == other.model
        && one.one_process == other.one_process
        && one.is_closed() == other.is_closed()
        && one.outside == other.outside
}

/// A number that nodes have in common which have the same when they are empty.
fn make(ledger: &Ledger, node: usize) -> u64 {
    let mut hasher = FxHasher::default();
    let Amounts { cores, cpu, ram } = ledger.nodes[node].size;
    (cores, cpu, ram).hash(&mut hasher);
    for (_, device) in ledger.devices_of(node) {
        (device.capacity, device.model, device.one_process).hash(&mut hasher);
    }
    hasher.finish()
}

/// A number that nodes have in common where every place costs the same.
pub(crate) fn likeness(ledger: &Ledger, node: usize) -> u64 {
    let mut hasher = FxHasher::default();
    let Amounts { cores, cpu, ram } = ledger.nodes[node].free;
    let size = ledger.nodes[node].size;
    let uncounted = (size.cpu == u64::MAX, size.ram == u64::MAX);
    (cores, cpu, ram, uncounted).hash(&mut hasher);
    for (_, device) in ledger.devices_of(node) {
        (device.load, device.capacity, device.model, device.one_process).hash(&mut hasher);
        (device.is_closed(), device.outside).hash(&mut hasher);
    }
    hasher.finish()
}

/// A node, and of what use it is to those who will come.
pub(crate) struct Outlook<'a> {
    own: &'a NodeLedger,
    mix: &'a RequestMix,
    ledger: &'a Ledger,
    /// Its devices, those that are alike together.
    groups: Vec<DeviceGroup<'a>>,
    /// The room of all its devices.
    room: u64,
    /// Of the kinds that will come, in their order.
    uses: Vec<KindUse<'a>>,
    /// How much all of them count together, for `one` and for `many`.
    all: i128,
    /// What kinds could fill of a device of each group: one row for neighbours
    /// that need the same of devices.
    fills: Vec<Vec<Option<u64>>>,
}

/// Devices that are alike.
struct DeviceGroup<'a> {
    state: LoadedDevice<'a>,
    count: u64,
}

/// A device with a load of ours, which may not be the one that it has.
struct LoadedDevice<'a> {
    device: &'a DeviceLedger,
    load: TenantLoad,
    room: u64,
}

impl<'a> LoadedDevice<'a> {
    fn new(device: &'a DeviceLedger, load: TenantLoad) -> Self {
        let room = room(device, load);
        Self { device, load, room }
    }

    /// How much tasks of one kind could fill of it; nothing if not even one
    /// fits.
    fn fill(&self, request: &Request) -> Option<u64> {
        let (device, load) = (self.device, self.load);
        let room = device.room(load, device.outside, request)?;
        if device.is_closed() || !room.fits(request) {
            return None;
        }
        let places = device.max_attempts.map_or(u64::MAX, |most| {
            let attempts = load.attempts.saturating_add(device.outside.attempts);
            most.saturating_sub(attempts).into()
        });
        let size = size(device, request).max(1);
        // One fits, whatever rounding says.
        let tasks = (self.room / size).clamp(1, places.max(1));
        Some(tasks.saturating_mul(size).min(self.room))
    }
}

/// What tasks of one kind could use of a node's devices.
#[derive(Clone, Copy)]
struct KindUse<'a> {
    request: &'a Request,
    /// How much it counts if such tasks lose something.
    weight: i128,
    /// How many devices one of them fits on.
    devices: u64,
    /// What they could fill of those.
    fill: u64,
    /// How much one task takes of its devices together.
    size: u64,
    /// What one task needs of the node.
    needs: Amounts,
    /// `one` and `many` as things stand.
    value: u64,
    /// Which row of the fills is its own.
    row: usize,
}

impl KindUse<'_> {
    /// `one` and `many` together.
    fn value(self, free: Amounts) -> u64 {
        let wanted = u64::from(self.request.gpus.devices());
        if wanted == 0 || self.devices < wanted || !self.needs.is_within(free) {
            return 0;
        }
        // Devices that are left over from the last group are of no use.
        let one = match wanted {
            1 => self.fill,
            _ => self.fill / self.devices * (self.devices / wanted * wanted),
        };
        let suffices = |free: u64, need: u64| match need {
            0 => u64::MAX,
            need => free.saturating_mul(self.size) / need,
        };
        let many = one
            .min(suffices(free.cores, self.needs.cores))
            .min(suffices(free.cpu, self.needs.cpu))
            .min(suffices(free.ram, self.needs.ram));
        one + many
    }
}

impl<'a> Outlook<'a> {
    pub(crate) fn new(mix: &'a RequestMix, ledger: &'a Ledger, node: usize) -> Self {
        let mut groups: Vec<DeviceGroup> = Vec::new();
        for (_, device) in ledger.devices_of(node) {
            let alike = |group: &&mut DeviceGroup| are_alike(group.state.device, device);
            if let Some(group) = groups.iter_mut().find(alike) {
                group.count += 1;
            } else {
                let state = LoadedDevice::new(device, device.load);
                groups.push(DeviceGroup { state, count: 1 });
            }
        }
        let rooms = groups.iter().map(|group| group.count * group.state.room);
        let mut outlook = Self {
            own: &ledger.nodes[node],
            mix,
            ledger,
            room: rooms.sum(),
            groups,
            uses: Vec::with_capacity(mix.kinds.len()),
            fills: Vec::new(),
            all: 0,
        };
        let mut last: Option<&Request> = None;
        for kind in mix.kinds.iter().filter(|kind| mix.count(kind) > 0) {
            if !last.is_some_and(|last| need_same_devices(last, &kind.request)) {
                let groups = outlook.groups.iter();
                let fills = groups.map(|group| group.state.fill(&kind.request));
                let fills = fills.collect();
                outlook.fills.push(fills);
            }
            last = Some(&kind.request);
            let kind_use = outlook.of(kind);
            outlook.all += 2 * kind_use.weight;
            outlook.uses.push(kind_use);
        }
        outlook
    }

    /// Of what use the node is to `kind`, whose row of fills is the last.
    fn of(&self, kind: &'a RequestKind) -> KindUse<'a> {
        let wanted = u64::from(kind.request.gpus.devices());
        let needs = self.own.needs(&kind.request);
        let row = self.fills.len().saturating_sub(1);
        let mut found = KindUse {
            request: &kind.request,
            weight: i128::from(self.mix.count(kind)) * i128::from(kind.weight),
            devices: 0,
            fill: 0,
            size: 0,
            needs,
            value: 0,
            row,
        };
        if wanted == 0 || !needs.is_within(self.own.free) {
            return found;
        }
        for (group, fill) in self.groups.iter().zip(&self.fills[row]) {
            if let Some(fill) = fill {
                if found.devices == 0 {
                    let size = size(group.state.device, &kind.request);
                    found.size = size.saturating_mul(wanted);
                }
                found.devices += group.count;
                found.fill += group.count * fill;
            }
        }
        found.value = found.value(self.own.free);
        found
    }

    /// What places of the node may seem to cost more or less than each other only because
    /// everything is counted in whole thousandths.
    pub(crate) fn rounding(&self) -> i128 {
        2 * self.all
    }

    /// What it costs if `request` takes these devices of the node.
    pub(crate) fn cost(&self, request: &Request, devices: &[usize]) -> i128 {
        let free = self.own.free.beyond(self.own.needs(request));
        let changes = devices.iter().filter_map(|&device| {
            let device = &self.ledger.devices[device];
            let mut groups = self.groups.iter();
            let group = groups.position(|group| are_alike(group.state.device, device))?;
            Some((group, LoadedDevice::new(device, joined(device, request))))
        });
        let changes: Vec<(usize, LoadedDevice)> = changes.collect();
        let taken = changes.iter();
        let taken = taken.map(|(group, after)| {
            let before = &self.groups[*group].state;
            before.room.saturating_sub(after.room)
        });
        let taken: u64 = taken.sum();
        let mut lost = 0;
        // What of the row's fills goes, and what comes instead.
        let mut change = (usize::MAX, [0; 2], [0; 2]);
        for &before in &self.uses {
            // What nobody could use before, nobody can now.
            if before.value == 0 {
                continue;
            }
            if change.0 != before.row {
                let sum = |fills: &mut dyn Iterator<Item = Option<u64>>| {
                    let fills = fills.flatten();
                    fills.fold([0, 0], |[devices, sum], fill| [devices + 1, sum + fill])
                };
                let row = &self.fills[before.row];
                let gone = sum(&mut changes.iter().map(|(group, _)| row[*group]));
                let come = sum(&mut changes.iter().map(|(_, after)| after.fill(before.request)));
                change = (before.row, gone, come);
            }
            let (_, gone, come) = change;
            let mut left = before;
            left.devices = left.devices - gone[0] + come[0];
            left.fill = left.fill - gone[1] + come[1];
            let left = left.value(free);
            lost += before.weight * (i128::from(before.value) - i128::from(left));
        }
        let left = self.room.saturating_sub(taken);
        lost - self.all * i128::from(taken) + self.emptiness(free, left)
    }

    /// The more is left, the more it costs.
    fn emptiness(&self, free: Amounts, room: u64) -> i128 {
        let part = |left: u64, largest: u64| {
            let left = left.min(largest);
            (self.all * FIT * i128::from(left)).checked_div(largest.into())
        };
        // Where some count how busy their cores are, one that does not is as
        // empty as can be.
        let cores = part(free.cpu, self.mix.cpu).or_else(|| part(free.cores, self.mix.cores));
        let devices = part(room, self.mix.devices.saturating_mul(ALL));
        cores.unwrap_or(0) + devices.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::GpuRequest;

    use super::*;
    use crate::{NodeSpec, Pool};

    fn ledger() -> Ledger {
        let node = NodeSpec {
            id: packhorse_model::NodeId(0),
            devices: vec![],
            cores: vec![],
            cpu: None,
            ram: None,
        };
        let pool = Pool { nodes: vec![node], slots: None };
        Ledger::new(&pool, None)
    }

    fn share(milli: u32) -> Request {
        Request { gpus: GpuRequest::Share(Milli(milli)), ..Request::default() }
    }

    #[test]
    fn what_is_frequent_outlasts_any_number_of_rare_kinds() {
        let ledger = ledger();
        let mut mix = RequestMix::new(&ledger);
        for round in 0..900 {
            mix.see(&ledger, &share(999));
            mix.see(&ledger, &share(round));
        }
        assert_eq!(mix.kinds.len(), KINDS);
        let often = mix.find(&share(999)).map(|place| mix.kinds[place].seen);
        assert_eq!(often, Some(900));
        assert!(mix.find(&share(899)).is_some(), "the last one is known");
        assert!(mix.find(&share(1)).is_none());
        let sum: u64 = mix.kinds.iter().map(|kind| kind.seen).sum();
        assert_eq!(sum, 1800);
    }

    #[test]
    fn those_that_wait_are_never_counted_twice() {
        let ledger = ledger();
        let mut mix = RequestMix::new(&ledger);
        let requests: Vec<Request> = (0..200).chain(0..200).map(share).collect();
        for request in &requests {
            mix.see(&ledger, request);
        }
        // Each has lost its place in between.
        assert!(mix.kinds.iter().all(|kind| kind.waiting == 1));
        for request in &requests {
            mix.stop_waiting(request);
        }
        assert!(mix.kinds.iter().all(|kind| kind.waiting == 0));
        mix.wait_again(&requests[399]);
        let waiting = mix.kinds.iter().map(|kind| kind.waiting);
        assert_eq!(waiting.sum::<u64>(), 1);
    }

    #[test]
    fn forgotten_kinds_make_room() {
        let ledger = ledger();
        let mut mix = RequestMix::new(&ledger);
        mix.see(&ledger, &share(1));
        mix.see(&ledger, &share(1));
        mix.forget(&share(1));
        mix.forget(&share(2));
        assert_eq!((mix.kinds.len(), mix.kinds[0].seen), (1, 1));
        mix.forget(&share(1));
        assert_eq!(mix.kinds.len(), 0);
    }
}
