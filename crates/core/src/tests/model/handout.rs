//! Who may start, and where.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{DeviceSpec, Effect, KeptRoom, NodeSpec, ProbePlan};
use packhorse_model::{
    Bytes, DeviceId, GpuRequest, Granted, MemoryRequest, Milli, NodeId, Placement, Placing,
    Request, TaskId,
};

use super::rooms::{Tenant, lacking, lacking_beside, memory};
use super::{Model, Place, Run};

pub struct Reservation {
    task: TaskId,
    request: Request,
    /// Also a part of what it is kept for: its bound.
    bound: Option<u128>,
    node: NodeId,
    devices: Vec<DeviceId>,
    until: Option<Duration>,
}

/// How long it takes at most in nanoseconds, with five significant bits.
fn bound(limit: Option<Duration>, expected: Option<Duration>) -> Option<u128> {
    let nanos = [limit, expected].into_iter().flatten().min()?.as_nanos();
    let mut unit = 1;
    while nanos / unit >= 32 {
        unit *= 2;
    }
    Some(nanos.div_ceil(unit) * unit)
}

impl Model {
    pub(super) fn hand_out(&mut self, effects: &mut Vec<Effect>) {
        loop {
            let line = self.line();
            let holder = line.iter().copied().find(|&index| self.is_reachable(index));
            self.drop_stale_reservation(holder);
            if self.held || !self.has_slot() {
                return;
            }
            let Some(holder) = holder else {
                return;
            };
            if let Some(placement) = self.best_place(holder, false) {
                self.start(holder, placement, effects);
                continue;
            }
            if self.reservation.is_none() {
                self.reserve(holder);
            }
            self.refresh_reservation();
            for &index in line.iter().filter(|&&index| index != holder) {
                if self.has_slot()
                    && let Some(placement) = self.best_place(index, true)
                {
                    self.check_no_delay(index, &placement);
                    self.start(index, placement, effects);
                    self.refresh_reservation();
                }
            }
            return;
        }
    }

    fn line(&self) -> Vec<usize> {
        let waits = |&index: &usize| matches!(self.tasks[index].place, Place::Waiting);
        let mut line: Vec<usize> = (0..self.tasks.len()).filter(waits).collect();
        line.sort_by_key(|&index| {
            let task = &self.tasks[index];
            let (batch, rank) = task.rank;
            let ageing = self.settings.ageing.map(|ageing| ageing.as_micros() / 2);
            let ahead = ageing.map_or(1, |half| i128::try_from(half).unwrap());
            let is_probe = task.submission.probe == ProbePlan::First;
            (batch, rank - if is_probe { ahead } else { 0 })
        });
        line
    }

    fn staying_nodes(&self) -> impl Iterator<Item = (usize, &NodeSpec)> {
        let nodes = self.pool.nodes.iter().enumerate();
        nodes.filter(|(_, node)| !self.leaving_nodes.contains(&node.id))
    }

    fn has_slot(&self) -> bool {
        self.pool.slots.is_none_or(|slots| self.running().len() < slots as usize)
    }

    /// Whether it could start if nothing of ours were running, and other runs made room.
    fn is_reachable(&self, index: usize) -> bool {
        let request = &self.tasks[index].submission.request;
        self.staying_nodes().any(|(_, node)| {
            let devices = node.devices.iter();
            let suitable = devices.filter(|device| self.is_in_reach(device, request));
            suitable.count() >= request.gpus.devices() as usize
                && lacking(node, request, &[]) == [0, 0, 0]
        })
    }

    /// Whether anything that waits could start if nobody's processes were
    /// running.
    pub fn is_stuck(&mut self) -> bool {
        let line = self.line();
        let outside = std::mem::take(&mut self.outside);
        let reachable = line.iter().any(|&index| self.is_reachable(index));
        self.outside = outside;
        self.running().is_empty() && !line.is_empty() && !reachable
    }

    fn bound(&self, index: usize) -> Option<u128> {
        let submission = &self.tasks[index].submission;
        bound(submission.time_limit, submission.expected)
    }

