//! Claims: who waits for what others hold, and since when.
//!
//! A run whose first in line waits for devices that other runs hold says so in its lease:
//! which devices, how much of each, and since when. Other runs leave it room as the
//! scheduler does for our own first in line: nothing of theirs starts there that would not
//! fit beside it, and the one that waits gets it when those have ended that were there when
//! it asked.
//!
//! - A claim counts when it is a moment old, and who holds a device has had it for a moment.
//!   With tasks so short that many of them fit into that moment, runs do not hand devices to
//!   each other after every one.
//! - A claim on devices that we claim as well counts only if it is older than ours. So of
//!   any two that want the same, one goes first.
//! - One who has not made use of a claim though there was room for it a while ago may be
//!   stopped, or cannot start for other reasons. It is left aside for a time.
//! - Where somebody holds a device who does not make room, which is what a dead run left,
//!   nothing is kept.

use std::time::Duration;

use packhorse_core::WantedDevices;
use packhorse_model::{Bytes, Claim, LeasedDevice, MemoryRequest, Milli, TaskId};

use super::concerning_us::has_room;
use crate::engine::{DeviceInfo, Engine};
use crate::input::OtherRun;

/// How old a claim is when it counts, and how long somebody may keep a device that others
/// have waited for.
const RIPE: Duration = Duration::from_millis(100);
/// How long there may be room for a claim before it is left aside.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is left aside.
const LEFT_ASIDE: Duration = Duration::from_mins(1);

/// What the first in line waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnClaim {
    task: TaskId,
    since: Duration,
    /// Devices by their places.
    devices: Vec<usize>,
    /// What it wants of each.
    wanted: LeasedDevice,
}

impl OwnClaim {
    fn new(wanted: &WantedDevices, since: Duration) -> Self {
        let request = &wanted.request;
        let (memory, alone) = match request.memory {
            MemoryRequest::Bytes(memory) | MemoryRequest::AtLeast(memory) => (memory, false),
            MemoryRequest::Uncounted => (Bytes(0), false),
            MemoryRequest::Whole => (Bytes(0), true),
        };
        let share = request.gpus.share();
        let devices = wanted.devices.iter();
        Self {
            task: wanted.task,
            since,
            devices: devices.map(|device| device.0 as usize).collect(),
            wanted: LeasedDevice {
                device: Box::default(),
                memory,
                share,
                attempts: 1,
                whole: alone || share == Milli::ONE,
            },
        }
    }

    /// The same as others are told it.
    pub(super) fn told(&self, devices: &[DeviceInfo]) -> Claim {
        let named = self.devices.iter().filter_map(|&index| devices.get(index));
        let keys = named.flat_map(|device| &device.keys);
        Claim {
            since: nanos(self.since),
            devices: keys
                .map(|key| LeasedDevice { device: key.as_str().into(), ..self.wanted.clone() })
                .collect(),
        }
    }
}

/// A claim of somebody else that there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnusedClaim {
    pid: u32,
    since: u64,
    /// Since when there is room, or since when it is left aside.
    free: Duration,
    left_aside: bool,
}

impl UnusedClaim {
    /// Whether nobody waits any longer for its owner to make use of it.
    fn is_due(&self, now: Duration) -> bool {
        !self.left_aside && self.free + PATIENCE <= now
    }

