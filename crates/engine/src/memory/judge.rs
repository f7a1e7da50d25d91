//! Attempts that have ended: their devices are looked at and their logs read, then what
//! brought the end about is decided, told, and learned from.

use std::sync::Arc;
use std::time::Duration;

use packhorse_core::EndCause;
use packhorse_model::{
    AttemptEnd, Bytes, DeviceId, EventKind, LearnedPeak, Measurement, NewPeak, Outcome, PeakOrigin,
    Record, TaskId,
};

use super::needs::VramUse;
use super::rest::with_margin;
use super::track::{PromiseState, Track};
use crate::action::{Action, LogTail};
use crate::engine::Engine;
use crate::run::Run;

/// How long an end waits for a look at the devices.
const PATIENCE: Duration = Duration::from_secs(2);

/// Said of an attempt whose own processes were not seen on its devices.
const BY_GROWTH: &str = "no process of its own was seen on its GPU; its memory is what the GPU's \
     grew by while it was alone there";

/// A failed attempt that is judged when its devices have been looked at and its log read.
#[derive(Debug)]
pub(crate) struct PendingEnd {
    pub(crate) end: AttemptEnd,
    since: Duration,
    /// What it wrote last, once that was read.
    log: Option<ReadLog>,
}

/// What an attempt wrote last.
#[derive(Debug, Default)]
pub(super) struct ReadLog {
    pub(super) tail: Option<Vec<u8>>,
    pub(super) mps_failed: bool,
}

impl PendingEnd {
    /// When it has waited long enough for a look. What it wrote is waited for in any case.
    pub(super) fn until(&self) -> Option<Duration> {
        self.log.as_ref().map(|_| self.since + PATIENCE)
    }
}

/// The end of an attempt, and what is made of it.
pub(crate) struct Judgement {
    pub(crate) end: AttemptEnd,
    pub(crate) cause: EndCause,
    /// In words, for people.
    pub(crate) note: Option<String>,
    /// What else is written down of it, if there is nothing to say about its end.
    pub(crate) remark: Option<&'static str>,
    /// What it was seen to hold at most.
    pub(crate) peak: Option<Bytes>,
}

pub(super) fn has_failed(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. } | Outcome::Killed { .. })
}

impl Engine {
    /// An attempt is over. If it failed, its devices are looked at first, and what it
    /// wrote.
    pub(crate) fn attempt_over(&mut self, end: AttemptEnd) {
        let id = end.task;
        let (Some(task), Some(run)) = (self.tasks.get_mut(&id), self.runs.get_mut(&id.run)) else {
            return;
        };
        let attempt = task.attempt.as_mut();
        let Some(attempt) = attempt.filter(|it| it.number == end.attempt && !it.ended) else {
            return;
        };
        attempt.ended = true;
        let on_devices = !attempt.devices.is_empty();
        run.alive = run.alive.saturating_sub(1);
        if !(self.monitor.is_watching() && has_failed(end.outcome) && on_devices) {
            return self.judge(end, &ReadLog::default());
        }
        let path = run.log_path(&task.spec, id, end.attempt);
        if let Some(track) = self.monitor.tracks.get_mut(&id) {
            track.ended = Some(self.now.monotonic);
        }
        let (task, attempt) = (id, end.attempt);
        self.monitor.look();
        self.monitor.pending.push(PendingEnd {
            end,
            since: self.now.monotonic,
            log: path.is_none().then(ReadLog::default),
        });
        if let Some(path) = path {
            self.act(Action::ReadLog(LogTail { task, attempt, path }));
        }
    }

    pub(crate) fn log_read(
        &mut self,
        task: TaskId,
        attempt: u32,
        tail: Option<Vec<u8>>,
        mps_failed: bool,
    ) {
        let mut pending = self.monitor.pending.iter_mut();
        let pending = pending.find(|it| it.end.task == task && it.end.attempt == attempt);
        if let Some(pending) = pending {
            pending.log = Some(ReadLog { tail, mps_failed });
        }
    }