    fn start(&mut self, index: usize, placement: Placement, effects: &mut Vec<Effect>) {
        let task = &mut self.tasks[index];
        self.mix.stop_waiting(&task.submission.request);
        let attempt = if task.submission.probe == ProbePlan::First {
            0
        } else {
            task.attempts += 1;
            task.attempts
        };
        task.submission.probe = ProbePlan::None;
        effects.push(Effect::Start {
            task: task.submission.id,
            attempt,
            placement: placement.clone(),
            time_limit: task.submission.time_limit,
        });
        task.place = Place::Running(Run {
            attempt,
            request: task.submission.request.clone(),
            placement,
            since: self.now,
            limit: task.submission.time_limit,
            expected: task.submission.expected,
            observed: BTreeMap::new(),
        });
    }

    // The reservation.

    fn node(&self, id: NodeId) -> &NodeSpec {
        let mut nodes = self.pool.nodes.iter();
        nodes.find(|node| node.id == id).unwrap()
    }

    fn kept_devices(&self, kept: &Reservation) -> Vec<&DeviceSpec> {
        let devices = self.node(kept.node).devices.iter();
        devices.filter(|device| kept.devices.contains(&device.id)).collect()
    }

    fn drop_stale_reservation(&mut self, holder: Option<usize>) {
        let holds = self.reservation.as_ref().is_some_and(|kept| {
            if self.staying_nodes().all(|(_, node)| node.id != kept.node) {
                return false;
            }
            let devices = self.kept_devices(kept);
            devices.len() == kept.devices.len()
                && holder.is_some_and(|holder| {
                    let submission = &self.tasks[holder].submission;
                    submission.id == kept.task
                        && submission.request == kept.request
                        && self.bound(holder) == kept.bound
                })
                && (devices.iter()).all(|device| self.is_in_reach(device, &kept.request))
        });
        if !holds {
            self.reservation = None;
        }
    }

    /// When it fits on `device`.
    fn device_ready(&self, device: &DeviceSpec, request: &Request) -> Option<Duration> {
        self.ready(self.tenants(device), |tenants| self.fits_beside(device, tenants, request))
    }

    fn node_ready(&self, node: &NodeSpec, request: &Request) -> Option<Duration> {
        self.ready(self.guests(node), |guests| lacking(node, request, guests) == [0, 0, 0])
    }

    fn refresh_reservation(&mut self) {
        let Some(kept) = &self.reservation else {
            return;
        };
        let devices = self.kept_devices(kept).into_iter();
        let ready = devices.map(|device| self.device_ready(device, &kept.request));
        let ready = ready.chain([self.node_ready(self.node(kept.node), &kept.request)]);
        // Nothing known is later than everything.
        let ready: Option<Vec<Duration>> = ready.collect();
        let ready = ready.and_then(|ready| ready.into_iter().max());
        let until = [kept.until, ready].into_iter().flatten().min();
        if let Some(kept) = &mut self.reservation {
            kept.until = until;
        }
    }

