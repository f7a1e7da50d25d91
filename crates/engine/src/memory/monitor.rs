//! Looking at the devices while tasks run on them, and while tasks wait for somebody else
//! to leave them.

use std::time::Duration;

use packhorse_core::{Outside, SchedulerEvent};
use packhorse_model::{Bytes, DeviceId, MemoryRequest, Placement, TaskId};
use rustc_hash::FxHashMap;

use super::attribution::{Attribution, attribute};
use super::awake::Awake;
use super::choice::CHOICE;
use super::health::lost;
use super::judge::PendingEnd;
use super::lingering::Lingering;
use super::pace::Pace;
use super::tenant::Tenancy;
use super::track::{NOISE_FLOOR, PastGrowth, Surroundings, Track};
use crate::action::Action;
use crate::engine::{Engine, UseLimit};
use crate::input::DeviceView;

/// How long a look at a device keeps tasks from the others as well.
const SLOW: Duration = Duration::from_secs(2);
/// An older look is no ground to place a task on.
pub(crate) const FRESH: Duration = Duration::from_millis(2500);

/// How many that took too much of a device are remembered after their end.
const MOST_GROWN: usize = 16;

/// What is seen of the devices.
#[derive(Default)]
pub(crate) struct Monitor {
    /// How long a driver may take to answer before its devices count as lost.
    silence: Duration,
    /// How long the memory of a task of an unknown kind has to rest before others may have
    /// what it does not hold.
    pub(super) rest: Duration,
    pace: Pace,
    /// Whether samples are taken while tasks run.
    counting: bool,
    /// The attempts whose memory is followed.
    pub(crate) tracks: FxHashMap<TaskId, Track>,
    pub(super) units: Vec<UnitState>,
    /// Ends that wait for a look at the devices.
    pub(crate) pending: Vec<PendingEnd>,
    /// Since when the scheduler waits for a look, to choose one of several devices.
    pub(super) choosing: Option<Duration>,
    awake: Awake,
    /// When the next look is due, if one is needed.
    due: Option<Duration>,
}

/// One device, or group, as it was last seen.
#[derive(Debug, Default)]
pub(super) struct UnitState {
    /// What each of its devices is taken by.
    pub(super) attributions: Vec<Attribution>,
    free: Option<Bytes>,
    /// When it was last looked at.
    pub(super) sampled: Option<Duration>,
    pub(super) drained: bool,
    /// Since when a sample was asked for and has not come.
    pub(super) unanswered: Option<Duration>,
    /// Since when a look at it is waited for. What others hold there is not known
    /// meanwhile, so nothing that asks for memory is placed there.
    pub(super) awaited: Option<Duration>,
    /// It takes so long that the others do not wait for it.
    slow: bool,
    /// Memory that should be gone.
    pub(super) lingering: Option<Lingering>,
    pub(super) tenancy: Tenancy,
    /// Tasks that took too much of it, and ended while others were there.
    pub(super) grown: Vec<PastGrowth>,
    /// The last error of a program that the driver reported on it, and when.
    pub(super) fault: Option<(Duration, String)>,
}

impl UnitState {
    /// What strangers hold, on the device on which it is most.
    pub(super) fn strangers(&self) -> Bytes {
        let held = self.attributions.iter().map(|found| found.strangers);
        held.max().unwrap_or_default()
    }

    /// How much of that no living process of theirs is shown for.
    pub(super) fn unclaimed(&self) -> Bytes {
        let held = self.attributions.iter().map(|found| found.unclaimed);
        held.max().unwrap_or_default()
    }

    /// Whether memory there should be gone.
    fn is_awaiting_release(&self) -> bool {
        !self.drained && (self.lingering.is_some() || self.tenancy.is_closing())
    }

    /// Whether what is known of it is of this moment, or nearly so.
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        self.sampled.is_some_and(|at| now.saturating_sub(at) <= FRESH)
    }
}

impl Monitor {
    pub(crate) fn new(units: usize, silence: Duration, rest: Duration) -> Self {
        Self {
            silence,
            rest,
            units: (0..units).map(|_| UnitState::default()).collect(),
            ..Self::default()
        }
    }

    /// Whether there is anything to look at: a driver that knows the devices.
    pub(crate) fn is_watching(&self) -> bool {
        !self.units.is_empty()
    }

