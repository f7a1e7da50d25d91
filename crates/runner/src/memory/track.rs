//! What one attempt was seen to hold.

use std::time::{Duration, Instant};

use packhorse_model::{Bytes, DeviceId, Placement};

/// Less than this is noise: a driver rounds to pages of megabytes.
pub(crate) const CRUMB: u64 = 2 << 20;
/// After so many samples without a new peak, memory rests.
const RESTED: u32 = 3;

/// An attempt whose memory is watched.
#[derive(Debug)]
pub(crate) struct Track {
    /// Which attempt of its task; 0 is a probe.
    pub(crate) attempt: u32,
    pub(crate) since: Instant,
    pub(crate) places: Vec<Place>,
    /// The most it held on any of its devices.
    peak: Bytes,
    /// How much the last new peak was above the one before.
    rise: Bytes,
    /// Samples since then.
    still: u32,
    samples: u32,
    /// When it was last sampled, and the longest time between two samples.
    last: Option<Instant>,
    gap: Duration,
    /// How busy its devices were: the sum over samples, and the most.
    busy: Option<(u64, u8)>,
}

/// A device that it is on.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) device: DeviceId,
    /// What it may have; nothing where memory is not counted.
    pub(crate) promised: Bytes,
    /// What it was last seen to hold.
    pub(crate) observed: Bytes,
    /// The most it was seen to hold.
    peak: Bytes,
    /// What it was last seen to hold, and how it was there then: for one more
    /// sample, as that may show what is left after its end.
    pub(super) last: Option<(Bytes, Scene)>,
}

/// How it is on a device besides what an attempt holds there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scene {
    pub(super) free: Option<Bytes>,
    /// What all others hold or were promised.
    pub(super) others: Bytes,
    /// What strangers hold.
    pub(super) strangers: Bytes,
}

/// What was seen of an attempt on its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The most memory it was seen to hold on one device.
    pub peak: Bytes,
    /// It may have been so much more between two samples.
    pub error: Bytes,
    /// How many samples were taken.
    pub samples: u32,
    /// The longest time between two of them.
    pub interval: Duration,
    /// How busy its devices were in the mean and at most, in per cent.
    pub busy: Option<(u8, u8)>,
}

impl Track {
    pub(crate) fn new(attempt: u32, placement: &Placement, since: Instant) -> Self {
        let place = |granted: &packhorse_model::Granted| Place {
            device: granted.device,
            promised: granted.memory,
            observed: Bytes(0),
            peak: Bytes(0),
            last: None,
        };
        Self {
            attempt,
            since,
            places: placement.devices.iter().map(place).collect(),
            peak: Bytes(0),
            rise: Bytes(0),
            still: 0,
            samples: 0,
            last: None,
            gap: Duration::ZERO,
            busy: None,
        }
    }

    /// Takes note of how busy a device of its was at a moment.
    pub(crate) fn look(&mut self, at: Instant, busy: Option<u8>) {
        self.samples += 1;
        let since = self.last.replace(at).unwrap_or(self.since);
        self.gap = self.gap.max(at.saturating_duration_since(since));
        if let Some(busy) = busy {
            let (sum, most) = self.busy.unwrap_or_default();
            self.busy = Some((sum + u64::from(busy), most.max(busy)));
        }
    }

    /// Takes note of what it was seen to hold on one of its devices. Whether it
    /// grew.
    pub(super) fn sample(&mut self, device: DeviceId, held: Bytes, scene: Scene) -> bool {
        let Some(place) = self.places.iter_mut().find(|place| place.device == device) else {
            return false;
        };
        let grew = held.0 > place.observed.0 + CRUMB;
        if held.0 > 0 {
            place.last = Some((held, scene));
        } else if place.observed.0 == 0 {
            place.last = None;
        }
        place.observed = held;
        place.peak = place.peak.max(held);
        if held > self.peak {
            self.rise = Bytes(held.0 - self.peak.0);
            self.peak = held;
            self.still = 0;
        } else {
            self.still += 1;
        }
        grew
    }