    fn reserve(&mut self, index: usize) {
        let task = &self.tasks[index];
        let request = &task.submission.request;
        let wanted = request.gpus.devices() as usize;
        let mut places = vec![];
        for (order, node) in self.staying_nodes() {
            let devices = node.devices.iter();
            let suitable: Vec<&DeviceSpec> =
                devices.filter(|device| wanted > 0 && self.is_in_reach(device, request)).collect();
            if suitable.len() >= wanted && lacking(node, request, &[]) == [0, 0, 0] {
                places.push((order, node, suitable));
            }
        }
        let needs_others = |device: &DeviceSpec| {
            let is_kept = self.outside(device.id).kept != KeptRoom::default();
            is_kept || !self.fits_beside(device, &[], request)
        };
        let ready_at = |device: &DeviceSpec| {
            if needs_others(device) { Some(self.now) } else { self.device_ready(device, request) }
        };
        let all_known = places.iter().all(|(_, node, devices)| {
            let mut devices = devices.iter();
            self.node_ready(node, request).is_some()
                && devices.all(|device| ready_at(device).is_some())
        });
        let mut choices = vec![];
        for (order, node, mut devices) in places {
            devices.sort_by_key(|device| {
                let ready = ready_at(device).filter(|_| all_known);
                (needs_others(device), ready, self.fullness(device))
            });
            devices.truncate(wanted);
            let ready = devices
                .iter()
                .map(|device| ready_at(device))
                .chain([self.node_ready(node, request)])
                .max()
                .flatten()
                .filter(|_| all_known);
            let full: u64 = devices.iter().map(|device| self.fullness(device).0).sum();
            let attempts: usize = devices.iter().map(|device| self.fullness(device).1).sum();
            let lacking = lacking(node, request, &self.guests(node));
            let others = devices.iter().any(|device| needs_others(device));
            let key = (others, ready, full, attempts, lacking, order);
            choices.push((key, node, devices));
        }
        choices.sort_by_key(|choice| choice.0);
        let (_, node, devices) = choices.remove(0);
        self.reservation = Some(Reservation {
            task: task.submission.id,
            request: request.clone(),
            bound: self.bound(index),
            node: node.id,
            devices: devices.iter().map(|device| device.id).collect(),
            until: None,
        });
    }

    /// Whether it is over when the holder comes.
    fn is_in_time(&self, kept: &Reservation, index: usize) -> bool {
        match (kept.until, self.bound(index)) {
            (Some(until), Some(bound)) => self.now.as_nanos() + bound <= until.as_nanos(),
            _ => false,
        }
    }

    /// One that starts on what is kept must not make the holder wait: it is over
    /// in time, or whichever of those there have ended, if there is room for
    /// the holder then there is room with it.
    fn check_no_delay(&self, index: usize, placement: &Placement) {
        let kept = self.reservation.as_ref().unwrap();
        if kept.node != placement.node || self.is_in_time(kept, index) {
            return;
        }
        let request = &self.tasks[index].submission.request;
        for device in self.kept_devices(kept) {
            let mut granted = placement.devices.iter();
            let Some(granted) = granted.find(|granted| granted.device == device.id) else {
                continue;
            };
            let newcomer = Tenant {
                share: granted.share.0.into(),
                memory: granted.memory.0,
                whole: false,
                amounts: [0; 3],
                end: None,
            };
            let tenants = self.tenants(device);
            for subset in 0..1_u32 << tenants.len().min(8) {
                let mut rest = tenants.clone();
                let mut number = 0;
                rest.retain(|_| {
                    number += 1;
                    subset & (1 << (number - 1)) == 0
                });
                if self.fits_beside(device, &rest, &kept.request) {
                    rest.push(newcomer.clone());
                    let fits = self.fits_beside(device, &rest, &kept.request);
                    assert!(fits, "{request:?} delays {:?}", kept.request);
                }
            }
        }
    }

    // The place.

