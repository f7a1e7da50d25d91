//! Other runs on this machine: what they hold, and what they are told of us.
//!
//! What we publish is never less than what we hold, so that most starts need no word to
//! anybody: a slot that is free for a moment between two tasks stays published. Only what
//! may take more than is published is handled under the lock of all runs, with a fresh
//! look at what they hold: see [`Engine::may_take`].
//!
//! What we wait for and others hold is published as well, as a claim: see [`claims`].

mod claims;
mod concerning_us;

use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::{DeviceLoad, Outside};
use packhorse_model::{Bytes, DeviceId, LeaseContent, LeasedDevice, Milli, TaskId};

use self::claims::{OwnClaim, UnusedClaim};
use self::concerning_us::{HeldSums, concerning_us};
use crate::engine::{DeviceInfo, Engine};
use crate::input::OtherRun;

/// How long after a failure others are told again what we hold.
const AGAIN: Duration = Duration::from_secs(1);
/// How often others are looked at though all devices are ours: somebody may have a claim.
const LOOK: Duration = Duration::from_millis(100);

/// What is known of other runs.
#[derive(Default)]
pub(crate) struct OtherRuns {
    pub(crate) enabled: bool,
    /// All of them, with what they hold and want of our devices.
    others: Vec<OtherRun>,
    /// What they hold together of those.
    sums: HeldSums,
    /// Those that wait for somebody on a device that is not ours, by their processes.
    waiting_elsewhere: Vec<u32>,
    /// What others were last told that we hold of each device, whatever it is called.
    published: Vec<LeasedDevice>,
    /// When to try again to tell them, if that failed.
    pub(crate) again: Option<Duration>,
    /// What was last complained of.
    complaint: Option<String>,
    /// What the scheduler was last told that others hold of each device.
    pub(crate) told: Vec<Outside>,
    /// When others were last looked at.
    looked: Duration,
    /// Since when we hold something of each device without a break.
    turns: Vec<Duration>,
    /// What the first in line waits for, if others hold it, and what they were told of that.
    claim: Option<OwnClaim>,
    published_claim: Option<OwnClaim>,
    /// What is kept on each device for others who have waited longer.
    kept: Vec<Vec<LeasedDevice>>,
    /// When something else may have to be kept, though nobody says anything.
    ripens: Option<Duration>,
    /// Claims of others that there is room for.
    unused: Vec<UnusedClaim>,
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

/// What several hold together of what is known by `key`, but for its memory.
fn sum<'a>(held: impl Iterator<Item = &'a LeasedDevice>, key: &str) -> Outside {
    let mut sum = Outside::default();
    for held in held.filter(|held| *held.device == *key) {
        sum.share.0 = sum.share.0.saturating_add(held.share.0).min(Milli::ONE.0);
        sum.attempts = sum.attempts.saturating_add(held.attempts);
        sum.whole |= held.whole;
    }
    sum
}

/// The memory that is promised of what is known by `key`.
fn promised(held: &[LeasedDevice], key: &str) -> u64 {
    let promised = held.iter().filter(|held| *held.device == *key);
    let promised = promised.map(|held| held.memory.0);
    promised.fold(0, u64::saturating_add)
}

impl OtherRuns {
    pub(crate) fn new(devices: usize, enabled: bool) -> Self {
        Self {
            enabled: enabled && devices > 0,
            published: vec![LeasedDevice::default(); devices],
            told: vec![Outside::default(); devices],
            kept: vec![Vec::new(); devices],
            turns: vec![Duration::ZERO; devices],
            ..Self::default()
        }
    }

    /// What other runs hold of a device, and what is kept for them, but for the memory that
    /// they hold.
    pub(crate) fn held(&self, index: usize, device: &DeviceInfo) -> Outside {
        let mut all = Outside::default();
        let others = || self.others.iter().flat_map(|other| &other.devices);
        for key in &device.keys {
            let held = sum(others(), key);
            all.share = all.share.max(held.share);
            all.attempts = all.attempts.max(held.attempts);
            all.whole |= held.whole;
            let kept = sum(self.kept[index].iter(), key);
            all.kept.share = all.kept.share.max(kept.share);
            all.kept.whole |= kept.whole;
            let memory = Bytes(promised(&self.kept[index], key));
            all.kept.memory = all.kept.memory.max(memory);
        }
        let mut on_it = self.others.iter().filter(|other| other.is_on(device));
        all.yields = !on_it.any(|other| other.is_dead);
        all
    }

    /// What other runs may still take of the memory they were promised on the member of a
    /// device that is known by `key`, given what each is seen to hold.
    pub(crate) fn growth(&self, key: &str, seen: &[(u32, Bytes)]) -> u64 {
        let mut growth = 0_u64;
        for other in &self.others {
            let held = seen.iter().find(|(pid, _)| *pid == other.pid);
            let held = held.map_or(0, |(_, held)| held.0);
            let promised = promised(&other.devices, key);
            growth = growth.saturating_add(promised.saturating_sub(held));
        }
        growth
    }

    /// The other runs on a device, or else those that it is kept for, as people know them.
    fn on_device(&self, device: &DeviceInfo) -> Vec<String> {
        let on_it = self.others.iter().filter(|other| other.is_on(device));
        let on_it: Vec<String> = on_it.map(|other| other.name.clone()).collect();
        if !on_it.is_empty() {
            return on_it;
        }
        let alive = self.others.iter().filter(|other| !other.is_dead);
        let claims = alive.filter(|other| {
            let mut wanted = other.claim.iter().flat_map(|claim| &claim.devices);
            wanted.any(|wanted| device.is_called(&wanted.device))
        });
        claims.map(|other| other.name.clone()).collect()
    }

