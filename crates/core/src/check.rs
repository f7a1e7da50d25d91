//! The promises of the crate's head, as far as a state shows whether they were
//! kept.

use packhorse_model::{GpuRequest, Milli};
use rustc_hash::FxHashSet;

use crate::place;
use crate::state::State;
use crate::tasks::Status;

impl State {
    /// Panics, saying what is wrong, if any invariant does not hold. For tests:
    /// it looks at everything there is.
    pub fn check(&self) {
        self.check_records();
        self.check_nodes();
        self.check_devices();
        self.check_dependencies();
        self.check_reservation();
        self.check_nothing_waits_in_vain();
    }

    fn check_records(&self) {
        let mut waiting = 0;
        let mut running = FxHashSet::default();
        for (handle, record) in self.tasks.iter() {
            let id = record.id;
            assert_eq!(
                self.tasks.find(id),
                Some(handle),
                "{id} is another task's record"
            );
            assert!(
                self.past.get(id).is_none(),
                "{id} has finished and is still there"
            );
            match record.status {
                Status::Waiting => waiting += 1,
                Status::Blocked => assert!(self.deps.is_blocked(handle), "{id} waits for nobody"),
                Status::Running(place) => {
                    assert!(running.insert(place), "{id} runs in another's place");
                    let held = &self.running[place as usize];
                    assert_eq!(held.task, handle, "{id} is not what runs in its place");
                    assert!(record.attempts > 0, "{id} runs without an attempt");
                    let retries = u64::from(record.retries);
                    assert!(
                        u64::from(record.attempts) <= retries + 1,
                        "{id} ran too often"
                    );
                    let request = self.queue.request(record.class);
                    let held = &held.held;
                    let devices = request.gpus.devices() as usize;
                    assert_eq!(held.devices.len(), devices, "{id} has other devices");
                    assert_eq!(held.share, request.gpus.share(), "{id} has another share");
                    assert_eq!(
                        held.cores.len(),
                        request.cores as usize,
                        "{id} has other cores"
                    );
                }
            }
        }
        assert_eq!(self.running.len(), running.len(), "something unknown runs");
        assert_eq!(
            self.queue.len(),
            waiting,
            "somebody is missing in the queue"
        );
        assert_eq!(
            self.queue.iter().count(),
            waiting,
            "the queue does not know its length"
        );
        for (class, order, handle) in self.queue.iter() {
            let record = self.tasks.get(handle);
            let wanted = (class, order, Status::Waiting);
            let found = (record.class, record.order, record.status);
            assert_eq!(found, wanted, "{} is in the wrong line", record.id);
        }
        let unfinished = self.tasks.len() as u64;
        let known = unfinished + self.past.len();
        assert_eq!(known, self.submitted, "a task was lost, or finished twice");
    }

    fn check_nodes(&self) {
        let attempts = self.ledger.attempts as usize;
        assert_eq!(attempts, self.running.len(), "slots are miscounted");
        let slots = self.ledger.slots.unwrap_or(u32::MAX);
        assert!(self.ledger.attempts <= slots, "more attempts than slots");
        for (index, node) in self.ledger.nodes.iter().enumerate() {
            let here = || {
                self.running
                    .iter()
                    .filter(|running| running.held.node == index)
            };
            assert_eq!(
                node.attempts as usize,
                here().count(),
                "attempts of {node:?}"
            );
            let mut taken = FxHashSet::default();
            for core in here().flat_map(|running| &running.held.cores) {
                assert!(
                    taken.insert(*core),
                    "core {core} of {node:?} is given twice"
                );
            }
            for core in 0..node.cores.len() {
                let free = !taken.contains(&core);
                assert_eq!(node.free.contains(core), free, "core {core} of {node:?}");
            }
            let free = node.cores.len() - taken.len();
            assert_eq!(node.free_cores as usize, free, "free cores of {node:?}");
        }
    }

    fn check_devices(&self) {
        for (index, device) in self.ledger.devices.iter().enumerate() {
            let here = || {
                let running = self.running.iter();
                running.filter(move |running| running.held.devices.contains(&index))
            };
            for running in here() {
                assert_eq!(
                    running.held.node, device.node,
                    "{device:?} is given across nodes"
                );
            }
            let used = here().map(|running| running.held.share.0).sum();
            assert_eq!(device.used, Milli(used), "share of {device:?}");
            assert!(device.used <= Milli::ONE, "{device:?} is over its share");
            assert_eq!(
                device.attempts as usize,
                here().count(),
                "attempts of {device:?}"
            );
            let most = self.settings.max_per_device.unwrap_or(u32::MAX);
            assert!(device.attempts <= most, "{device:?} is over its limit");
        }
    }

    fn check_dependencies(&self) {
        let mut edges = 0;
        for (handle, record) in self.tasks.iter() {
            for on in self.deps.waits_for(handle) {
                edges += 1;
                let id = record.id;
                assert_eq!(record.status, Status::Blocked, "{id} did not wait");
                let on = self.tasks.get(on).id;
                assert!(
                    self.tasks.find(on).is_some(),
                    "{id} waits for {on}, which is over"
                );
            }
        }
        assert_eq!(edges, self.deps.len(), "a dependency of nobody");
    }

    fn check_reservation(&self) {
        let Some(kept) = &self.reservation else {
            return;
        };
        let first = self.queue.first();
        assert_eq!(
            first,
            Some(kept.holder),
            "the reservation is not the first one's"
        );
        let request = self.queue.request(self.tasks.get(kept.holder).class);
        let devices = request.gpus.devices() as usize;
        assert_eq!(
            kept.spot.devices.len(),
            devices,
            "the reservation has other devices"
        );
        let node = &self.ledger.nodes[kept.spot.node];
        for device in &kept.spot.devices {
            assert!(node.devices.contains(device), "the reservation spans nodes");
        }
        for running in self
            .running
            .iter()
            .filter(|running| running.number >= kept.made)
        {
            let id = self.tasks.get(running.task).id;
            let touched = running
                .held
                .devices
                .iter()
                .any(|&device| kept.has_device(device));
            assert!(!touched, "{id} was let onto a reserved device");
            let took_cores = running.held.node == kept.spot.node && !running.held.cores.is_empty();
            let enough = node.free_cores >= kept.cores;
            assert!(!took_cores || enough, "{id} was let onto reserved cores");
        }
    }

    fn check_nothing_waits_in_vain(&self) {
        if self.held || !self.ledger.has_slot() {
            return;
        }
        let Some(first) = self.queue.first() else {
            return;
        };
        assert!(
            self.reservation.is_some(),
            "the first in line has no reservation"
        );
        for (_, class, handle) in self.queue.heads() {
            let kept = self.reservation.as_ref().filter(|_| handle != first);
            let request = self.queue.request(class);
            let spot = place::find(&self.ledger, self.settings, request, kept);
            let id = self.tasks.get(handle).id;
            assert_eq!(spot, None, "{id} could start");
            let alone = !matches!(request.gpus, GpuRequest::None) || request.cores > 0;
            assert!(alone, "{id} needs nothing and waits");
        }
    }
}
