//! What other runs say, as far as it concerns us.
//!
//! Other users write it. Whatever they write, what is kept of it is no more than our devices
//! are, and added up once: it is looked at with every event.

use packhorse_model::{LeasedDevice, Milli};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::DeviceInfo;
use crate::input::OtherRun;

/// What several runs hold together, by what they call the device.
pub(super) type HeldSums = FxHashMap<Box<str>, LeasedDevice>;

/// What concerns us of what other runs hold and want.
pub(super) struct ConcerningUs {
    /// All of them, with what they hold and want of our devices.
    pub(super) others: Vec<OtherRun>,
    /// What they hold together of those.
    pub(super) sums: HeldSums,
    /// Those that wait for somebody on a device that is not ours, by their processes.
    pub(super) waiting_elsewhere: Vec<u32>,
}

/// Picks out what concerns us.
pub(super) fn concerning_us(mut others: Vec<OtherRun>, devices: &[DeviceInfo]) -> ConcerningUs {
    let keys = devices.iter().flat_map(|device| &device.keys);
    let ours: FxHashSet<&str> = keys.map(String::as_str).collect();
    let mut sums = HeldSums::default();
    for held in others.iter().flat_map(|other| &other.devices) {
        add(sums.entry(held.device.clone()).or_default(), held);
    }
    let waits = |other: &&OtherRun| {
        let wanted = other.claim.iter().flat_map(|claim| &claim.devices);
        let mut elsewhere = wanted.filter(|wanted| !ours.contains(&*wanted.device));
        elsewhere.any(|wanted| !has_room(&sums, wanted))
    };
    let waiting_elsewhere = others.iter().filter(waits).map(|other| other.pid).collect();
    for other in &mut others {
        let claimed = other.claim.as_mut().map(|claim| &mut claim.devices);
        for devices in [&mut other.devices].into_iter().chain(claimed) {
            *devices = merged(std::mem::take(devices), &ours);
        }
    }
    sums.retain(|device, _| ours.contains(&**device));
    ConcerningUs { others, sums, waiting_elsewhere }
}

/// Whether there is room for what is wanted beside what runs hold, but for memory.
pub(super) fn has_room(held: &HeldSums, wanted: &LeasedDevice) -> bool {
    held.get(&wanted.device).is_none_or(|held| {
        let is_free = held.attempts == 0 && held.share == Milli(0);
        !held.whole
            && (!wanted.whole || is_free)
            && held.share.0.saturating_add(wanted.share.0) <= Milli::ONE.0
    })
}

/// Each of our devices once.
fn merged(all: Vec<LeasedDevice>, ours: &FxHashSet<&str>) -> Vec<LeasedDevice> {
    let mut merged: Vec<LeasedDevice> = Vec::new();
    for one in all {
        if !ours.contains(&*one.device) {
            continue;
        }
        match merged.iter_mut().find(|known| known.device == one.device) {
            Some(known) => add(known, &one),
            None => merged.push(one),
        }
    }
    merged
}

fn add(sum: &mut LeasedDevice, one: &LeasedDevice) {
    sum.memory.0 = sum.memory.0.saturating_add(one.memory.0);
    sum.share.0 = sum.share.0.saturating_add(one.share.0).min(Milli::ONE.0);
    sum.attempts = sum.attempts.saturating_add(one.attempts);
    sum.whole |= one.whole;
}
