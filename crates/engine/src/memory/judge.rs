//! What brought an attempt's end about: itself, too little memory, somebody else, or the
//! device.

use std::sync::Arc;
use std::time::Duration;

use packhorse_core::EndCause;
use packhorse_model::{
    AttemptEnd, Bytes, DeviceId, EventKind, LearnedPeak, Measurement, NewPeak, Outcome, PeakOrigin,
    Record, TaskId,
};

use super::needs::VramUse;
use super::oom::{OomSign, tells_another_error};
use super::rest::with_margin;
use super::track::{PromiseState, Track};
use crate::action::{Action, LogTail};
use crate::engine::Engine;
use crate::run::Run;
use crate::task::Eviction;

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
struct ReadLog {
    tail: Option<Vec<u8>>,
    mps_failed: bool,
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

fn has_failed(outcome: Outcome) -> bool {
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
        let holds = teaches || evicted.is_some();
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
        let measured = track.and_then(|track| track.measurement(id));
        let by_growth = measured.is_some_and(|measured| measured.by_growth);
        if out_of_memory {
            // From here on the ladder says what it gets.
            self.forget_need(id);
        }
        if let Some(measured) = measured {
            self.tell(EventKind::Measured(measured));
            self.teach(&end, &devices, (out_of_memory, grew_late), measured);
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
        if let Some(Eviction::Crowded { grown, device, .. }) = evicted {
            let track = self.monitor.tracks.get(&grown);
            if track.is_some_and(|track| track.is_claiming() && track.on(device).is_some()) {
                // What it was moved away for, before anybody else has it.
                self.promise(grown, device, Bytes(u64::MAX));
            }
            if let Some(measured) = measured {
                // With less than it held it need not try again.
                self.kind_needs(id, with_margin(measured.peak), Duration::ZERO);
            }
            let task = self.tasks.get(&id);
            if let Some(need) = task.and_then(|task| task.need.as_ref()) {
                self.revise_waiting(&Arc::clone(&need.kind.signature));
            }
        }
        if holds {
            self.unhold();
        }
    }

    /// Who or what is to blame for a failure, if it is not the task alone.
    fn blame(
        &mut self,
        end: &AttemptEnd,
        devices: &[DeviceId],
        evicted: Option<Eviction>,
        log: &ReadLog,
    ) -> Option<(EndCause, String)> {
        if let Some(evicted) = evicted.filter(|_| !end.outcome.is_success()) {
            let note = match evicted {
                Eviction::DeviceLost => "its GPU was taken out while it ran".to_owned(),
                Eviction::Crowded { grown, device, held } => {
                    let who = if grown == end.task { "it".to_owned() } else { grown.to_string() };
                    let name = self.device_name(device);
                    format!(
                        "moved away, because {who} grew to {held} on {name} after its memory had rested"
                    )
                }
            };
            return Some((EndCause::Collateral, note));
        }
        if !has_failed(end.outcome) || devices.is_empty() || !self.monitor.is_watching() {
            return None;
        }
        let mut on = devices.iter();
        if let Some(&device) = on.find(|&&device| self.monitor.is_drained(device)) {
            let note = format!("{} failed while it ran", self.device_name(device));
            return Some((EndCause::Collateral, note));
        }
        if log.mps_failed
            && let Some(blame) = self.server_died(end, devices)
        {
            return Some(blame);
        }
        self.out_of_memory(end, devices, log.tail.as_deref())
    }

    fn out_of_memory(
        &self,
        end: &AttemptEnd,
        devices: &[DeviceId],
        written: Option<&[u8]>,
    ) -> Option<(EndCause, String)> {
        let track = self.monitor.tracks.get(&end.task);
        let cramped = track.is_some_and(Track::was_cramped);
        let found = self.oom_signs.find(end.outcome, written, cramped);
        let found = found.or_else(|| {
            // Some die without a word. If the device had no room left for as much as the
            // task took last, that is why.
            let is_silent =
                written.is_none_or(|written| !tells_another_error(end.outcome, written));
            let is_why = cramped && is_silent;
            is_why.then(|| OomSign::unwritten("its GPU had no memory left".to_owned()))
        });
        let Some(found) = found else {
            let error = written.and_then(|written| self.oom_signs.caught(written))?;
            let note = format!(
                "{}; its last error is `{error}` (it had caught one of GPU memory before)",
                end.outcome
            );
            return Some((EndCause::Own, note));
        };
        let sign = &found.what;
        let peak = track.and_then(Track::peak).unwrap_or_default();
        let within = track.is_some_and(|track| {
            let is_promised = track.devices.iter().all(|on| on.promised.0 > 0);
            // What the device grew by may have been somebody else's doing.
            is_promised && (track.outgrew(None).is_none() || track.is_by_growth())
        });
        if within && let Some((other, device)) = self.culprit(end.task, devices) {
            let note = format!(
                "out of GPU memory ({sign}), because {other} outgrew what it was promised on {}",
                self.device_name(device)
            );
            return Some((EndCause::Collateral, note));
        }
        if within && let Some((device, held)) = self.taken_by_others(end.task, devices) {
            let note = format!(
                "out of GPU memory ({sign}), because others hold {held} on {}",
                self.device_name(device)
            );
            return Some((EndCause::Collateral, note));
        }
        let mut note = format!("out of GPU memory ({sign})");
        let promised = track.and_then(|track| track.devices.iter().map(|on| on.promised).max());
        if let Some(promised) = promised.filter(|promised| promised.0 > 0) {
            note = format!("{note}, seen at {peak} of {promised}");
        }
        if let Some(asked) = found.asked {
            note = format!("{note}, when it asked for {asked} more");
        }
        if let Some(error) = found.later_error {
            note = format!("{note}; later it wrote `{error}`");
        }
        // It needs at least what it had and what it could not get.
        let asked = found.asked.unwrap_or_default();
        let mut peak = Bytes(peak.0.saturating_add(asked.0));
        if let Some(all) = track.and_then(|track| self.filled_alone(end.task, track, asked)) {
            // The same again would come to the same.
            note = format!("{note}, with a GPU to itself");
            peak = peak.max(Bytes(all.0.saturating_add(1)));
        } else {
            // All of it may be enough: some of what it had may have been given back.
            let memory = devices.iter().filter_map(|it| self.devices.get(it.0 as usize));
            let memory = memory.map(|info| info.memory).filter(|all| all.0 > 0);
            peak = memory.min().map_or(peak, |all| peak.min(all));
        }
        Some((EndCause::OutOfMemory { peak }, note))
    }

    /// The memory of a device that had none left for what a task asked for, though hardly
    /// anybody else was on it. A limit of MPS ends a task before that.
    fn filled_alone(&self, task: TaskId, track: &Track, asked: Bytes) -> Option<Bytes> {
        if self.mps.is_used() {
            return None;
        }
        track.devices.iter().find_map(|on| {
            let index = on.device.0 as usize;
            let (info, unit) = (self.devices.get(index)?, self.monitor.units.get(index)?);
            let (held, surroundings) = on.last?;
            let (all, free) = (info.memory, surroundings.free?);
            let little = all.0 / 20;
            let others = all.0.saturating_sub(held.0.saturating_add(free.0));
            let is_full = free.0 < asked.0.max(little) && others <= little;
            let mut tracks = self.monitor.tracks.iter();
            let shared = tracks.any(|(&other, it)| other != task && it.on(on.device).is_some());
            (is_full && !shared && unit.lingering.is_none()).then_some(all)
        })
    }

    /// A neighbour that holds more than it was promised on one of these devices, or has
    /// grown since the victim came, after its memory had rested; or one that did, and ended
    /// a moment before the victim.
    fn culprit(&self, victim: TaskId, devices: &[DeviceId]) -> Option<(TaskId, DeviceId)> {
        let victims = self.monitor.tracks.get(&victim);
        let since = victims.map(|track| track.since);
        let ended = victims.and_then(|track| track.ended);
        let ended = ended.unwrap_or(self.now.monotonic);
        let past = devices.iter().flat_map(|&device| {
            let unit = self.monitor.units.get(device.0 as usize);
            let grown = unit.into_iter().flat_map(|unit| &unit.grown);
            let grown = grown.filter(|it| since.is_some_and(|since| it.concerns(since, ended)));
            grown.map(move |it| (it.task, device))
        });
        let others = self.monitor.tracks.iter();
        let outgrown = others.filter_map(|(&task, track)| {
            let has_grown = track.grew_late.is_some() && track.grew_late >= since;
            let mut on = devices.iter();
            let on = on.find_map(|&device| {
                let outgrew = track.outgrew(Some(device));
                outgrew.or_else(|| track.on(device).filter(|_| has_grown))
            })?;
            Some((task, on.device))
        });
        let other = |(task, _): &(TaskId, DeviceId)| *task != victim;
        let past = past.filter(other).min();
        outgrown.filter(other).min().or(past)
    }

    /// One of these devices on which others hold more than our promises leave, or did when
    /// the victim was last seen there, and how much.
    fn taken_by_others(&self, victim: TaskId, devices: &[DeviceId]) -> Option<(DeviceId, Bytes)> {
        let track = self.monitor.tracks.get(&victim);
        let loads = self.state.devices();
        let mut loads = loads.filter(|load| devices.contains(&load.device));
        loads.find_map(|load| {
            let told = self.other_runs.told.get(load.device.0 as usize)?;
            let left = load.memory.0.saturating_sub(load.promised.0);
            let seen = track.and_then(|track| track.on(load.device)?.last);
            let seen = seen.map(|(_, surroundings)| surroundings.others);
            let held = told.memory.max(seen.unwrap_or_default());
            // A desktop's few windows do not crowd anybody out.
            let taken_by_others = held.0 > left.max(load.memory.0 / 20);
            // What they were promised may be more than there is.
            taken_by_others.then_some((load.device, held.min(load.memory)))
        })
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
            error: measured.error,
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