    /// Wants a sample now.
    pub(crate) fn look(&mut self) {
        self.pace.look_soon();
    }

    /// Whether a device waits for the memory of its last task to be gone.
    pub(crate) fn is_closing(&self, index: usize) -> bool {
        let unit = self.units.get(index);
        unit.is_some_and(|unit| unit.tenancy.is_closing())
    }

    /// Whether memory of a device should be gone, and may not be.
    pub(crate) fn is_awaiting_release(&self, index: usize) -> bool {
        let unit = self.units.get(index);
        unit.is_some_and(UnitState::is_awaiting_release)
    }

    /// Whether the device was found to be broken.
    pub(crate) fn is_drained(&self, device: DeviceId) -> bool {
        let unit = self.units.get(device.0 as usize);
        unit.is_some_and(|unit| unit.drained)
    }

    /// Whether a look at any device is waited for before anything is placed: which one is
    /// best is known when all of them are.
    fn is_awaiting(&self) -> bool {
        let mut units = self.units.iter().filter(|unit| !unit.drained);
        units.any(|unit| unit.awaited.is_some() && !unit.slow)
    }

    /// Whether what others hold on a device is not known at the moment: all of its memory
    /// counts as theirs.
    pub(super) fn is_unseen(&self, index: usize) -> bool {
        let unit = self.units.get(index);
        unit.is_some_and(|unit| unit.awaited.is_some() || self.is_awaiting())
    }

    /// Whether all of these were looked at since then, or will not be.
    pub(super) fn has_seen(&self, devices: &[DeviceId], since: Duration) -> bool {
        devices.iter().all(|device| {
            let unit = self.units.get(device.0 as usize);
            unit.is_none_or(|unit| unit.drained || unit.sampled >= Some(since))
        })
    }

    /// Whether anybody's memory is counted.
    pub(super) const fn is_counting(&self) -> bool {
        self.counting
    }

    /// Takes note that a sample of every device is asked for.
    pub(super) fn ask(&mut self, now: Duration) {
        self.pace.asked(now);
        for unit in &mut self.units {
            unit.unanswered.get_or_insert(now);
        }
    }

    /// When something is to be done though nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let pending = self.pending.iter().filter_map(PendingEnd::until);
        pending.chain(self.due).min()
    }
}

impl Engine {
    /// From now on memory counts: some task asks for an amount of it. What others hold now
    /// must be known before it is placed: devices that were not looked at lately count as
    /// full until they are.
    pub(crate) fn count_memory(&mut self) {
        let now = self.now.monotonic;
        if !self.monitor.is_watching() {
            return;
        }
        let begins = !std::mem::replace(&mut self.monitor.counting, true);
        if begins {
            // Before the look, which is to see them.
            self.track_running();
        }
        let mut stale = false;
        for unit in &mut self.monitor.units {
            // What attempts hold that nobody followed so far has to be seen, too.
            let is_known = !begins && unit.is_fresh(now);
            if !unit.drained && unit.awaited.is_none() && !is_known {
                unit.awaited = Some(now);
                stale = true;
            }
        }
        if stale {
            self.monitor.ask(now);
            self.act(Action::Sample);
            // Whose processes are other runs' is known only of runs that are known.
            if self.other_runs.enabled {
                self.act(Action::RefreshOtherRuns);
            }
            self.tell_all_outside();
        }
    }

    /// Tells the scheduler anew of all devices what others hold, before it places anything
    /// on any of them.
    pub(crate) fn tell_all_outside(&mut self) {
        self.hold();
        for index in 0..self.devices.len() {
            self.tell_outside(index);
        }
        self.unhold();
    }

    /// Follows those that started before anybody counted.
    fn track_running(&mut self) {
        let now = self.now.monotonic;
        for running in self.state.running() {
            let task = self.tasks.get(&running.task);
            if let Some(attempt) = task.and_then(|task| task.attempt.as_ref())
                && !running.placement.devices.is_empty()
            {
                let track =
                    Track::new(attempt.number, &running.placement, MemoryRequest::Uncounted, now);
                self.monitor.tracks.insert(running.task, track);
            }
        }
    }