    /// Whether there is nothing that somebody else could take meanwhile. A device whose
    /// whole share is given out has memory left for tasks without one.
    pub(crate) fn all_is_ours(&self) -> bool {
        self.again.is_none() && self.published.iter().all(|portion| portion.whole)
    }

    /// Whether others were not looked at for a while.
    pub(crate) fn is_look_due(&self, now: Duration) -> bool {
        self.looked + LOOK <= now
    }

    /// What others are to see.
    fn lease(&mut self, devices: &[DeviceInfo]) -> LeaseContent {
        self.published_claim.clone_from(&self.claim);
        let mut lease = BTreeMap::new();
        for (device, held) in devices.iter().zip(&self.published) {
            if *held != LeasedDevice::default() {
                lease.extend(device.keys.iter().map(|key| (key.as_str(), held)));
            }
        }
        let held = lease
            .into_iter()
            .map(|(key, held)| LeasedDevice { device: key.into(), ..held.clone() });
        LeaseContent {
            held: held.collect(),
            claim: self.claim.as_ref().map(|claim| claim.told(devices)),
        }
    }
}

impl DeviceInfo {
    fn is_called(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }
}

impl OtherRun {
    fn is_on(&self, device: &DeviceInfo) -> bool {
        let mut held = self.devices.iter();
        held.any(|held| device.is_called(&held.device))
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
        let found = concerning_us(others, &self.devices);
        self.other_runs.others = found.others;
        self.other_runs.sums = found.sums;
        self.other_runs.waiting_elsewhere = found.waiting_elsewhere;
        self.keep_for_others();
        self.await_release_of_others();
        if newcomers {
            // What they hold already would count as strangers' besides what they were
            // promised.
            self.monitor.look();
        }
        // One who needs several devices must not have one that is free now together with
        // one that somebody took since.
        self.tell_all_outside();
    }

    pub(crate) fn other_runs_trouble(&mut self, message: String) {
        if self.other_runs.complaint.as_ref() != Some(&message) {
            self.other_runs.complaint = Some(message.clone());
            self.warn(None, message);
        }
    }

    /// What the scheduler was last told that others hold of each device.
    pub fn outside(&self) -> impl Iterator<Item = (DeviceId, Outside)> {
        let told = self.other_runs.told.iter().zip(0..);
        told.map(|(told, number)| (DeviceId(number), *told))
    }

    /// Other runs on a device, in words.
    pub(crate) fn others_on(&self, device: DeviceId) -> Vec<String> {
        let info = self.devices.get(device.0 as usize);
        info.map_or_else(Vec::new, |info| self.other_runs.on_device(info))
    }

    /// Whether an attempt of a task is on what other runs know by `key`.
    pub fn is_on(&self, task: TaskId, key: &str) -> bool {
        let task = self.tasks.get(&task);
        let devices = task.map_or(&[][..], |task| task.devices());
        let infos = devices.iter().map(|it| self.devices.get(it.0 as usize));
        infos.flatten().any(|info| info.is_called(key))
    }

    /// Whether other runs hold anything of a device.
    pub(crate) fn has_others_on(&self, device: DeviceId) -> bool {
        let info = self.devices.get(device.0 as usize);
        let mut others = self.other_runs.others.iter();
        info.is_some_and(|info| others.any(|other| other.is_on(info)))
    }

    /// Whether there are other runs at all.
    pub fn has_other_runs(&self) -> bool {
        !self.other_runs.others.is_empty()
    }

    /// What others have to be told under the lock, because more is held than they know:
    /// all that we hold from now on.
    pub fn lease_to_raise(&mut self) -> Option<LeaseContent> {
        self.other_runs.looked = self.now.monotonic;
        let mut raised = self.other_runs.again.is_some();
        let published = self.other_runs.published.iter_mut();
        let published = published.zip(&mut self.other_runs.turns);
        for ((published, turn), load) in published.zip(self.state.devices()) {
            let held = held(load);
            if !covers(published, &held) {
                if *published == LeasedDevice::default() {
                    *turn = self.now.monotonic;
                    self.other_runs.ripens = Some(Duration::ZERO);
                }
                *published = held;
                raised = true;
            }
        }
        raised.then(|| self.other_runs.lease(&self.devices))
    }

    /// What others may be told between two turns of the loop, because less is held than
    /// they know. What is free for a moment only is not given up.
    pub fn lease_to_lower(&mut self) -> Option<LeaseContent> {
        if !self.other_runs.enabled {
            return None;
        }
        let due = self.other_runs.again.is_some_and(|at| at <= self.now.monotonic);
        // A device that waits for the memory of its last task is nobody else's yet.
        let before = self.other_runs.published.clone();
        let now_held = || {
            let held = self.state.devices().map(held).zip(&before).enumerate();
            held.map(|(index, (held, before))| {
                if self.monitor.is_closing(index) && covers(before, &held) {
                    before.clone()
                } else {
                    held
                }
            })
        };
        let is_told = self.other_runs.claim == self.other_runs.published_claim;
        let published = &mut self.other_runs.published;
        if !due && is_told && published.iter().cloned().eq(now_held()) {
            return None;
        }
        *published = now_held().collect();
        for (published, turn) in published.iter().zip(&mut self.other_runs.turns) {
            if *published == LeasedDevice::default() {
                *turn = Duration::ZERO;
            }
        }
        Some(self.other_runs.lease(&self.devices))
    }

    /// Takes note of how telling others went.
    pub fn lease_told(&mut self, told: bool) {
        self.other_runs.again = (!told).then(|| self.now.monotonic + AGAIN);
    }
}