    /// Judges the ends whose devices were looked at since, and those that have waited too
    /// long.
    pub(crate) fn judge_pending(&mut self) {
        let now = self.now.monotonic;
        if self.monitor.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.monitor.pending);
        let (ready, rest): (Vec<_>, Vec<_>) = pending.into_iter().partition(|pending| {
            let task = self.tasks.get(&pending.end.task);
            let devices = task.map_or(&[][..], |task| task.devices());
            let seen = self.monitor.has_seen(devices, pending.since);
            let until = pending.until();
            until.is_some_and(|until| seen || until <= now)
        });
        self.monitor.pending = rest;
        for pending in ready {
            self.judge(pending.end, &pending.log.unwrap_or_default());
        }
    }

    fn judge(&mut self, mut end: AttemptEnd, log: &ReadLog) {
        let id = end.task;
        let attempt = self.tasks.get_mut(&id).and_then(|task| task.attempt.take());
        let (devices, evicted) = attempt.map_or((Vec::new(), None), |it| (it.devices, it.evicted));
        let goes_on = self.runs.get(&id.run).is_some_and(Run::takes_tasks);
        if evicted.is_some() && end.outcome == Outcome::Interrupted && goes_on {
            // It was not the person who ended it.
            end.outcome = Outcome::Killed { signal: 15 };
        }
        // One that teaches is back in line before those like it learn of it.
        let teaches = self.tasks.get(&id).is_some_and(|task| task.need.is_some());
        let holds = teaches || devices.iter().any(|&device| self.is_claimed(device));
        if holds {
            self.hold();
        }
        let probe = end.attempt == 0;
        let (cause, note) = match self.blame(&end, &devices, evicted, log) {
            Some((cause, note)) => (cause, Some(note)),
            None => (EndCause::Own, None),
        };
        self.await_release(&end, &devices);
        let track = self.untrack(id);
        let out_of_memory = matches!(cause, EndCause::OutOfMemory { .. });
        let grew_late = track.as_ref().is_some_and(|track| {
            let wanted_more = out_of_memory && track.promise == PromiseState::Rested;
            track.grew_late.is_some() || wanted_more
        });
        let outgrew = track.as_ref().is_some_and(Track::outgrew);
        let measured = track.and_then(|track| track.measurement(id));
        let by_growth = measured.is_some_and(|measured| measured.by_growth);
        if let Some(measured) = measured {
            self.tell(EventKind::Measured(measured));
            self.teach(&end, &devices, (out_of_memory, grew_late), measured);
            // With less than it held it need not try again.
            if evicted.is_some() {
                self.kind_needs(id, with_margin(measured.peak), Duration::ZERO);
            } else if outgrew {
                self.needs_at_least(id, with_margin(measured.peak));
            }
        }
        self.attempt_ended(Judgement {
            end,
            cause,
            note,
            remark: by_growth.then_some(BY_GROWTH),
            peak: measured.map(|measured| measured.peak),
        });
        if probe {
            self.probe_over(id);
        }
        for &device in &devices {
            self.give_to_claimants(device);
        }
        if holds {
            self.unhold();
        }
    }

    /// Remembers what an attempt was seen to need.
    fn teach(
        &mut self,
        end: &AttemptEnd,
        devices: &[DeviceId],
        (out_of_memory, grew_late): (bool, bool),
        measured: Measurement,
    ) {
        let Some(task) = self.tasks.get(&end.task) else {
            return;
        };
        let device = devices.first();
        let device = device.and_then(|on| self.devices.get(on.0 as usize));
        let (Some(need), Some(device)) = (&task.need, device) else {
            return;
        };
        let origin = match end.outcome {
            _ if out_of_memory && grew_late => PeakOrigin::GrewLate,
            _ if out_of_memory => PeakOrigin::OutOfMemory,
            Outcome::Succeeded if end.attempt == 0 || task.vram() == VramUse::Measured => {
                PeakOrigin::Probe
            }
            Outcome::Succeeded if grew_late => PeakOrigin::GrewLate,
            Outcome::Succeeded => PeakOrigin::Run,
            // It may have ended before it needed most.
            _ => return,
        };
        let peak = LearnedPeak {
            at: self.now.wall,
            peak: measured.peak,
            // It cannot have held more than there is.
            error: measured.error.min(Bytes(device.memory.0.saturating_sub(measured.peak.0))),
            duration: (end.outcome.is_success() && origin != PeakOrigin::Probe).then_some(end.took),
            origin,
        };
        let (kind, model) = (need.kind.clone(), Arc::clone(&device.model));
        let signature = Arc::clone(self.needs.remembered_as(&kind));
        self.record(Record::Peak(Box::new(NewPeak {
            task: end.task,
            attempt: end.attempt,
            signature: Arc::clone(&signature),
            model: Arc::clone(&model),
            learned: peak,
        })));
        self.learn(&kind, &signature, &model, peak);
    }
}
