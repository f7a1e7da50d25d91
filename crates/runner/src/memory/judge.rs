//! What brought an attempt's end about: itself, too little memory, somebody else,
//! or the device.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use packhorse_core::EndCause;
use packhorse_hands::{self as hands, Ended};
use packhorse_model::{Bytes, DeviceId, Outcome, TaskId};
use packhorse_store::{Peak, Record, Sample, UnixMicros, Whence};

use super::track::{Seen, Track};
use super::watching::Watching;
use crate::run::Run;
use crate::{Appetite, Event, Phase};

/// How long an end waits for a look at the devices.
const PATIENCE: Duration = Duration::from_secs(2);

/// An attempt that failed, and whose devices are looked at before anything is
/// made of it.
#[derive(Debug)]
pub(crate) struct Pending {
    ended: Ended,
    since: Instant,
}

/// What is made of an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) cause: Option<EndCause>,
    /// In words, for people.
    pub(crate) note: Option<String>,
    /// What it was seen to hold at most.
    pub(crate) peak: Option<Bytes>,
}

impl Run<'_> {
    /// An attempt is over. If it failed, its devices are looked at first.
    pub(crate) fn attempt_over(&mut self, ended: Ended) {
        let is_tracked = |watching: &Watching| watching.tracks.contains_key(&ended.task.number);
        if self.watching.as_ref().is_some_and(is_tracked) {
            // What was seen of it while it ran, and has not been read yet.
            self.devices_seen();
        }
        let failed = matches!(
            ended.outcome,
            Outcome::Failed { .. } | Outcome::Killed { .. }
        );
        let on_devices = self
            .tasks
            .get(&ended.task.number)
            .is_some_and(|known| !known.devices.is_empty());
        match &mut self.watching {
            Some(watching) if failed && on_devices => {
                watching.look();
                watching.pending.push(Pending {
                    ended,
                    since: Instant::now(),
                });
            }
            _ => self.judge(ended),
        }
    }

    /// The ends that wait for a look at the devices, which there will not be.
    pub(crate) fn take_pending(&mut self) -> Vec<Ended> {
        let pending = self
            .watching
            .as_mut()
            .map(|all| std::mem::take(&mut all.pending));
        let pending = pending.unwrap_or_default().into_iter();
        pending.map(|pending| pending.ended).collect()
    }

    /// Ends an attempt again whose device was taken out while it was started.
    pub(crate) fn mind_drained(&mut self, task: TaskId) {
        let (Some(watching), Some(known)) = (&self.watching, self.tasks.get_mut(&task.number))
        else {
            return;
        };
        if known
            .devices
            .iter()
            .any(|&device| watching.is_drained(device))
        {
            known.uprooted = true;
            self.hands.stop(task, hands::Stop::Terminate);
        }
    }

    /// Whether ends wait for a look at the devices.
    pub(crate) fn has_pending(&self) -> bool {
        let watching = self.watching.as_ref();
        watching.is_some_and(|watching| !watching.pending.is_empty())
    }

    /// When those that wait for a look have waited long enough.
    pub(crate) fn pending_until(&self) -> Option<Instant> {
        let pending = self.watching.as_ref()?.pending.first()?;
        Some(pending.since + PATIENCE)
    }

    /// Judges the ends whose devices were looked at since, and those that have
    /// waited too long.
    pub(crate) fn judge_pending(&mut self) {
        let Some(watching) = &mut self.watching else {
            return;
        };
        let pending = std::mem::take(&mut watching.pending);
        let (ripe, rest): (Vec<_>, Vec<_>) = pending.into_iter().partition(|pending| {
            let known = self.tasks.get(&pending.ended.task.number);
            let devices = known.map_or(&[][..], |known| &known.devices);
            watching.has_seen(devices, pending.since) || pending.since.elapsed() >= PATIENCE
        });
        watching.pending = rest;
        for pending in ripe {
            self.judge(pending.ended);
        }
    }

    fn judge(&mut self, mut ended: Ended) {
        let (devices, uprooted) =
            self.tasks
                .get_mut(&ended.task.number)
                .map_or((Vec::new(), false), |known| {
                    let uprooted = std::mem::take(&mut known.uprooted);
                    (std::mem::take(&mut known.devices), uprooted)
                });
        if uprooted && ended.outcome == Outcome::Interrupted && self.phase == Phase::Running {
            // It was not the person who ended it.
            ended.outcome = Outcome::Killed { signal: 15 };
        }
        let judgement = self.judgement(&ended, &devices, uprooted);
        self.attempt_ended(&ended, &judgement);
        if ended.attempt == 0 {
            self.probe_over(ended.task.number);
        }
    }

    fn judgement(&mut self, ended: &Ended, devices: &[DeviceId], uprooted: bool) -> Judgement {
        let blame = self.blame(ended, devices, uprooted);
        let track = self.untrack(ended);
        let seen = track.as_ref().and_then(Track::seen);
        if let Some(seen) = seen {
            self.tell(Event::Measured {
                task: ended.task,
                attempt: ended.attempt,
                seen,
            });
        }
        let mut judgement = Judgement {
            peak: seen.map(|seen| seen.peak),
            ..Judgement::default()
        };
        if let Some((cause, note)) = blame {
            judgement.cause = Some(cause);
            judgement.note = Some(note);
        }
        if matches!(judgement.cause, Some(EndCause::OutOfMemory { .. })) {
            // From here on the ladder says what it gets.
            self.forget_wish(ended.task.number);
        }
        self.teach(ended, devices, &judgement, seen);
        judgement
    }

    /// Who or what is to blame for a failure, if it is not the task alone.
    fn blame(
        &self,
        ended: &Ended,
        devices: &[DeviceId],
        uprooted: bool,
    ) -> Option<(EndCause, String)> {
        if uprooted && !ended.outcome.is_success() {
            return Some((
                EndCause::Collateral,
                "its GPU was taken out while it ran".to_owned(),
            ));
        }
        let failed = matches!(
            ended.outcome,
            Outcome::Failed { .. } | Outcome::Killed { .. }
        );
        if !failed || devices.is_empty() {
            return None;
        }
        let watching = self.watching.as_ref()?;
        if let Some(&device) = devices.iter().find(|&&device| watching.is_drained(device)) {
            let note = format!("{} failed while it ran", self.devices.label(device));
            return Some((EndCause::Collateral, note));
        }
        if let Some(judgement) = self.server_died(ended, devices) {
            return Some(judgement);
        }
        self.out_of_memory(ended, devices)
    }

    /// Where an attempt's output is, if it wrote any.
    pub(crate) fn log_of(&self, ended: &Ended) -> PathBuf {
        hands::log_path(&self.logs, ended.task, ended.attempt)
    }

    fn out_of_memory(&self, ended: &Ended, devices: &[DeviceId]) -> Option<(EndCause, String)> {
        let watching = self.watching.as_ref()?;
        let track = watching.tracks.get(&ended.task.number);
        let log = (self.settings.output != hands::Output::Inherit).then(|| self.log_of(ended));
        let sign = self
            .settings
            .sharing
            .signs
            .find(ended.outcome, log.as_deref());
        let sign = sign.or_else(|| {
            // Some die without a word. If the device had no room left for as much
            // as the task took last, that is why.
            let cramped = track.is_some_and(Track::was_cramped);
            cramped.then(|| "its GPU had no memory left".to_owned())
        })?;
        let seen = track.and_then(Track::seen);
        let peak = seen.map_or(Bytes(0), |seen| seen.peak);
        let within = track.is_some_and(|track| {
            track.outgrew(None).is_none() && track.places.iter().all(|place| place.promised.0 > 0)
        });
        if within && let Some((other, device)) = self.culprit(ended.task, devices) {
            let note = format!(
                "out of GPU memory ({sign}), because {other} outgrew what it was promised on {}",
                self.devices.label(device)
            );
            return Some((EndCause::Collateral, note));
        }
        if within && let Some((device, held)) = self.crowded(devices) {
            let note = format!(
                "out of GPU memory ({sign}), because others hold {held} on {}",
                self.devices.label(device)
            );
            return Some((EndCause::Collateral, note));
        }
        let mut note = format!("out of GPU memory ({sign})");
        if let Some(track) = track {
            let promised = track.places.iter().map(|place| place.promised).max();
            if let Some(promised) = promised.filter(|promised| promised.0 > 0) {
                note = format!("{note}, seen at {peak} of {promised}");
            }
        }
        Some((EndCause::OutOfMemory { peak }, note))
    }

    /// A neighbour that holds more than it was promised on one of these devices.
    fn culprit(&self, victim: TaskId, devices: &[DeviceId]) -> Option<(TaskId, DeviceId)> {
        let watching = self.watching.as_ref()?;
        let mut others = watching.tracks.iter();
        others.find_map(|(&number, track)| {
            let place = devices
                .iter()
                .find_map(|&device| track.outgrew(Some(device)))?;
            (number != victim.number).then_some((TaskId::new(self.id, number), place.device))
        })
    }

    /// One of these devices on which others hold more than our promises leave, and
    /// how much.
    fn crowded(&self, devices: &[DeviceId]) -> Option<(DeviceId, Bytes)> {
        let loads = self.state.devices();
        let mut loads = loads.filter(|load| devices.contains(&load.device));
        loads.find_map(|load| {
            let told = self.neighbours.told.get(load.device.0 as usize)?;
            let left = load.memory.0.saturating_sub(load.promised.0);
            // A desktop's few windows are no crowd.
            let crowd = told.memory.0 > left.max(load.memory.0 / 20);
            crowd.then_some((load.device, told.memory))
        })
    }

    /// Remembers what an attempt was seen to need.
    fn teach(
        &mut self,
        ended: &Ended,
        devices: &[DeviceId],
        judgement: &Judgement,
        seen: Option<Seen>,
    ) {
        let (Some(seen), Some(known)) = (seen, self.tasks.get(&ended.task.number)) else {
            return;
        };
        let Some(wants) = &known.wants else {
            return;
        };
        let out_of_memory = matches!(judgement.cause, Some(EndCause::OutOfMemory { .. }));
        let whence = match ended.outcome {
            _ if out_of_memory => Whence::OutOfMemory,
            Outcome::Succeeded if ended.attempt == 0 || known.appetite == Appetite::Measured => {
                Whence::Probe
            }
            Outcome::Succeeded => Whence::Run,
            // It may have ended before it needed most.
            _ => return,
        };
        let sample = Sample {
            at: UnixMicros::now(),
            peak: seen.peak,
            error: seen.error,
            duration: (whence == Whence::Run).then_some(ended.took),
            whence,
        };
        let signature = std::sync::Arc::clone(&wants.signature);
        let Some(model) = devices.first().map(|&device| self.devices.model(device)) else {
            return;
        };
        self.store.send(Record::Peak(Box::new(Peak {
            task: ended.task.number,
            attempt: ended.attempt,
            signature: std::sync::Arc::clone(&signature),
            model: std::sync::Arc::clone(&model),
            sample,
        })));
        self.learn(&signature, &model, sample);
    }
}
