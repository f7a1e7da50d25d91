//! What one attempt was seen to hold.

use std::time::Duration;

use super::growth::GrowthOnMember;
use super::rest::with_margin;
use std::sync::Arc;

use packhorse_model::{
    Bytes, DeviceId, Measurement, MemoryRequest, Placement, TaskId, Utilisation,
};

/// Less than this is noise: a driver rounds to pages of megabytes.
pub(crate) const NOISE_FLOOR: u64 = 2 << 20;
/// After so many samples of each device without a new peak, memory rests.
const RESTED: u32 = 3;
/// How long after its end one that took too much may be why another ran out of memory: so
/// long it may take that one to end.
pub(super) const AFTERMATH: Duration = Duration::from_secs(5);

/// An attempt whose memory is watched.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// Which attempt of its task; 0 is a probe.
    pub(crate) attempt: u32,
    pub(crate) since: Duration,
    /// When it ended, once that is known.
    pub(super) ended: Option<Duration>,
    pub(crate) devices: Vec<TrackedDevice>,
    pub(super) promise: PromiseState,
    /// What it needs is to be found out.
    pub(super) is_unknown: bool,
    /// When it last held clearly more than ever before.
    pub(super) risen: Duration,
    /// When it last outgrew what it was promised after its memory had rested.
    pub(super) grew_late: Option<Duration>,
    /// How often it has outgrown a promise that was to be enough.
    pub(super) overruns: u32,
    /// Since when it has held no more than so much and a margin, after it had outgrown its
    /// promise.
    pub(super) steady: (Duration, Bytes),
    /// How much the last new peak was above the one before on that device.
    rise: Bytes,
    /// Samples since then, of whichever device.
    still: u32,
    samples: u32,
    /// When it was last sampled, and the longest time between two samples.
    last: Option<Duration>,
    gap: Duration,
    /// How busy its devices were: the sum over samples, and the most.
    busy: Option<(u64, u8)>,
}

/// How what an attempt is promised came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PromiseState {
    /// It was known, and stays.
    #[default]
    Given,
    /// Nothing is known: it was all that was free.
    AllFree,
    /// Nothing was known, and its memory has come to rest.
    Rested,
    /// It was known, and was too little: it is all that is free until its memory rests.
    Outgrown,
}

/// A device that it is on.
#[derive(Debug)]
pub(crate) struct TrackedDevice {
    pub(crate) device: DeviceId,
    /// What it may have; nothing where memory is not counted.
    pub(crate) promised: Bytes,
    /// What it was promised when it started.
    pub(super) initial: Bytes,
    /// When it was last seen to hold more than it was promised then.
    pub(super) overran: Option<Duration>,
    /// What it was last seen to hold.
    pub(crate) observed: Bytes,
    /// The most it was seen to hold.
    pub(super) peak: Bytes,
    /// What its members' memory has grown by that no process is shown for that we know.
    pub(super) growth: Vec<GrowthOnMember>,
    /// What it was last seen to hold, and how it was there then: for one more
    /// sample, as that may show what is left after its end.
    pub(super) last: Option<(Bytes, Surroundings)>,
}

/// A task that took more of a device than it was to have, and has ended.
#[derive(Clone, Debug)]
pub(super) struct PastGrowth {
    pub(super) task: TaskId,
    pub(super) ended: Duration,
    /// What it is remembered by.
    pub(super) kind: Option<Arc<str>>,
    pub(super) peak: Bytes,
    overran: Duration,
}

impl PastGrowth {
    /// Whether it may be why an attempt ran out of memory that was there from `since` to
    /// `ended`.
    pub(super) fn concerns(&self, since: Duration, ended: Duration) -> bool {
        self.overran >= since && self.ended + AFTERMATH >= ended
    }
}

/// How a device is besides what an attempt holds there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Surroundings {
    /// When that was seen.
    pub(super) at: Duration,
    pub(super) free: Option<Bytes>,
    /// What all others hold or were promised.
    pub(super) others: Bytes,
    /// What strangers hold.
    pub(super) strangers: Bytes,
}

impl Track {
    pub(crate) fn new(
        attempt: u32,
        placement: &Placement,
        memory: MemoryRequest,
        since: Duration,
    ) -> Self {
        let has_all_free = matches!(memory, MemoryRequest::AtLeast(_));
        let on = |granted: &packhorse_model::Granted| TrackedDevice {
            device: granted.device,
            promised: granted.memory,
            initial: granted.memory,
            overran: None,
            observed: Bytes(0),
            peak: Bytes(0),
            growth: Vec::new(),
            last: None,
        };
        Self {
            attempt,
            since,
            devices: placement.devices.iter().map(on).collect(),
            is_unknown: has_all_free || memory == MemoryRequest::Whole,
            promise: if has_all_free { PromiseState::AllFree } else { PromiseState::Given },
            ..Self::default()
        }
    }