    /// The device among its own, as it was last seen.
    pub(crate) fn place(&self, device: DeviceId) -> Option<&Place> {
        self.places.iter().find(|place| place.device == device)
    }

    /// Whether a device of its had no room left for as much as it took last.
    pub(crate) fn was_cramped(&self) -> bool {
        let step = self.rise.0.max(CRUMB);
        let mut places = self.places.iter();
        places.any(|place| {
            let free = place.last.and_then(|(_, scene)| scene.free);
            free.is_some_and(|free| free.0 < step)
        })
    }

    /// Whether it was seen to hold more than it was promised, on `device` or
    /// anywhere.
    pub(crate) fn outgrew(&self, device: Option<DeviceId>) -> Option<&Place> {
        let mut places = self.places.iter();
        places.find(|place| {
            device.is_none_or(|device| device == place.device)
                && place.promised.0 > 0
                && place.peak.0 > place.promised.0 + CRUMB
        })
    }

    /// What there is to say, if it was ever seen to hold anything.
    pub(crate) fn seen(&self) -> Option<Seen> {
        (self.peak.0 > 0).then(|| Seen {
            peak: self.peak,
            error: if self.still >= RESTED {
                Bytes(0)
            } else {
                self.rise
            },
            samples: self.samples,
            interval: self.gap,
            busy: self.busy.map(|(sum, most)| {
                let mean = sum / u64::from(self.samples.max(1));
                (u8::try_from(mean).unwrap_or(100), most)
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_model::{Granted, Milli, NodeId};

    fn track(promised: u64) -> Track {
        let granted = Granted {
            device: DeviceId(7),
            share: Milli(0),
            memory: Bytes(promised << 20),
        };
        let placement = Placement {
            node: NodeId(0),
            devices: vec![granted],
            cores: Vec::new(),
        };
        Track::new(1, &placement, Instant::now())
    }

    #[test]
    fn the_peak_stays_when_memory_is_given_back() {
        let mut track = track(100);
        for held in [10, 80, 40] {
            track.sample(DeviceId(7), Bytes(held << 20), Scene::default());
        }
        let seen = track.seen().unwrap();
        assert_eq!(seen.peak, Bytes(80 << 20));
        assert_eq!(track.places[0].observed, Bytes(40 << 20));
    }

    #[test]
    fn the_error_is_the_last_step_until_memory_rests() {
        let mut track = track(100);
        for held in [10, 80] {
            track.sample(DeviceId(7), Bytes(held << 20), Scene::default());
        }
        assert_eq!(track.seen().unwrap().error, Bytes(70 << 20));
        for _ in 0..RESTED {
            track.sample(DeviceId(7), Bytes(80 << 20), Scene::default());
        }
        assert_eq!(track.seen().unwrap().error, Bytes(0));
    }

    #[test]
    fn holding_more_than_promised_is_noticed() {
        let mut track = track(100);
        track.sample(DeviceId(7), Bytes(101 << 20), Scene::default());
        assert!(track.outgrew(None).is_none(), "a crumb");
        track.sample(DeviceId(7), Bytes(110 << 20), Scene::default());
        assert!(track.outgrew(Some(DeviceId(7))).is_some());
        assert!(track.outgrew(Some(DeviceId(8))).is_none());
    }

    #[test]
    fn one_whose_last_step_would_not_fit_again_was_cramped() {
        let mut track = track(100);
        let free = |mebibytes: u64| Scene {
            free: Some(Bytes(mebibytes << 20)),
            ..Scene::default()
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
    fn one_that_was_never_seen_on_a_device_teaches_nothing() {
        let mut track = track(100);
        track.sample(DeviceId(7), Bytes(0), Scene::default());
        assert_eq!(track.seen(), None);
    }
}