    /// Follows an attempt's memory, if anybody counts it.
    pub(crate) fn track(&mut self, task: TaskId, attempt: u32, placement: &Placement) {
        if self.monitor.counting && !placement.devices.is_empty() {
            let request = self.state.running_request(task);
            let memory = request.map(|request| request.memory).unwrap_or_default();
            let track = Track::new(attempt, placement, memory, self.now.monotonic);
            self.monitor.tracks.insert(task, track);
            self.monitor.look();
        } else {
            self.look_at_tenancy(placement);
        }
    }

    /// Asks for a sample if one is due, and sees whether the driver still answers.
    pub(crate) fn look_around(&mut self) {
        let now = self.now.monotonic;
        let waits = self.has_waiting();
        if self.monitor.choosing.is_some_and(|since| since + CHOICE <= now) {
            self.end_choice();
        }
        let monitor = &mut self.monitor;
        let told = self.other_runs.told.iter().zip(&monitor.units);
        let mut told = told.filter(|(_, unit)| !unit.drained);
        let others = told.any(|(told, _)| told.memory.0 > 0);
        let lingers = monitor.units.iter().any(UnitState::is_awaiting_release);
        let awaited = monitor.units.iter().any(|unit| unit.awaited.is_some());
        let choice_over = monitor.choosing.map(|since| since + CHOICE);
        // A device that one process at a time may use is free when a stranger has left it.
        let told = self.other_runs.told.iter().zip(&self.devices);
        let mut occupied = told.filter(|(told, _)| told.has_strangers);
        let occupied = occupied.any(|(_, device)| device.use_limit == UseLimit::OneProcess);
        let needed = !monitor.pending.is_empty()
            || (waits && occupied && !monitor.units.is_empty())
            || lingers
            || choice_over.is_some()
            || monitor.counting
                && (!monitor.tracks.is_empty()
                    || (waits && others)
                    || awaited
                    || monitor.pace.last.is_none());
        monitor.awake.turn(now);
        if !needed {
            monitor.due = None;
            return;
        }
        let mut due = monitor.pace.due(now);
        let asks = due <= now;
        if asks {
            monitor.ask(now);
            due = now + monitor.pace.interval();
        }
        due = choice_over.map_or(due, |over| over.min(due));
        let (mut slow, mut silent) = (Vec::new(), Vec::new());
        let silence = monitor.silence;
        for (index, unit) in monitor.units.iter_mut().enumerate() {
            if unit.drained {
                continue;
            }
            let awaited = unit.awaited.filter(|_| !unit.slow);
            match awaited.map(|since| since + SLOW) {
                Some(end) if end <= now => {
                    unit.slow = true;
                    slow.push(index);
                }
                end => due = end.map_or(due, |end| end.min(due)),
            }
            let since = unit.unanswered.map(|since| monitor.awake.asked(since));
            match since.map(|since| since + silence) {
                Some(end) if end <= now => silent.push(index),
                end => due = end.map_or(due, |end| end.min(due)),
            }
        }
        monitor.due = Some(due);
        monitor.awake.sleep_until(due);
        if asks {
            self.act(Action::Sample);
        }
        for &index in &slow {
            let name = self.device_name(device_id(index));
            let message = format!(
                "{name} takes long to look at; nothing that asks for memory is started there meanwhile"
            );
            self.warn(None, message);
        }
        if !slow.is_empty() {
            self.tell_all_outside();
        }
        for index in silent {
            let reason = format!("the driver has not answered for {silence:?}");
            self.drain_device(index, &reason, &[]);
        }
    }

    /// Takes note of how a device or group is.
    pub(crate) fn sampled(&mut self, view: &DeviceView) {
        if view.device >= self.monitor.units.len() {
            return;
        }
        let grew = match lost(view) {
            Some((members, reason)) => {
                self.drain_device(view.device, &reason, &members);
                false
            }
            None => self.count(view),
        };
        let now = self.now.monotonic;
        let monitor = &mut self.monitor;
        let ages = monitor.tracks.values();
        let youngest = ages.map(|track| now.saturating_sub(track.since)).min();
        let lingers = monitor.units.iter().any(UnitState::is_awaiting_release);
        monitor.pace.sampled(view.at, grew || lingers, youngest);
        let unit = &mut monitor.units[view.device];
        unit.sampled = Some(view.at);
        unit.unanswered = unit.unanswered.filter(|&since| since > view.at);
        self.end_choice_if_seen();
    }