    /// Takes note of how busy a device of its was at a moment.
    pub(crate) fn look(&mut self, at: Duration, busy: Option<u8>) {
        self.samples += 1;
        if self.still == 0 && self.rise.0 > NOISE_FLOOR {
            self.risen = at;
        }
        let since = self.last.replace(at).unwrap_or(self.since);
        self.gap = self.gap.max(at.saturating_sub(since));
        if let Some(busy) = busy {
            let (sum, most) = self.busy.unwrap_or_default();
            self.busy = Some((sum + u64::from(busy), most.max(busy)));
        }
    }

    /// Takes note of what it was seen to hold on one of its devices. Whether it
    /// grew.
    pub(super) fn sample(
        &mut self,
        device: DeviceId,
        held: Bytes,
        surroundings: Surroundings,
    ) -> bool {
        let before = self.peak().unwrap_or_default();
        let Some(on) = self.devices.iter_mut().find(|on| on.device == device) else {
            return false;
        };
        // A driver may show anything.
        let grew = held.0 > on.observed.0.saturating_add(NOISE_FLOOR);
        if held.0 > 0 {
            on.last = Some((held, surroundings));
        } else if on.observed.0 == 0 {
            on.last = None;
        }
        on.observed = held;
        if on.promised.0 > 0 && held.0 > on.promised.0.saturating_add(NOISE_FLOOR) {
            on.overran = Some(surroundings.at);
        }
        if held > self.steady.1 && held > with_margin(self.steady.1) {
            self.steady = (surroundings.at, held);
        }
        let peak = on.peak;
        on.peak = peak.max(held);
        if held > before {
            self.rise = Bytes(held.0 - peak.0);
            self.still = 0;
        } else {
            self.still += 1;
        }
        grew
    }

    /// The device among its own, as it was last seen.
    pub(crate) fn on(&self, device: DeviceId) -> Option<&TrackedDevice> {
        self.devices.iter().find(|on| on.device == device)
    }

    /// After so many samples, of whichever device, its memory rests.
    fn rested(&self) -> u32 {
        let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        RESTED.saturating_mul(devices.max(1))
    }

    /// What it may hold of a device of its without being to blame for it. A promise that was
    /// raised because it was broken changes nothing about that.
    pub(super) fn entitled(&self, on: &TrackedDevice) -> Bytes {
        match self.promise {
            PromiseState::Given | PromiseState::Outgrown => on.initial,
            PromiseState::AllFree | PromiseState::Rested => on.promised,
        }
    }

