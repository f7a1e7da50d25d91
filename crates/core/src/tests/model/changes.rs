//! What is adopted, and nodes and devices that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{DeviceSpec, Effect, NodeSpec, PoolError, ProbePlan, RefusalReason, Submission};
use packhorse_model::{DeviceId, NodeId, Placement};

use super::{Model, Place, Run, Task};

impl Model {
    pub(super) fn adopt(
        &mut self,
        mut submission: Submission,
        attempt: u32,
        placement: Placement,
        since: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let task = submission.id;
        let placement = if self.find(task).is_some() {
            Err(RefusalReason::AlreadyKnown)
        } else if let Some(reason) = Self::nonsense(&submission.request) {
            Err(reason)
        } else {
            self.known_part(placement)
        };
        let placement = match placement {
            Ok(placement) => placement,
            Err(reason) => {
                effects.push(Effect::Refused { task, reason });
                return;
            }
        };
        self.mix.see(&submission.request);
        self.mix.stop_waiting(&submission.request);
        submission.after.clear();
        submission.probe = ProbePlan::None;
        self.tasks.push(Task {
            rank: self.rank(&submission),
            retries: submission.retries,
            attempts: attempt,
            collateral: 0,
            stopping: false,
            place: Place::Running(Run {
                attempt,
                request: submission.request.clone(),
                placement,
                since: since.min(self.now),
                limit: submission.time_limit,
                expected: submission.expected,
                observed: BTreeMap::new(),
            }),
            submission,
        });
    }

    fn known_part(&self, mut placement: Placement) -> Result<Placement, RefusalReason> {
        let mut nodes = self.pool.nodes.iter();
        let Some(node) = nodes.find(|node| node.id == placement.node) else {
            return Err(RefusalReason::UnknownNode(placement.node));
        };
        let mut seen = BTreeSet::new();
        for granted in &placement.devices {
            if node.devices.iter().all(|device| device.id != granted.device) {
                return Err(RefusalReason::UnknownDevice(granted.device));
            }
        }
        placement.devices.retain(|granted| seen.insert(granted.device));
        let cores = node.cores.iter().map(|core| core.id);
        placement.cores = cores.filter(|core| placement.cores.contains(core)).collect();
        Ok(placement)
    }

    pub(super) fn add_node(&mut self, node: NodeSpec) -> Result<(), PoolError> {
        let nodes = &self.pool.nodes;
        let mut seen = BTreeSet::new();
        if let Some(device) = node.devices.iter().find(|device| !seen.insert(device.id)) {
            return Err(PoolError::DuplicateDevice(device.id));
        }
        if nodes.iter().any(|other| other.id == node.id) {
            return Err(PoolError::DuplicateNode(node.id));
        }
        let known = self.devices();
        if let Some(device) = node.devices.iter().find(|device| known.contains(&device.id)) {
            return Err(PoolError::DuplicateDevice(device.id));
        }
        self.pool.nodes.push(node);
        Ok(())
    }

    pub(super) fn add_device(&mut self, id: NodeId, device: DeviceSpec) -> Result<(), PoolError> {
        let known = self.devices();
        let mut nodes = self.pool.nodes.iter_mut();
        let node = nodes.find(|node| node.id == id && !self.leaving_nodes.contains(&id));
        let node = node.ok_or(PoolError::UnknownNode(id))?;
        if known.contains(&device.id) {
            return Err(PoolError::DuplicateDevice(device.id));
        }
        node.devices.push(device);
        Ok(())
    }

    pub(super) fn remove_node(&mut self, id: NodeId) {
        if let Some(node) = self.pool.nodes.iter().find(|node| node.id == id) {
            let devices = node.devices.iter().map(|device| device.id);
            self.leaving_devices.extend(devices);
            self.leaving_nodes.insert(id);
        }
        self.remove_unused();
    }

    pub(super) fn remove_device(&mut self, id: DeviceId) {
        if self.devices().contains(&id) {
            self.leaving_devices.insert(id);
        }
        self.remove_unused();
    }

    pub(super) fn remove_unused(&mut self) {
        let mut used_nodes = BTreeSet::new();
        let mut used_devices = BTreeSet::new();
        for (_, run) in self.runs() {
            used_nodes.insert(run.placement.node);
            used_devices.extend(run.placement.devices.iter().map(|granted| granted.device));
        }
        for device in self.leaving_devices.clone() {
            if !used_devices.contains(&device) {
                self.leaving_devices.remove(&device);
                self.outside.remove(&device);
                self.drained.remove(&device);
                for node in &mut self.pool.nodes {
                    node.devices.retain(|other| other.id != device);
                }
            }
        }
        for node in self.leaving_nodes.clone() {
            if !used_nodes.contains(&node) {
                self.leaving_nodes.remove(&node);
                self.pool.nodes.retain(|other| other.id != node);
            }
        }
    }
}