    /// Works out who holds what; whether anything of ours grew.
    fn count(&mut self, view: &DeviceView) -> bool {
        let monitor = &mut self.monitor;
        let index = view.device;
        let device = device_id(index);
        let on_it = monitor.tracks.values().filter_map(|track| track.on(device));
        let promised: u64 = on_it.map(|on| on.promised.0).sum();
        let members = view.members.iter();
        let has_ours = self.state.attempts_on(device) > 0;
        let found = members.map(|member| attribute(member, Bytes(promised), has_ours));
        let free = view.members.iter().filter_map(|member| member.memory);
        let unit = &mut monitor.units[index];
        unit.attributions = found.collect();
        unit.free = free.map(|(_, free)| free).min();
        let awaited = unit.awaited.is_some_and(|since| since <= view.at);
        if awaited {
            (unit.awaited, unit.slow) = (None, false);
        }
        let awaited = awaited && !monitor.is_awaiting();
        self.attribute_growth(view);
        let claimed = self.is_claimed(device);
        if claimed {
            self.hold();
        }
        let grew = self.tell_observed(device, view);
        if awaited {
            self.tell_all_outside();
        } else {
            self.tell_outside(index);
        }
        self.update_lingering(view);
        self.update_tenancy(view);
        self.update_promises(index, view.at);
        if claimed {
            self.unhold();
        }
        grew
    }

    /// Tells the scheduler what our attempts were seen to hold on a device.
    fn tell_observed(&mut self, device: DeviceId, view: &DeviceView) -> bool {
        let index = view.device;
        let busy = view.members.iter().filter_map(|member| member.utilisation);
        let busy = busy.max();
        let others = self.held_by_others(index).memory;
        let monitor = &mut self.monitor;
        let mut grew = false;
        let mut news = Vec::new();
        let unit = &monitor.units[index];
        let surroundings =
            Surroundings { at: view.at, free: unit.free, others, strangers: unit.strangers() };
        for (&task, track) in &mut monitor.tracks {
            // One that has ended stays as it was last seen alive, also while nobody has
            // been told yet.
            if view.ended.contains(&task) {
                continue;
            }
            let Some(on) = track.on(device).filter(|_| track.since <= view.at) else {
                continue;
            };
            let (before, promised) = (on.observed, on.promised);
            // Of a group, the device on which it holds most.
            let found = unit.attributions.iter().flat_map(|found| &found.ours);
            let held = found.filter(|(whose, _)| *whose == task).map(|(_, held)| *held);
            let held = held.max().unwrap_or_default();
            grew |= track.sample(device, held, surroundings);
            track.look(view.at, busy);
            let matters = held.0.max(before.0) > promised.0;
            if matters && held.0.abs_diff(before.0) > NOISE_FLOOR {
                news.push((task, track.attempt, held));
            }
        }
        news.sort_unstable_by_key(|&(task, ..)| task);
        for (task, attempt, memory) in news {
            let attempt = self.scheduler_attempt(task, attempt);
            self.step(SchedulerEvent::Observed { task, attempt, device, memory });
        }
        grew
    }

    /// Tells the scheduler what others hold on a device, if that has changed.
    pub(crate) fn tell_outside(&mut self, index: usize) {
        let seen = self.held_by_others(index);
        let (mut memory, runs, mut drawn) = (seen.memory, seen.runs, seen.drawn);
        let has_strangers = seen.has_strangers;
        let mut unseen = self.monitor.is_unseen(index);
        let device = &self.devices[index];
        if unseen {
            (memory, drawn) = (memory.max(device.memory), Bytes(0));
        }
        let unit = self.monitor.units.get(index);
        let lingering = unit.and_then(|unit| unit.lingering.as_ref());
        let mut held = self.other_runs.held(index, device);
        if let Some(lingering) = lingering {
            memory = memory.max(lingering.counted());
        }
        if self.monitor.is_closing(index) {
            unseen = true;
            held.whole = true;
        }
        let held = Outside { memory, runs, drawn, has_strangers, unseen, ..held };
        let told = &mut self.other_runs.told[index];
        let is_noise = |new: Bytes, old: Bytes| {
            new.0.abs_diff(old.0) <= NOISE_FLOOR && (new.0 == 0) == (old.0 == 0)
        };
        let but_for_memory = Outside { memory, runs, drawn, ..*told };
        let is_noise = is_noise(memory, told.memory)
            && is_noise(runs, told.runs)
            && is_noise(drawn, told.drawn);
        if is_noise && held == but_for_memory {
            return;
        }
        *told = held;
        let device = device_id(index);
        self.step(SchedulerEvent::Outside { device, held });
    }

