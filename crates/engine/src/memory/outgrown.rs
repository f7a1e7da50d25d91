//! Tasks that outgrow a promise that was to be enough, and what follows for their kind.
//!
//! ```text
//!  promised an amount ──▶ holds more ──▶ all that is free ──▶ rests: what it holds,
//!         ▲                                                    and a margin
//!         └─────────────────────────────────────────────────────────┘
//! ```
//!
//! While a task claims what is free, nothing is placed beside it. So a task whose memory it
//! took does not come back to the same full device before the other has ended, given memory
//! back, or is known not to grow any more. Where both are of one kind, the promise of the
//! whole kind was wrong: it rises at once to what was seen.

use std::sync::Arc;
use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::{Bytes, DeviceId, TaskId};

use super::rest::with_margin;
use super::track::{NOISE_FLOOR, PromiseState, Track, TrackedDevice};
use crate::engine::Engine;

impl Engine {
    /// What a task is remembered by, if its memory counts.
    pub(super) fn kind_of_task(&self, task: TaskId) -> Option<Arc<str>> {
        let need = self.tasks.get(&task)?.need.as_ref()?;
        Some(Arc::clone(&need.kind.signature))
    }

    /// What all tasks of its kind are promised since some of them took too much.
    pub(super) fn raised(&self, task: TaskId) -> Option<Bytes> {
        let need = self.tasks.get(&task)?.need.as_ref()?;
        self.needs.shapes.get(&need.kind.signature)?.raised()
    }

    /// Whether tasks like one that runs are promised more by now than it is.
    pub(super) fn is_raised_above(&self, task: TaskId, on: &TrackedDevice) -> bool {
        self.raised(task).is_some_and(|raised| raised > on.promised)
    }

    /// What tasks of its kind were seen to need to their end, if that is as much as one holds.
    pub(super) fn known_to_need(&self, task: TaskId, held: Bytes) -> Option<Bytes> {
        let need = self.tasks.get(&task)?.need.as_ref()?;
        let known = self.needs.shapes.get(&need.kind.signature)?.completed();
        known.filter(|known| *known >= held)
    }

    /// Promises a running attempt more: it holds more than it was promised, or its kind is
    /// promised more. If nothing tells how much it needs, it gets all that is free.
    pub(super) fn raise_promise(
        &mut self,
        task: TaskId,
        device: DeviceId,
        held: Bytes,
        at: Duration,
    ) {
        let raised = self.raised(task);
        if let Some(known) = self.known_to_need(task, held) {
            return self.promise_at_least(task, device, known.max(raised.unwrap_or_default()));
        }
        if let Some(raised) = raised.filter(|_| !self.has_outgrown(task, device, held)) {
            return self.promise_at_least(task, device, raised);
        }
        if let Some(track) = self.monitor.tracks.get_mut(&task) {
            track.promise = PromiseState::Outgrown;
            track.overruns += 1;
            track.steady = (at, held);
        }
        self.promise(task, device, Bytes(u64::MAX));
    }

    /// The memory of an attempt rests that had outgrown its promise. A task that gave memory
    /// back is believed once.
    pub(super) fn outgrown_rests(&mut self, task: TaskId, device: DeviceId) {
        let Some(track) = self.monitor.tracks.get_mut(&task) else {
            return;
        };
        track.promise = PromiseState::Given;
        let is_believed = track.overruns == 1;
        let Some(on) = track.on(device) else {
            return;
        };
        let (attempt, observed) = (track.attempt, on.observed);
        let held = if is_believed { observed } else { on.peak };
        let mut needed = with_margin(held).max(on.initial);
        // Below its promise nothing was told of what it holds.
        let attempt = self.scheduler_attempt(task, attempt);
        self.step(SchedulerEvent::Observed { task, attempt, device, memory: observed });
        if let Some(known) = self.known_to_need(task, observed) {
            needed = needed.max(known);
        }
        if let Some(kind) = self.kind_of_task(task)
            && self.raised(task).is_some_and(|raised| raised.0 > 0)
        {
            self.raise_kind(&kind, needed);
        }
        self.promise(task, device, needed);
    }

    /// Promises all tasks of a kind at least so much: those that wait now, those that run at
    /// the next look. Happens a few times at most for each kind: every time it is a margin
    /// more.
    pub(super) fn raise_kind(&mut self, kind: &Arc<str>, needed: Bytes) {
        let shape = self.needs.shape(&self.devices, kind);
        if shape.raise(needed) {
            let tasks = shape.waiting.union(&shape.given).copied().collect();
            self.revise_all(tasks);
        }
    }

    /// A task that comes back in line needs at least so much.
    pub(crate) fn needs_at_least(&mut self, task: TaskId, memory: Bytes) {
        let task = self.tasks.get_mut(&task);
        if let Some(need) = task.and_then(|task| task.need.as_mut()) {
            need.at_least = need.at_least.max(memory);
        }
    }

    fn has_outgrown(&self, task: TaskId, device: DeviceId, held: Bytes) -> bool {
        let track = self.monitor.tracks.get(&task);
        let on = track.and_then(|track| track.on(device));
        on.is_some_and(|on| held.0 > on.promised.0.saturating_add(NOISE_FLOOR))
    }

    fn promise_at_least(&mut self, task: TaskId, device: DeviceId, memory: Bytes) {
        let track = self.monitor.tracks.get(&task);
        let now = track.and_then(|track| track.on(device)).map(|on| on.promised);
        if now.is_some_and(|now| now < memory) {
            self.promise(task, device, memory);
        }
    }
}

/// Whether the promise of an attempt on a device can be raised: it counts, and it is of
/// that device alone.
pub(super) fn may_be_raised(track: &Track, on: &TrackedDevice) -> bool {
    on.promised.0 > 0 && track.devices.len() == 1
}