    fn is_of(&self, other: &OtherRun) -> bool {
        let claim = other.claim.as_ref();
        self.pid == other.pid && claim.is_some_and(|claim| claim.since == self.since)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    /// Brings our own claim up to date, and takes note of claims of others that there is room
    /// for.
    pub(crate) fn update_claims(&mut self) {
        let others = &mut self.other_runs;
        if others.others.is_empty() && others.claim.is_none() {
            return;
        }
        let before = others.claim.take();
        let wanted = self.state.wanted();
        let wanted = wanted.filter(|_| !self.other_runs.others.is_empty());
        self.other_runs.claim = wanted.and_then(|wanted| {
            let now = OwnClaim::new(&wanted, self.now.monotonic);
            let known = before.as_ref().filter(|before| {
                before.task == now.task
                    && before.devices == now.devices
                    && before.wanted == now.wanted
            });
            // It stays while it waits, also when only our own are left there.
            match known {
                Some(known) => Some(known.clone()),
                None => wanted.needs_others.then_some(now),
            }
        });
        if self.other_runs.claim != before {
            // Whoever waits longer than we do is another one now.
            self.other_runs.ripens = Some(Duration::ZERO);
        }
        self.note_unused();
    }

    /// Takes note of claims that there is room for.
    fn note_unused(&mut self) {
        let now = self.now.monotonic;
        let others = &self.other_runs.others;
        let mut unused = std::mem::take(&mut self.other_runs.unused);
        unused.retain(|claim| {
            let other = others.iter().find(|other| claim.is_of(other));
            if claim.left_aside {
                other.is_some() && now < claim.free + LEFT_ASIDE
            } else {
                other.is_some_and(|other| self.has_room_for(other))
            }
        });
        for other in others.iter().filter(|other| !other.is_dead) {
            let is_known = unused.iter().any(|claim| claim.is_of(other));
            if let Some(claim) = &other.claim
                && !is_known
                && self.has_room_for(other)
            {
                unused.push(UnusedClaim {
                    pid: other.pid,
                    since: claim.since,
                    free: now,
                    left_aside: false,
                });
            }
        }
        self.other_runs.unused = unused;
    }

    /// Whether what is kept for others may have changed though they say nothing new: then
    /// they are looked at, and [`Input::OtherRuns`](crate::Input::OtherRuns) is due.
    pub fn is_kept_room_stale(&self, now: Duration) -> bool {
        let ripens = self.other_runs.ripens.is_some_and(|at| at <= now);
        let mut unused = self.other_runs.unused.iter();
        ripens || unused.any(|claim| claim.is_due(now))
    }

    /// Whether there is room for what somebody claims, as far as we can tell; not if none
    /// of it is ours.
    fn has_room_for(&self, other: &OtherRun) -> bool {
        let mut wanted = other.claim.iter().flat_map(|claim| &claim.devices);
        if self.other_runs.waiting_elsewhere.contains(&other.pid) || wanted.clone().next().is_none()
        {
            return false;
        }
        let sums = &self.other_runs.sums;
        wanted.all(|wanted| {
            let devices = self.devices.iter().zip(self.state.devices());
            let mut devices = devices.enumerate();
            let load = devices.find(|(_, (device, _))| device.is_called(&wanted.device));
            let held = sums.get(&wanted.device);
            load.is_none_or(|(index, (_, load))| {
                let used = held.map_or(0, |held| held.share.0);
                let used = used.saturating_add(load.used.0);
                let memory = held.map_or(0, |held| held.memory.0);
                let memory = memory.saturating_add(load.counted.0);
                let memory = memory.saturating_add(wanted.memory.0);
                has_room(sums, wanted)
                    && !load.whole
                    // Its owner waits until that is gone, as we do.
                    && !self.monitor.is_awaiting_release(index)
                    && (!wanted.whole || load.attempts == 0)
                    && used.saturating_add(wanted.share.0) <= Milli::ONE.0
                    && (load.memory == Bytes(0) || memory <= load.memory.0)
            })
        })
    }

    /// Works out what is kept on each device for others. Only under the lock of all runs,
    /// with a fresh look at what they hold: less may be kept than before.
    pub(super) fn keep_for_others(&mut self) {
        let now = self.now.monotonic;
        for claim in &mut self.other_runs.unused {
            if claim.is_due(now) {
                (claim.free, claim.left_aside) = (now, true);
            }
        }
        let mut ripens: Option<Duration> = None;
        let others = &self.other_runs;
        let kept = self.devices.iter().enumerate().map(|(index, device)| {
            let mut kept = Vec::new();
            let mut on_it = others.others.iter().filter(|other| other.is_on(device));
            if on_it.any(|other| other.is_dead) {
                return kept;
            }
            let ours = others.claim.as_ref();
            let ours = ours.filter(|claim| claim.devices.contains(&index));
            for other in others.others.iter().filter(|other| !other.is_dead) {
                let Some(claim) = &other.claim else {
                    continue;
                };
                let mut unused = others.unused.iter();
                let is_left_aside = unused.any(|claim| claim.left_aside && claim.is_of(other));
                let is_later = ours.is_some_and(|ours| nanos(ours.since) <= claim.since);
                if is_left_aside || is_later {
                    continue;
                }
                let since = Duration::from_nanos(claim.since).max(others.turns[index]);
                let ripe = since.saturating_add(RIPE);
                let wanted = claim.devices.iter();
                let mut wanted = wanted.filter(|wanted| device.is_called(&wanted.device));
                if ripe <= now {
                    kept.extend(wanted.cloned());
                } else if wanted.next().is_some() {
                    ripens = Some(ripens.map_or(ripe, |ripens| ripens.min(ripe)));
                }
            }
            kept
        });
        let kept = kept.collect();
        self.other_runs.kept = kept;
        self.other_runs.ripens = ripens;
    }

    /// When a claim that there is room for is to be left aside, if we wait for that.
    pub(crate) fn claims_wake_at(&self) -> Option<Duration> {
        // What is all ours is not kept for anybody.
        if self.other_runs.all_is_ours() || !self.has_waiting() {
            return None;
        }
        let unused = self.other_runs.unused.iter();
        let waited_for = unused.filter(|claim| !claim.left_aside);
        let at = waited_for.map(|claim| claim.free + PATIENCE).min()?;
        // If it could not be done in time, as without the lock, it is tried again later.
        let now = self.now.monotonic;
        Some(if at <= now { now + PATIENCE } else { at })
    }
}
