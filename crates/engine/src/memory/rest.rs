//! Tasks of which nothing is known: each is promised all that is free at first, and what it
//! turned out to need once its memory rests, so that others may start beside it.
//!
//! ```text
//!  started ──▶ all that is free ──▶ rests: what it was seen to need, and a margin
//!                     ▲                      │
//!                     │                      ▼ grows again
//!                     └── no room for it ◀── is there room for that?
//!                         the last that came is moved away
//! ```

use std::sync::Arc;
use std::time::Duration;

use packhorse_core::{SchedulerEvent, reservation};
use packhorse_model::{
    Bytes, DeviceId, LearnedPeak, NewPeak, PeakOrigin, Record, StopMode, TaskId,
};

use super::monitor::device_id;
use super::outgrown::may_be_raised;
use super::track::{NOISE_FLOOR, PromiseState, Track};
use crate::engine::Engine;
use crate::task::Eviction;

impl Engine {
    /// Whether a task on a device is to have all that becomes free there.
    pub(super) fn is_claimed(&self, device: DeviceId) -> bool {
        let mut tracks = self.monitor.tracks.values();
        tracks.any(|track| track.is_claiming() && track.on(device).is_some())
    }

    /// Gives what has become free on a device to the tasks that are to have all of it, before
    /// anything is placed there.
    pub(super) fn give_to_claimants(&mut self, device: DeviceId) {
        for task in self.tracked_on(device.0 as usize) {
            if self.monitor.tracks.get(&task).is_some_and(Track::is_claiming) {
                self.promise(task, device, Bytes(u64::MAX));
            }
        }
    }

    /// Sees on a device whose memory rests, and who has outgrown its promise since.
    pub(super) fn update_promises(&mut self, index: usize, at: Duration) {
        if self.monitor.is_unseen(index) {
            // What is left is not known.
            return;
        }
        let device = device_id(index);
        let mut changed = Vec::new();
        for (&task, track) in &self.monitor.tracks {
            let Some(on) = track.on(device).filter(|_| self.goes_on(task)) else {
                continue;
            };
            let held = on.observed;
            let has_grown = held.0 > on.promised.0.saturating_add(NOISE_FLOOR);
            let due = match track.promise {
                PromiseState::Given => {
                    may_be_raised(track, on) && (has_grown || self.is_raised_above(task, on))
                }
                PromiseState::AllFree => self.rests(task, track, at),
                PromiseState::Outgrown => {
                    self.rests(task, track, at) || self.known_to_need(task, held).is_some()
                }
                PromiseState::Rested => has_grown,
            };
            if due || track.is_claiming() {
                changed.push((task, track.promise, due, held));
            }
        }
        changed.sort_unstable_by_key(|&(task, ..)| task);
        for (task, before, due, held) in changed {
            match before {
                // It was moved away for one before it.
                _ if !self.goes_on(task) => {}
                _ if !due => self.promise(task, device, Bytes(u64::MAX)),
                PromiseState::Given => self.raise_promise(task, device, held, at),
                PromiseState::Outgrown => self.outgrown_rests(task, device),
                PromiseState::AllFree => self.memory_rests(task, device),
                PromiseState::Rested => self.grew_late(task, device, held, at),
            }
        }
    }

    /// Whether an attempt of a task runs, and is to go on.
    pub(super) fn goes_on(&self, task: TaskId) -> bool {
        let task = self.tasks.get(&task);
        let attempt = task.and_then(|task| task.attempt.as_ref());
        attempt.is_some_and(|attempt| !attempt.ended && attempt.evicted.is_none())
    }

    /// Whether an attempt has held no more than it does for long enough. Of a kind that was
    /// seen to grow late, it also has to be older than that one was.
    fn rests(&self, task: TaskId, track: &Track, at: Duration) -> bool {
        let rest = self.monitor.rest;
        let task = self.tasks.get(&task);
        let need = task.and_then(|task| task.need.as_ref());
        let shape = need.and_then(|need| self.needs.shapes.get(&need.kind.signature));
        let grows_at = shape.and_then(|shape| shape.grows_at).unwrap_or_default();
        let since = match track.promise {
            // A little more now and then is within the margin that it will be promised.
            PromiseState::Outgrown => track.steady.0,
            _ => track.risen,
        };
        track.peak().is_some()
            && at.saturating_sub(since) >= rest
            && at.saturating_sub(track.since) >= grows_at.saturating_add(rest)
    }

    /// Gives up what an attempt will hardly need.
    fn memory_rests(&mut self, task: TaskId, device: DeviceId) {
        let Some(track) = self.monitor.tracks.get_mut(&task) else {
            return;
        };
        track.promise = PromiseState::Rested;
        let needed = with_margin(track.peak().unwrap_or_default());
        let needed = self.kind_needs(task, needed, Duration::ZERO);
        self.promise(task, device, needed);
    }