    fn best_place(&self, index: usize, respectful: bool) -> Option<Placement> {
        let request = &self.tasks[index].submission.request;
        let kept = self.reservation.as_ref();
        let kept = kept.filter(|kept| respectful && !self.is_in_time(kept, index));
        let pack = self.settings.policy == Placing::Pack;
        let mut choices = vec![];
        for (order, node) in self.staying_nodes() {
            let kept = kept.filter(|kept| kept.node == node.id);
            let guests = self.guests(node);
            let lacking = match kept {
                Some(kept) => lacking_beside(node, request, &guests, &kept.request),
                None => lacking(node, request, &guests),
            };
            if lacking != [0, 0, 0] {
                continue;
            }
            let is_open = |device: &DeviceSpec| {
                let reserved = kept.filter(|kept| kept.devices.contains(&device.id));
                reserved.is_none_or(|kept| self.has_slack(device, &kept.request, request))
            };
            let mut fitting: Vec<&DeviceSpec> = node
                .devices
                .iter()
                .filter(|device| self.fits_beside(device, &self.tenants(device), request))
                .filter(|device| self.leaves_kept(device, request))
                .filter(|device| is_open(device))
                .collect();
            match request.gpus {
                GpuRequest::None => {
                    let busy: u64 = guests.iter().map(|guest| guest.amounts[1]).sum();
                    let left = |cpu: Milli| u64::from(cpu.0).saturating_sub(busy);
                    let left = node.cpu.map_or(u64::MAX, left);
                    let taken: u64 = guests.iter().map(|guest| guest.amounts[0]).sum();
                    let free = (node.cores.len() as u64).saturating_sub(taken);
                    let score = if pack {
                        let cost = self.cost(node, request, &[]);
                        (cost, free, left, 0)
                    } else {
                        (0, guests.len() as u64, 0, 0)
                    };
                    choices.push(((0, score), order, node, vec![]));
                }
                GpuRequest::Share(_) => {
                    for device in fitting {
                        let (full, attempts) = self.fullness(device);
                        let takes_all_free = matches!(request.memory, MemoryRequest::AtLeast(_));
                        let full =
                            if takes_all_free { u64::MAX - self.free_memory(device) } else { full };
                        let cost = if pack && !takes_all_free {
                            self.cost(node, request, &[device])
                        } else {
                            0
                        };
                        let score = (cost, full, attempts as u64, device.memory.0);
                        let crowding = self.crowding(device);
                        choices.push(((crowding, score), order, node, vec![device]));
                    }
                }
                GpuRequest::Whole(wanted) => {
                    let many = fitting.len() as u64;
                    if many >= u64::from(wanted) {
                        let drawn = |device: &DeviceSpec| self.outside(device.id).drawn;
                        fitting.sort_by_key(|device| (self.crowding(device), drawn(device)));
                        fitting.truncate(wanted as usize);
                        let crowding = fitting.last().map_or(0, |device| self.crowding(device));
                        let devices = node.devices.iter();
                        fitting = devices
                            .filter(|device| fitting.iter().any(|it| it.id == device.id))
                            .collect();
                        let score = if pack {
                            (self.cost(node, request, &fitting), many, 0, 0)
                        } else {
                            (0, u64::MAX - many, 0, 0)
                        };
                        choices.push(((crowding, score), order, node, fitting));
                    }
                }
            }
        }
        let least = choices.iter().map(|choice| choice.0.0).min();
        choices.retain(|choice| Some(choice.0.0) == least);
        let unranked =
            choices.into_iter().map(|((_, score), order, node, on)| (score, order, node, on));
        let mut choices: Vec<_> = unranked.collect();
        // On one node, what is only rounded differently costs the same.
        for (order, _) in self.staying_nodes() {
            let here = |choice: &&((i128, u64, u64, u64), usize, &NodeSpec, Vec<&DeviceSpec>)| {
                choice.1 == order
            };
            let least = choices.iter().filter(here).map(|choice| choice.0.0).min();
            let Some(least) = least else { continue };
            let most = least + self.rounding(request);
            for choice in choices.iter_mut().filter(|choice| choice.1 == order) {
                if choice.0.0 <= most {
                    choice.0.0 = least;
                }
            }
        }
        // Stable: among equals the first of the pool's order stays first.
        choices.sort_by_key(|choice| choice.0);
        let (_, _, node, devices) = choices.into_iter().next()?;
        Some(self.placement(request, node, &devices))
    }

    fn placement(&self, request: &Request, node: &NodeSpec, devices: &[&DeviceSpec]) -> Placement {
        let granted = |device: &&DeviceSpec| Granted {
            device: device.id,
            share: request.gpus.share(),
            memory: match request.memory {
                MemoryRequest::Whole => device.memory,
                MemoryRequest::AtLeast(_) => Bytes(self.free_memory(device)),
                _ => Bytes(memory(request)),
            },
        };
        Placement {
            node: node.id,
            devices: devices.iter().map(granted).collect(),
            cores: self.cores(request, node, devices),
        }
    }
}
