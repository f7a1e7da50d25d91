//! What one attempt was seen to hold.

use std::time::Duration;

use super::growth::GrowthOnMember;
use packhorse_model::{
    Bytes, DeviceId, Measurement, MemoryRequest, Placement, TaskId, Utilisation,
};

/// Less than this is noise: a driver rounds to pages of megabytes.
pub(crate) const NOISE_FLOOR: u64 = 2 << 20;
/// After so many samples of each device without a new peak, memory rests.
const RESTED: u32 = 3;
/// How long after its end one that took too much may be why another ran out of memory: so
/// long it may take that one to end.
const AFTERMATH: Duration = Duration::from_secs(5);

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
    /// How much the last new peak was above the one before on that device.
    rise: Bytes,
    /// Samples since then, of whichever device.
    still: u32,
    /// Samples between the last rises that were more than noise.
    pauses: [u32; 2],
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
}

/// A device that it is on.
#[derive(Debug)]
pub(crate) struct TrackedDevice {
    pub(crate) device: DeviceId,
    /// What it may have; nothing where memory is not counted.
    pub(crate) promised: Bytes,
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

/// One that took more of a device than it was to have, and has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct PastGrowth {
    pub(super) task: TaskId,
    pub(super) ended: Duration,
    /// Whether it held more than it was promised there.
    outgrew: bool,
    grew_late: Option<Duration>,
}

impl PastGrowth {
    /// Whether it may be why one ran out of memory that was there from then until then.
    pub(super) fn concerns(&self, since: Duration, ended: Duration) -> bool {
        let has_grown = self.grew_late.is_some_and(|at| at >= since);
        let is_recent = self.ended + AFTERMATH >= ended;
        self.ended >= since && is_recent && (self.outgrew || has_grown)
    }
}

/// How it is on a device besides what an attempt holds there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Surroundings {
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
        let peak = on.peak;
        on.peak = peak.max(held);
        if held > before {
            self.rise = Bytes(held.0 - peak.0);
            // A step that it takes on one device after the other is one.
            let is_new = self.still as usize + 1 >= self.devices.len();
            if self.rise.0 > NOISE_FLOOR && is_new {
                self.pauses = [self.pauses[1], self.still];
            }
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

    /// Whether it may have been about to take more: it took some a moment ago, or has done
    /// so step by step, and the next one was not overdue.
    fn is_growing(&self) -> bool {
        let pause = self.pauses[0].min(self.pauses[1]);
        self.still < self.rested().max(pause.saturating_mul(2))
    }

    /// After so many samples, of whichever device, its memory rests.
    fn rested(&self) -> u32 {
        let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        RESTED.saturating_mul(devices.max(1))
    }

    /// Whether a device of its had no room left: for as much as it took last, if it may have
    /// tried to take that once more.
    pub(crate) fn was_cramped(&self) -> bool {
        let step = if self.is_growing() { self.rise.0 } else { 0 };
        let step = step.max(NOISE_FLOOR);
        let mut devices = self.devices.iter();
        devices.any(|on| {
            let free = on.last.and_then(|(_, surroundings)| surroundings.free);
            free.is_some_and(|free| free.0 < step)
        })
    }

    /// Whether it was seen to hold more than it was promised, on `device` or
    /// anywhere.
    pub(crate) fn outgrew(&self, device: Option<DeviceId>) -> Option<&TrackedDevice> {
        let mut devices = self.devices.iter();
        devices.find(|on| {
            device.is_none_or(|device| device == on.device)
                && on.promised.0 > 0
                && on.peak.0 > on.promised.0 + NOISE_FLOOR
        })
    }

    /// What others there may have suffered from, now that it has ended.
    pub(super) fn past_growth(
        &self,
        task: TaskId,
        device: DeviceId,
        ended: Duration,
    ) -> Option<PastGrowth> {
        let growth = PastGrowth {
            task,
            ended,
            outgrew: self.outgrew(Some(device)).is_some(),
            grew_late: self.grew_late,
        };
        growth.concerns(Duration::ZERO, ended).then_some(growth)
    }

    /// Whether it is to have all that becomes free, because it has grown late.
    pub(super) fn is_claiming(&self) -> bool {
        self.promise == PromiseState::AllFree && self.grew_late.is_some()
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
        assert!(track.outgrew(None).is_none(), "noise");
        track.sample(DeviceId(7), Bytes(110 << 20), Surroundings::default());
        assert!(track.outgrew(Some(DeviceId(7))).is_some());
        assert!(track.outgrew(Some(DeviceId(8))).is_none());
    }

    #[test]
    fn one_whose_last_step_would_not_fit_again_was_cramped() {
        let mut track = track(100);
        let free = |mebibytes: u64| Surroundings {
            free: Some(Bytes(mebibytes << 20)),
            ..Surroundings::default()
        };
        track.sample(DeviceId(7), Bytes(30 << 20), free(90));
        track.sample(DeviceId(7), Bytes(60 << 20), free(60));
        assert!(!track.was_cramped());
        track.sample(DeviceId(7), Bytes(90 << 20), free(20));
        assert!(track.was_cramped());
        // It is over, and a look is faster than the news of it.
        track.sample(DeviceId(7), Bytes(0), free(110));
        assert!(track.was_cramped());
        // It has given everything back, and goes on.
        track.sample(DeviceId(7), Bytes(0), free(110));
        assert!(!track.was_cramped());
    }

    #[test]
    fn one_that_took_much_at_once_and_then_rested_was_not_cramped() {
        let free = |mebibytes: u64| Surroundings {
            free: Some(Bytes(mebibytes << 20)),
            ..Surroundings::default()
        };
        let mut once = track(100);
        let hold = |track: &mut Track, held: u64, looks: u32| {
            for _ in 0..looks {
                track.sample(DeviceId(7), Bytes(held << 20), free(100 - held));
            }
        };
        hold(&mut once, 5, 40);
        hold(&mut once, 60, 3);
        assert!(once.was_cramped(), "it may be about to take more");
        hold(&mut once, 60, 1);
        assert!(!once.was_cramped());
        hold(&mut once, 99, 20);
        assert!(once.was_cramped(), "there is nothing left for anything");
        // One that takes its time between steps of the same size is not done.
        let mut steps = track(100);
        for held in [30, 60, 90] {
            hold(&mut steps, held, 10);
        }
        assert!(steps.was_cramped());
        hold(&mut steps, 90, 10);
        assert!(!steps.was_cramped());
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
                let surroundings = Surroundings {
                    free: Some(Bytes((80 - held) << 20)),
                    ..Surroundings::default()
                };
                // The last of them has a little more than the others.
                let more = u64::from(number == 3) << 10;
                track.sample(DeviceId(number), Bytes((held << 20) + more), surroundings);
            }
            track.was_cramped()
        };
        assert!(!hold(30, 1));
        assert!(hold(60, 1), "as much once more does not fit on any of them");
        assert!(hold(60, 2));
        assert!(!hold(60, 1));
        assert_eq!(error(&track), Bytes(0));
    }

    #[test]
    fn one_that_was_never_seen_on_a_device_teaches_nothing() {
        let mut track = track(100);
        track.sample(DeviceId(7), Bytes(0), Surroundings::default());
        assert_eq!(track.peak(), None);
    }
}