    /// An attempt whose memory had rested holds more than it was promised then. It is to
    /// have room to grow further, before it runs out of memory.
    fn grew_late(&mut self, task: TaskId, device: DeviceId, held: Bytes, at: Duration) {
        let Some(track) = self.monitor.tracks.get_mut(&task) else {
            return;
        };
        track.grew_late = Some(at);
        let age = at.saturating_sub(track.since);
        self.remember_growth(task, device, held, age);
        let needed = self.kind_needs(task, with_margin(held), age);
        // Those who have all that is free can have less, and those who leave will have none.
        let left = self.left_for(task, device, |other, track| match track.promise {
            _ if !self.goes_on(other) => None,
            PromiseState::AllFree | PromiseState::Outgrown => Some(Bytes(0)),
            PromiseState::Given | PromiseState::Rested => Some(track.promised()),
        });
        if needed > left {
            if let Some(track) = self.monitor.tracks.get_mut(&task) {
                track.promise = PromiseState::AllFree;
            }
            return self.make_room(task, device, held);
        }
        // Nobody comes between.
        self.hold();
        if let Some(track) = self.monitor.tracks.get_mut(&task) {
            track.set_promised(device, needed);
        }
        let others = self.tracked_on(device.0 as usize).into_iter();
        for other in others.filter(|&other| other != task) {
            if self.monitor.tracks[&other].promise == PromiseState::AllFree {
                self.promise(other, device, Bytes(u64::MAX));
            }
        }
        self.tell_promise(task, needed);
        self.unhold();
    }

    /// Remembers that a kind grows late, whatever becomes of the attempt and of us.
    fn remember_growth(&mut self, task: TaskId, device: DeviceId, held: Bytes, age: Duration) {
        let attempt = self.monitor.tracks.get(&task).map(|track| track.attempt);
        let need = self.tasks.get(&task).and_then(|task| task.need.as_ref());
        let device = self.devices.get(device.0 as usize);
        let (Some(attempt), Some(need), Some(device)) = (attempt, need, device) else {
            return;
        };
        let peak = NewPeak {
            task,
            attempt,
            signature: Arc::clone(&need.kind.signature),
            model: Arc::clone(&device.model),
            learned: LearnedPeak {
                at: self.now.wall,
                peak: held,
                error: Bytes(0),
                duration: Some(age),
                origin: PeakOrigin::Growing,
            },
        };
        self.record(Record::Peak(Box::new(peak)));
    }

    /// Takes note of what tasks of a kind need, as far as one that runs shows, and when it
    /// grew if it had rested before. Returns what that is for all that were seen.
    pub(super) fn kind_needs(&mut self, task: TaskId, needed: Bytes, grew_at: Duration) -> Bytes {
        let task = self.tasks.get(&task);
        let Some(need) = task.and_then(|task| task.need.as_ref()) else {
            return needed;
        };
        let signature = Arc::clone(&need.kind.signature);
        let Some(shape) = self.needs.shapes.get_mut(&signature) else {
            return needed;
        };
        if grew_at > Duration::ZERO {
            shape.grows_at = shape.grows_at.max(Some(grew_at));
        }
        let before = shape.rested.replace(needed.max(shape.rested.unwrap_or_default()));
        let now = shape.rested;
        if now != before {
            self.revise_waiting(&signature);
        }
        now.unwrap_or(needed)
    }

    /// The memory of a device that is left for a task beside all others that have a promise,
    /// each of which counts for that or what it holds, whichever is more.
    fn left_for(
        &self,
        task: TaskId,
        device: DeviceId,
        promised: impl Fn(TaskId, &Track) -> Option<Bytes>,
    ) -> Bytes {
        let index = device.0 as usize;
        let mut taken = self.other_runs.told[index].memory.0;
        for (&other, track) in &self.monitor.tracks {
            if let Some(on) = track.on(device)
                && other != task
                && let Some(promised) = promised(other, track)
            {
                taken = taken.saturating_add(on.observed.max(promised).0);
            }
        }
        Bytes(self.devices[index].memory.0.saturating_sub(taken))
    }

    /// Changes what a running attempt is promised, as far as there is so much.
    pub(super) fn promise(&mut self, task: TaskId, device: DeviceId, memory: Bytes) {
        let left = self.left_for(task, device, |_, other| Some(other.promised()));
        let memory = memory.min(left);
        let track = self.monitor.tracks.get_mut(&task);
        let Some(track) = track.filter(|track| track.promised() != memory) else {
            return;
        };
        track.set_promised(device, memory);
        self.tell_promise(task, memory);
    }

    fn tell_promise(&mut self, task: TaskId, memory: Bytes) {
        let attempt = self.monitor.tracks.get(&task).map_or(0, |track| track.attempt);
        self.step(SchedulerEvent::Promised {
            task,
            attempt: self.scheduler_attempt(task, attempt),
            memory,
        });
    }

    /// Moves the one away that came last to a device where another has grown.
    fn make_room(&mut self, grown: TaskId, device: DeviceId, held: Bytes) {
        // One whose memory does not count would be back in a moment.
        let counts = |task: &TaskId| {
            let on = self.monitor.tracks[task].on(device);
            on.is_some_and(|on| on.promised.0 > 0)
        };
        let here = self.tracked_on(device.0 as usize).into_iter();
        let here = here.filter(|&task| self.goes_on(task));
        let here: Vec<TaskId> = here.filter(counts).collect();
        let last = here.iter().copied();
        let last = last.max_by_key(|task| (self.monitor.tracks[task].since, *task));
        // One that is alone has all there is.
        let Some(last) = last.filter(|_| here.len() > 1) else {
            return;
        };
        let task = self.tasks.get_mut(&last);
        if let Some(attempt) = task.and_then(|task| task.attempt.as_mut()) {
            attempt.evicted = Some(Eviction::Crowded { grown, device, held });
            self.stop_attempt(last, StopMode::Terminate);
        }
    }
}

/// What to promise to one that was seen to hold so much.
pub(super) fn with_margin(peak: Bytes) -> Bytes {
    let seen = LearnedPeak {
        at: packhorse_model::Timestamp(0),
        peak,
        error: Bytes(0),
        duration: None,
        origin: PeakOrigin::Run,
    };
    reservation([seen].iter()).unwrap_or(peak)
}
