//! The promises of the crate's head, as far as a state shows whether they were
//! kept.

use packhorse_model::{Bytes, MemoryRequest, Milli};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ProbePlan;
use crate::device::{TenantLoad, is_whole};
use crate::ledger::{Amounts, count};
use crate::queue::ClassId;
use crate::reach;
use crate::state::SchedulerState;
use crate::tasks::TaskStatus;
use crate::time::Moment;

impl SchedulerState {
    /// Whether every task that was submitted is over.
    pub fn is_idle(&self) -> bool {
        self.tasks.len() == 0
    }

    /// Panics, saying what is wrong, if any invariant does not hold.
    pub fn check(&self) {
        self.check_records();
        self.check_nodes();
        self.check_devices();
        self.check_dependencies();
        self.check_line();
        self.check_reservation();
        self.check_nothing_waits_in_vain();
    }

    fn check_records(&self) {
        let mut waiting = 0;
        let mut running = FxHashSet::default();
        for (handle, record) in self.tasks.iter() {
            let id = record.id;
            let found = self.tasks.find(id);
            assert_eq!(found, Some(handle), "{id} is another task's record");
            let ending = self.finished.get(id);
            assert_eq!(ending, None, "{id} has finished and is still there");
            match record.status {
                TaskStatus::Waiting => {
                    assert_ne!(record.probe, ProbePlan::Awaited, "{id} is not measured");
                    assert!(!self.held_runs.contains(&id.run), "{id} is of a run that is held");
                    waiting += 1;
                }
                TaskStatus::Blocked => assert!(
                    self.deps.is_blocked(handle)
                        || record.probe == ProbePlan::Awaited
                        || self.held_runs.contains(&id.run),
                    "{id} waits for nobody"
                ),
                TaskStatus::Running(place) => {
                    assert!(running.insert(place), "{id} runs in another's place");
                    let held = &self.running[place as usize];
                    assert_eq!(held.task, handle, "{id} is not what runs in its place");
                    if held.attempt > 0 {
                        let attempts = record.attempts;
                        assert_eq!(held.attempt, attempts, "{id} runs as another attempt");
                        assert_eq!(held.class, record.class, "{id} has another class");
                    }
                    if held.adopted {
                        continue;
                    }
                    let request = &self.queue.demand(held.class).request;
                    let held = &held.allocation;
                    let (devices, cores) = (count(held.devices.len()), count(held.cores.len()));
                    assert_eq!(devices, request.gpus.devices(), "{id} has other devices");
                    assert_eq!(cores, request.cores, "{id} has other cores");
                    let needs = self.ledger.nodes[held.node].needs(request);
                    assert_eq!(held.amounts, needs, "{id} has other amounts");
                }
            }
        }
        assert_eq!(self.running.len(), running.len(), "something unknown runs");
        let (len, queued) = (self.queue.len(), self.queue.iter().count());
        assert_eq!(len, waiting, "somebody is missing in the queue");
        assert_eq!(len, queued, "the queue does not know its length");
        for (class, order, handle) in self.queue.iter() {
            let record = self.tasks.get(handle);
            let wanted = (class, order, TaskStatus::Waiting);
            let found = (record.class, record.key, record.status);
            assert_eq!(found, wanted, "{} is in the wrong line", record.id);
        }
        let unfinished = self.tasks.len() as u64;
        let known = unfinished + self.finished.len();
        assert_eq!(known, self.submitted, "a task was lost, or finished twice");
    }

    fn check_nodes(&self) {
        let nodes = self.ledger.nodes.iter();
        let devices = nodes.flat_map(|node| node.devices.clone());
        let in_order = devices.eq(0..self.ledger.devices.len());
        assert!(in_order, "nodes have each other's devices");
        for (place, device) in self.ledger.devices.iter().enumerate() {
            assert_eq!(self.ledger.find(device.id), Some(place), "{device:?}");
            let node = &self.ledger.nodes[device.node];
            assert!(node.devices.contains(&place), "node of {device:?}");
        }
        let attempts = count(self.running.len());
        assert_eq!(self.ledger.attempts, attempts, "slots are miscounted");
        let enough = self.ledger.slots.is_none_or(|slots| attempts <= slots);
        let adopted = self.running.iter().any(|running| running.adopted);
        assert!(adopted || enough, "more attempts than slots");
        for (index, node) in self.ledger.nodes.iter().enumerate() {
            let here = || {
                let running = self.running.iter();
                running.filter(|running| running.allocation.node == index)
            };
            assert_eq!(node.guests.len(), here().count(), "attempts of {node:?}");
            // What was adopted may be more than there is.
            let adopted = here().any(|running| running.adopted);
            let mut taken = FxHashSet::default();
            let mut shared = FxHashMap::default();
            for &core in here().flat_map(|running| &running.allocation.cores) {
                if !taken.insert(core) {
                    assert!(adopted, "core {core} of {node:?} is given twice");
                    *shared.entry(core).or_default() += 1;
                }
            }
            assert_eq!(node.shared_cores, shared, "shared cores of {node:?}");
            for core in 0..node.cores.len() {
                let free = node.free_cores[core];
                assert_ne!(free, taken.contains(&core), "core {core} of {node:?}");
            }
            let used = Amounts::sum(here().map(|running| running.allocation.amounts));
            assert_eq!(node.used, used, "what is used of {node:?}");
            let free = node.size.beyond(used);
            assert_eq!(node.free, free, "what is free of {node:?}");
            let within = adopted || used.is_within(node.size);
            assert!(within, "{node:?} is over its size");
            let stays = !node.leaving || here().next().is_some();
            assert!(stays, "{node:?} should be gone");
        }
    }