    /// Whether it was seen to hold more than it was promised.
    pub(super) fn outgrew(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|on| {
            let entitled = self.entitled(on).0;
            entitled > 0 && on.peak.0 > entitled.saturating_add(NOISE_FLOOR)
        })
    }

    /// What its neighbours may have suffered from, now that it has ended.
    pub(super) fn past_growth(
        &self,
        task: TaskId,
        kind: Option<Arc<str>>,
        device: DeviceId,
        ended: Duration,
    ) -> Option<PastGrowth> {
        let on = self.on(device)?;
        Some(PastGrowth { task, ended, kind, peak: on.peak, overran: on.overran? })
    }

    /// Whether it is to have all that becomes free: it has grown late, or outgrown its
    /// promise.
    pub(super) fn is_claiming(&self) -> bool {
        match self.promise {
            PromiseState::Outgrown => true,
            PromiseState::AllFree => self.grew_late.is_some(),
            PromiseState::Given | PromiseState::Rested => false,
        }
    }

    pub(super) fn set_promised(&mut self, device: DeviceId, memory: Bytes) {
        if let Some(on) = self.devices.iter_mut().find(|on| on.device == device) {
            on.promised = memory;
        }
    }

    /// What it may have on each of its devices.
    pub(super) fn promised(&self) -> Bytes {
        let promised = self.devices.iter().map(|on| on.promised);
        promised.max().unwrap_or_default()
    }

    /// The most it was seen to hold, if it was ever seen to hold anything.
    pub(crate) fn peak(&self) -> Option<Bytes> {
        let peaks = self.devices.iter().map(|on| on.peak);
        peaks.max().filter(|peak| peak.0 > 0)
    }

    /// Whether what it was seen to hold is what its devices' memory has grown by.
    pub(super) fn is_by_growth(&self) -> bool {
        let mut growth = self.devices.iter().flat_map(|on| &on.growth);
        growth.any(|growth| growth.is_seen)
    }

    /// What there is to say of the attempt, if it was ever seen to hold anything.
    pub(crate) fn measurement(&self, task: TaskId) -> Option<Measurement> {
        Some(Measurement {
            task,
            attempt: self.attempt,
            peak: self.peak()?,
            error: if self.still >= self.rested() { Bytes(0) } else { self.rise },
            by_growth: self.is_by_growth(),
            samples: self.samples,
            interval: self.gap,
            utilisation: self.busy.map(|(sum, most)| {
                let mean = sum / u64::from(self.samples.max(1));
                let mean = u8::try_from(mean).unwrap_or(100);
                Utilisation { mean, most }
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_model::{Granted, Milli, NodeId, RunId};

    fn track(promised: u64) -> Track {
        let granted =
            Granted { device: DeviceId(7), share: Milli(0), memory: Bytes(promised << 20) };
        let placement = Placement { node: NodeId(0), devices: vec![granted], cores: Vec::new() };
        Track::new(1, &placement, MemoryRequest::Uncounted, Duration::ZERO)
    }

    fn error(track: &Track) -> Bytes {
        track.measurement(TaskId::new(RunId(1), 1)).unwrap().error
    }

    #[test]
    fn the_peak_stays_when_memory_is_given_back() {
        let mut track = track(100);
        for held in [10, 80, 40] {
            track.sample(DeviceId(7), Bytes(held << 20), Surroundings::default());
        }
        assert_eq!(track.peak(), Some(Bytes(80 << 20)));
        assert_eq!(track.devices[0].observed, Bytes(40 << 20));
    }

    #[test]
    fn a_driver_may_show_anything() {
        let mut track = track(100);
        for _ in 0..2 {
            track.sample(DeviceId(7), Bytes(u64::MAX), Surroundings::default());
        }
        assert_eq!(track.peak(), Some(Bytes(u64::MAX)));
    }

    #[test]
    fn the_error_is_the_last_step_until_memory_rests() {
        let mut track = track(100);
        for held in [10, 80] {
            track.sample(DeviceId(7), Bytes(held << 20), Surroundings::default());
        }
        assert_eq!(error(&track), Bytes(70 << 20));
        for _ in 0..RESTED {
            track.sample(DeviceId(7), Bytes(80 << 20), Surroundings::default());
        }
        assert_eq!(error(&track), Bytes(0));
    }

    #[test]
    fn holding_more_than_promised_is_noticed() {
        let mut track = track(100);
        track.sample(DeviceId(7), Bytes(101 << 20), Surroundings::default());
        assert!(!track.outgrew(), "noise");
        let surroundings = Surroundings { at: Duration::from_secs(3), ..Surroundings::default() };
        track.sample(DeviceId(7), Bytes(110 << 20), surroundings);
        assert!(track.outgrew());
        assert_eq!(track.devices[0].overran, Some(surroundings.at));
        track.set_promised(DeviceId(7), Bytes(200 << 20));
        assert!(track.outgrew(), "what it was promised since does not count");
    }

    #[test]
    fn on_several_devices_it_rests_when_all_were_seen_at_rest() {
        let placement = Placement {
            node: NodeId(0),
            devices: (0..4)
                .map(|number| Granted {
                    device: DeviceId(number),
                    share: Milli(0),
                    memory: Bytes(100 << 20),
                })
                .collect(),
            cores: Vec::new(),
        };
        let mut track = Track::new(1, &placement, MemoryRequest::Uncounted, Duration::ZERO);
        let mut hold = |held: u64, rounds: u32| {
            for number in (0..rounds).flat_map(|_| 0..4) {
                // The last of them has a little more than the others.
                let more = u64::from(number == 3) << 10;
                let held = Bytes((held << 20) + more);
                track.sample(DeviceId(number), held, Surroundings::default());
            }
            error(&track)
        };
        assert!(hold(30, 1) > Bytes(0));
        assert!(hold(60, 3) > Bytes(0));
        assert_eq!(hold(60, 1), Bytes(0));
    }

    #[test]
    fn one_that_was_never_seen_on_a_device_teaches_nothing() {
        let mut track = track(100);
        track.sample(DeviceId(7), Bytes(0), Surroundings::default());
        assert_eq!(track.peak(), None);
    }
}
