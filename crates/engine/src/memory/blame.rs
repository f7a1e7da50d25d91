//! What brought a failure about: the attempt itself, too little memory, a neighbour, processes
//! of others, or the device.

use std::sync::Arc;
use std::time::Duration;

use packhorse_core::EndCause;
use packhorse_model::{AttemptEnd, Bytes, DeviceId, TaskId};

use super::evidence::{DriverEvent, Headroom, LastLook, Verdict, weigh};
use super::judge::{ReadLog, has_failed};
use super::oom::OomSign;
use super::rest::with_margin;
use super::track::{AFTERMATH, NOISE_FLOOR, Track};
use crate::engine::Engine;
use crate::task::Eviction;

/// A task that took memory of a device which others were promised.
struct Culprit {
    task: TaskId,
    device: DeviceId,
    /// The most it was seen to hold there.
    peak: Bytes,
    kind: Option<Arc<str>>,
}

impl Engine {
    /// Who or what is to blame for a failure, if it is not the task alone.
    pub(super) fn blame(
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
            let cause = match evicted {
                Eviction::DeviceLost => EndCause::Collateral,
                Eviction::Crowded { .. } => EndCause::Crowded,
            };
            return Some((cause, note));
        }
        if !has_failed(end.outcome) || devices.is_empty() || !self.monitor.is_watching() {
            return None;
        }
        let mut on = devices.iter();
        let failed = on.find(|&&device| self.monitor.is_drained(device)).copied();
        if failed.is_none()
            && log.mps_failed
            && let Some(blame) = self.server_died(end, devices)
        {
            return Some(blame);
        }
        let reading = self.oom_signs.read(end.outcome, log.tail.as_deref());
        let track = self.monitor.tracks.get(&end.task);
        let ended = track.and_then(|track| track.ended).unwrap_or(self.now.monotonic);
        let total = |device: DeviceId| {
            self.devices.get(device.0 as usize).map_or(Bytes(0), |info| info.memory)
        };
        let look = track.and_then(|track| track.fullest(ended, total));
        let since = track.map(|track| track.since).unwrap_or_default();
        let fault = self.program_fault(devices, since, ended);
        let driver = match &fault {
            _ if failed.is_some() => DriverEvent::DeviceFailed,
            Some(_) => DriverEvent::ProgramFault,
            None => DriverEvent::None,
        };
        let headroom = look.map_or(Headroom::Unseen, |(_, headroom)| headroom);
        let failure = || end.message.clone().unwrap_or_else(|| end.outcome.to_string());
        match weigh(reading.words, reading.ending, driver, headroom) {
            Verdict::DeviceFailed => {
                let note = format!("{} failed while it ran", self.device_name(failed?));
                Some((EndCause::Collateral, note))
            }
            Verdict::OutOfMemory => Some(self.out_of_memory(end, devices, &reading.sign?)),
            Verdict::OwnWithFault => {
                let note = format!("{}; the driver reported {}", failure(), fault?);
                Some((EndCause::Own, note))
            }
            Verdict::OwnWhileFull => {
                let (LastLook { device, free, age }, _) = look?;
                let (name, age) = (self.device_name(device), age.as_millis());
                let note =
                    format!("{}; {name} had {free} free when last seen, {age}ms before", failure());
                Some((EndCause::Own, note))
            }
            Verdict::Own => {
                let error = reading.sign?.later_error?;
                let note = format!(
                    "{}; its last error is `{error}` (it had caught one of GPU memory before)",
                    failure()
                );
                Some((EndCause::Own, note))
            }
        }
    }

    /// What the driver reported last of a program on one of these devices, since an attempt
    /// started and not long before it ended.
    fn program_fault(
        &self,
        devices: &[DeviceId],
        since: Duration,
        ended: Duration,
    ) -> Option<String> {
        devices.iter().find_map(|&device| {
            let unit = self.monitor.units.get(device.0 as usize)?;
            let (at, fault) = unit.fault.as_ref()?;
            let is_of_then = *at >= since && *at + AFTERMATH >= ended;
            is_of_then.then(|| format!("{fault} on {}", self.device_name(device)))
        })
    }

    /// An attempt ran out of memory: because of what others took, or by itself.
    fn out_of_memory(
        &mut self,
        end: &AttemptEnd,
        devices: &[DeviceId],
        found: &OomSign,
    ) -> (EndCause, String) {
        let sign = &found.what;
        let track = self.monitor.tracks.get(&end.task);
        let peak = track.and_then(Track::peak).unwrap_or_default();
        let asked = found.asked.unwrap_or_default();
        // It needs at least what it had and what it could not get.
        let needed = Bytes(peak.0.saturating_add(asked.0));
        let entitled = |track: &Track| {
            let entitled = track.devices.iter().map(|on| track.entitled(on));
            entitled.max().unwrap_or_default()
        };
        let entitled = track.map(entitled).unwrap_or_default();
        let within = track.is_some_and(|track| {
            let is_promised = track.devices.iter().all(|on| on.promised.0 > 0);
            let asked_for_more = needed.0 > entitled.0.saturating_add(NOISE_FLOOR);
            // What the device grew by may have been somebody else's doing.
            is_promised && (track.is_by_growth() || !track.outgrew() && !asked_for_more)
        });
        let culprit = self.culprit(end.task, devices);
        let raised = culprit.as_ref().and_then(|it| self.raise_shared_kind(end.task, it, needed));
        let raised = raised.map_or_else(String::new, |raised| {
            format!("; tasks of its kind are promised {raised} from now on")
        });
        if within && let Some(culprit) = culprit {
            let note = format!(
                "out of GPU memory ({sign}), because {} outgrew what it was promised on {}{raised}",
                culprit.task,
                self.device_name(culprit.device)
            );
            return (EndCause::Crowded, note);
        }
        if within && let Some((device, held)) = self.taken_by_others(end.task, devices) {
            let note = format!(
                "out of GPU memory ({sign}), because others hold {held} on {}",
                self.device_name(device)
            );
            return (EndCause::Crowded, note);
        }
        let mut note = format!("out of GPU memory ({sign})");
        if entitled.0 > 0 {
            note = format!("{note}, seen at {peak} of {entitled}");
        }
        if let Some(asked) = found.asked {
            note = format!("{note}, when it asked for {asked} more");
        }
        if let Some(error) = &found.later_error {
            note = format!("{note}; later it wrote `{error}`");
        }
        let track = self.monitor.tracks.get(&end.task);
        let peak =
            if let Some(all) = track.and_then(|track| self.filled_alone(end.task, track, asked)) {
                // The same again would come to the same.
                note = format!("{note}, with a GPU to itself");
                needed.max(Bytes(all.0.saturating_add(1)))
            } else {
                // All of it may be enough: some of what it had may have been given back.
                let memory = devices.iter().filter_map(|it| self.devices.get(it.0 as usize));
                let memory = memory.map(|info| info.memory).filter(|all| all.0 > 0);
                memory.min().map_or(needed, |all| needed.min(all))
            };
        let at_least = self.raised(end.task).unwrap_or_default();
        (EndCause::OutOfMemory { peak, at_least }, note + &raised)
    }

    /// Where a task ran out of memory that another of its kind took, the promise of the whole
    /// kind was wrong. Returns what it is now if it was raised.
    fn raise_shared_kind(
        &mut self,
        victim: TaskId,
        culprit: &Culprit,
        needed: Bytes,
    ) -> Option<Bytes> {
        let kind = self.kind_of_task(victim).filter(|kind| culprit.kind.as_ref() == Some(kind))?;
        let seen = culprit.peak.max(needed);
        let is_known = self.raised(victim).is_some_and(|raised| raised >= seen);
        if is_known {
            return None;
        }
        let needed = with_margin(seen);
        self.raise_kind(&kind, needed);
        Some(needed)
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

    /// A neighbour that was seen on one of these devices, since the victim came, with more
    /// than it was promised then. What it held before was known when the victim was placed.
    fn culprit(&self, victim: TaskId, devices: &[DeviceId]) -> Option<Culprit> {
        let track = self.monitor.tracks.get(&victim)?;
        let since = track.since;
        let ended = track.ended.unwrap_or(self.now.monotonic);
        let others = self.monitor.tracks.iter().filter(|(task, _)| **task != victim);
        let alive = others.filter_map(|(&task, track)| {
            let mut on = devices.iter().filter_map(|&device| track.on(device));
            let on = on.find(|on| on.overran.is_some_and(|at| at >= since))?;
            Some((task, on.device, on.peak))
        });
        if let Some((task, device, peak)) = alive.min() {
            return Some(Culprit { task, device, peak, kind: self.kind_of_task(task) });
        }
        let past = devices.iter().flat_map(|&device| {
            let unit = self.monitor.units.get(device.0 as usize);
            let grown = unit.into_iter().flat_map(|unit| &unit.grown);
            let grown = grown.filter(|it| it.task != victim && it.concerns(since, ended));
            grown.map(move |it| (it, device))
        });
        let (it, device) = past.min_by_key(|(it, device)| (it.task, *device))?;
        Some(Culprit { task: it.task, device, peak: it.peak, kind: it.kind.clone() })
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
}