    fn check_devices(&self) {
        for (index, device) in self.ledger.devices.iter().enumerate() {
            let here = || {
                let running = self.running.iter();
                running.filter(move |running| running.allocation.devices.contains(&index))
            };
            let tenants = device.tenants.len();
            assert_eq!(tenants, here().count(), "tenants of {device:?}");
            for running in here() {
                let node = running.allocation.node;
                assert_eq!(node, device.node, "{device:?} is given across nodes");
                let mut tenants = device.tenants.iter();
                let tenant = tenants.find(|tenant| tenant.task == running.task);
                let tenant = tenant.expect("it is on the device");
                if running.adopted {
                    continue;
                }
                let request = &self.queue.demand(running.class).request;
                assert_eq!(tenant.share, request.gpus.share(), "a share of {device:?}");
                let whole = is_whole(request);
                assert_eq!(tenant.whole, whole, "who is alone on {device:?}");
                let promised = match request.memory {
                    MemoryRequest::Uncounted => Bytes(0),
                    // It may be promised more than it asked for.
                    MemoryRequest::Bytes(memory) => tenant.promised.max(memory),
                    // It is told later how much that is.
                    MemoryRequest::AtLeast(_) => tenant.promised,
                    MemoryRequest::Whole => device.capacity,
                };
                assert_eq!(tenant.promised, promised, "a promise of {device:?}");
                assert!(request.models.contains(device.model), "model of {device:?}");
                let large = device.capacity >= request.device_memory;
                assert!(large, "size of {device:?}");
            }
            let load = TenantLoad::of(&device.tenants);
            assert_eq!(device.load, load, "load of {device:?}");
            let stays = !device.leaving || tenants > 0;
            assert!(stays, "{device:?} should be gone");
            if here().any(|running| running.adopted) {
                continue;
            }
            assert!(load.share <= Milli::ONE, "{device:?} is over its share");
            let kept = device.promised() <= device.capacity;
            assert!(kept, "more is promised than {device:?} has");
            let alone = !load.whole || load.attempts == 1;
            assert!(alone, "somebody should be alone on {device:?}");
            let most = device.max_attempts.unwrap_or(u32::MAX);
            assert!(load.attempts <= most, "{device:?} is over its limit");
        }
    }

    fn check_dependencies(&self) {
        let mut edges = 0;
        for (handle, record) in self.tasks.iter() {
            for on in self.deps.waits_for(handle) {
                edges += 1;
                let id = record.id;
                assert_eq!(record.status, TaskStatus::Blocked, "{id} did not wait");
                let on = self.tasks.get(on).id;
                let is_over = self.tasks.find(on).is_none();
                assert!(!is_over, "{id} waits for {on}, which is over");
            }
        }
        assert_eq!(edges, self.deps.len(), "a dependency of nobody");
    }

    fn check_line(&self) {
        let first = self.queue.iter().min_by_key(|&(_, order, _)| order);
        let first = first.map(|(.., task)| task);
        assert_eq!(self.queue.first(), first, "who is first in line");
        for family in self.queue.families() {
            let request = &family.request;
            let wanted = reach::of(&self.ledger, request, |device| device.reach(request));
            assert_eq!(family.reach, wanted, "reach of {family:?}");
        }
        let mut users: FxHashMap<ClassId, u32> = FxHashMap::default();
        let records = self.tasks.iter().map(|(_, record)| record.class);
        for class in records.chain(self.running.iter().map(|running| running.class)) {
            *users.entry(class).or_default() += 1;
        }
        let found: FxHashMap<ClassId, u32> = self.queue.class_users().collect();
        assert_eq!(found, users, "classes that nobody refers to are gone");
    }

    fn check_reservation(&self) {
        let Some(kept) = &self.reservation else {
            return;
        };
        let first = reach::first(self);
        assert_eq!(first, Some(kept.holder), "the reservation is another one's");
        let class = self.tasks.get(kept.holder).class;
        let request = &self.queue.demand(class).request;
        let (devices, wanted) = (&kept.spot.devices, request.gpus.devices());
        let len = count(devices.len());
        assert_eq!(len, wanted, "the reservation has other devices");
        let node = &self.ledger.nodes[kept.spot.node];
        assert!(!node.leaving, "the reservation is on a node that is to go");
        for device in devices {
            assert!(node.devices.contains(device), "the reservation spans nodes");
        }
        let possible = kept.is_possible(&self.ledger, request);
        assert!(possible, "the reservation is of no use");
        if self.held || self.looking || !self.ledger.has_slot() {
            return;
        }
        let mut again = kept.clone();
        again.refresh(&self.ledger, request, Moment::new(self.now));
        assert_eq!(again.until, kept.until, "when the holder starts");
        assert_eq!(again.slack, kept.slack, "what others may have");
    }

    fn check_nothing_waits_in_vain(&self) {
        if self.held || self.looking || !self.ledger.has_slot() {
            return;
        }
        let first = reach::first(self);
        let holder = self.reservation.as_ref().map(|kept| kept.holder);
        assert_eq!(holder, first, "the first in line has no reservation");
        let mut asked = FxHashSet::default();
        for (class, _, handle) in self.queue.iter() {
            if !asked.insert(class) {
                continue;
            }
            let kept = self.reservation.as_ref().filter(|_| Some(handle) != first);
            let demand = self.queue.demand(class);
            let spot = self.view(kept).best(demand, 0..self.ledger.nodes.len());
            let id = self.tasks.get(handle).id;
            assert_eq!(spot, None, "{id} could start");
        }
    }
}
