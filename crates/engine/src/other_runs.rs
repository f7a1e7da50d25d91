//! Other runs on this machine: what they hold, and what they are told of us.
//!
//! What we publish is never less than what we hold, so that most starts need no word to
//! anybody: a slot that is free for a moment between two tasks stays published. Only what
//! may take more than is published is handled under the lock of all runs, with a fresh
//! look at what they hold: see [`Engine::may_take`].

use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::{DeviceLoad, Outside};
use packhorse_model::{Bytes, LeasedDevice, Milli};

use crate::engine::{DeviceInfo, Engine};
use crate::input::OtherRun;

/// How long after a failure others are told again what we hold.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of other runs.
#[derive(Default)]
pub(crate) struct OtherRuns {
    pub(crate) enabled: bool,
    others: Vec<OtherRun>,
    /// What others were last told that we hold of each device, whatever it is called.
    published: Vec<LeasedDevice>,
    /// When to try again to tell them, if that failed.
    pub(crate) again: Option<Duration>,
    /// What was last complained of.
    complaint: Option<String>,
    /// What the scheduler was last told that others hold of each device.
    pub(crate) told: Vec<Outside>,
}

/// What we hold of a device, whatever it is called.
fn held(load: DeviceLoad) -> LeasedDevice {
    LeasedDevice {
        device: Box::default(),
        memory: load.counted,
        share: load.used,
        attempts: load.attempts,
        whole: load.whole,
    }
}

fn covers(one: &LeasedDevice, other: &LeasedDevice) -> bool {
    one.memory >= other.memory
        && one.share >= other.share
        && one.attempts >= other.attempts
        && (one.whole || !other.whole)
}

impl OtherRuns {
    pub(crate) fn new(devices: usize, enabled: bool) -> Self {
        Self {
            enabled: enabled && devices > 0,
            published: vec![LeasedDevice::default(); devices],
            told: vec![Outside::default(); devices],
            ..Self::default()
        }
    }

    /// What other runs hold of a device, but for its memory.
    pub(crate) fn held(&self, device: &DeviceInfo) -> Outside {
        let mut all = Outside::default();
        for key in &device.keys {
            let mut sum = Outside::default();
            let held = self.others.iter().flat_map(|other| &other.devices);
            for held in held.filter(|held| *held.device == **key) {
                sum.share.0 = sum.share.0.saturating_add(held.share.0).min(Milli::ONE.0);
                sum.attempts = sum.attempts.saturating_add(held.attempts);
                sum.whole |= held.whole;
            }
            all.share = all.share.max(sum.share);
            all.attempts = all.attempts.max(sum.attempts);
            all.whole |= sum.whole;
        }
        all
    }

    /// What other runs may still take of the memory they were promised on the member of a
    /// device that is known by `key`, given what each is seen to hold.
    pub(crate) fn growth(&self, key: &str, seen: &[(u32, Bytes)]) -> u64 {
        let mut growth = 0_u64;
        for other in &self.others {
            let promised = other.devices.iter().filter(|held| *held.device == *key);
            let promised: u64 = promised
                .map(|held| held.memory.0)
                .fold(0, u64::saturating_add);
            let held = seen.iter().find(|(pid, _)| *pid == other.pid);
            let held = held.map_or(0, |(_, held)| held.0);
            growth = growth.saturating_add(promised.saturating_sub(held));
        }
        growth
    }

    /// Whether there is nothing that somebody else could take meanwhile. A device whose
    /// whole share is given out has memory left for tasks without one.
    pub(crate) fn all_is_ours(&self) -> bool {
        self.again.is_none() && self.published.iter().all(|portion| portion.whole)
    }

    /// What others are to see.
    fn lease(&self, devices: &[DeviceInfo]) -> Vec<LeasedDevice> {
        let mut lease = BTreeMap::new();
        for (device, held) in devices.iter().zip(&self.published) {
            if *held != LeasedDevice::default() {
                lease.extend(device.keys.iter().map(|key| (key.as_str(), held)));
            }
        }
        let held = lease.into_iter().map(|(key, held)| LeasedDevice {
            device: key.into(),
            ..held.clone()
        });
        held.collect()
    }
}

impl Engine {
    /// Somebody else took something, gave something up, or died.
    pub(crate) fn other_runs_changed(&mut self, others: Vec<OtherRun>) {
        let known = |other: &OtherRun| {
            let mut known = self.other_runs.others.iter();
            known.any(|known| known.pid == other.pid)
        };
        let newcomers = !others.iter().all(known);
        self.other_runs.others = others;
        if newcomers {
            // What they hold already would count as strangers' besides what they were
            // promised.
            self.monitor.look();
        }
        for index in 0..self.devices.len() {
            self.tell_outside(index);
        }
    }

    pub(crate) fn other_runs_trouble(&mut self, message: String) {
        if self.other_runs.complaint.as_ref() != Some(&message) {
            self.other_runs.complaint = Some(message.clone());
            self.warn(None, message);
        }
    }

    /// Whether there are other runs at all.
    pub fn has_other_runs(&self) -> bool {
        !self.other_runs.others.is_empty()
    }

    /// What others have to be told under the lock, because more is held than they know:
    /// all that we hold from now on.
    pub fn lease_to_raise(&mut self) -> Option<Vec<LeasedDevice>> {
        let mut raised = self.other_runs.again.is_some();
        let published = self.other_runs.published.iter_mut();
        for (published, load) in published.zip(self.state.devices()) {
            let held = held(load);
            if !covers(published, &held) {
                *published = held;
                raised = true;
            }
        }
        raised.then(|| self.other_runs.lease(&self.devices))
    }

    /// What others may be told between two turns of the loop, because less is held than
    /// they know. What is free for a moment only is not given up.
    pub fn lease_to_lower(&mut self) -> Option<Vec<LeasedDevice>> {
        if !self.other_runs.enabled {
            return None;
        }
        let due = self
            .other_runs
            .again
            .is_some_and(|at| at <= self.now.monotonic);
        let now_held = || self.state.devices().map(held);
        let published = &mut self.other_runs.published;
        if !due && published.iter().cloned().eq(now_held()) {
            return None;
        }
        *published = now_held().collect();
        Some(self.other_runs.lease(&self.devices))
    }

    /// Takes note of how telling others went.
    pub fn lease_told(&mut self, told: bool) {
        self.other_runs.again = (!told).then(|| self.now.monotonic + AGAIN);
    }
}