    /// The memory of a device that others were seen to hold or may still take.
    fn held_by_others(&self, index: usize) -> Outside {
        let keys = &self.devices[index].keys;
        let Some(unit) = self.monitor.units.get(index) else {
            // Nobody can look, so what other runs were promised is all we know.
            let promised = keys.iter().map(|key| self.other_runs.growth(key, &[]));
            let promised = Bytes(promised.max().unwrap_or(0));
            return Outside { memory: promised, runs: promised, ..Outside::default() };
        };
        let members = unit.attributions.iter().enumerate();
        let memory = members.map(|(member, found)| {
            let runs = found.runs.iter().map(|(_, held)| held.0);
            // A driver may show anything.
            let runs = runs.fold(0, u64::saturating_add);
            // What other runs may still take of what they were promised.
            let key = keys.get(member);
            let growth = key.map_or(0, |key| self.other_runs.growth(key, &found.runs));
            let runs = runs.saturating_add(growth);
            (Bytes(found.strangers.0.saturating_add(runs)), Bytes(runs))
        });
        let (memory, runs) = memory.max().unwrap_or_default();
        // Of a group, what is left is as much as on the member where programs hold most.
        let members = unit.attributions.iter();
        let computing = members.map(|found| found.strangers.0.saturating_sub(found.drawn.0)).max();
        let strangers = memory.0.saturating_sub(runs.0);
        Outside {
            memory,
            runs,
            drawn: Bytes(strangers.saturating_sub(computing.unwrap_or(0))),
            has_strangers: unit.attributions.iter().any(|found| found.has_strangers),
            ..Outside::default()
        }
    }

    /// Whether samples of a device should describe its processes: somebody may soon be told
    /// who they are.
    pub fn names_processes(&self, device: usize) -> bool {
        let unit = self.monitor.units.get(device);
        unit.is_some_and(|unit| unit.lingering.is_some() || unit.tenancy.names_processes())
    }

    /// The tasks whose memory is followed on a device.
    pub fn tracked_on(&self, device: usize) -> Vec<TaskId> {
        let device = device_id(device);
        let tracks = self.monitor.tracks.iter();
        let on_it = tracks.filter(|(_, track)| track.on(device).is_some());
        let mut on_it: Vec<TaskId> = on_it.map(|(&task, _)| task).collect();
        on_it.sort_unstable();
        on_it
    }

    /// An attempt is over: its memory is others' until the driver shows it gone.
    pub(super) fn untrack(&mut self, task: TaskId) -> Option<Track> {
        let now = self.now.monotonic;
        let kind = self.kind_of_task(task);
        let monitor = &mut self.monitor;
        let track = monitor.tracks.remove(&task)?;
        let mut touched = Vec::new();
        for on in &track.devices {
            let index = on.device.0 as usize;
            let Some(unit) = monitor.units.get_mut(index) else {
                continue;
            };
            if let Some(grown) = track.past_growth(task, kind.clone(), on.device, now) {
                let others = monitor.tracks.values().filter(|it| it.on(on.device).is_some());
                let first = others.map(|other| other.since).min();
                unit.grown.retain(|it| first.is_some_and(|since| it.ended >= since));
                if unit.grown.len() >= MOST_GROWN {
                    unit.grown.remove(0);
                }
                unit.grown.extend(first.map(|_| grown));
            }
            if let Some((held, surroundings)) = on.last
                && held.0 > NOISE_FLOOR
                && !unit.drained
            {
                let left = Lingering { task, since: now, held, before: surroundings };
                // What is still there of an earlier one comes on top.
                unit.lingering = Some(left.after(unit.lingering.take()));
                touched.push(index);
            }
        }
        monitor.look();
        for index in touched {
            self.tell_outside(index);
        }
        Some(track)
    }
}

/// The scheduler's id of a device by its place.
pub(super) fn device_id(index: usize) -> DeviceId {
    DeviceId(u32::try_from(index).unwrap_or(u32::MAX))
}
