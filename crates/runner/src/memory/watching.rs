//! Looking at the devices while tasks run on them, and while tasks wait for
//! somebody else to leave them.

use std::time::{Duration, Instant};

use packhorse_core::{self as core, Outside};
use packhorse_gpu::{Report, Sample, Watch};
use packhorse_hands::{Ended, ancestry};
use packhorse_model::{Bytes, DeviceId, Placement, TaskId};
use rustc_hash::FxHashMap;

use super::Pending;
use super::awake::Awake;
use super::book::{Account, Owner, account};
use super::health::lost;
use super::lingering::Lingering;
use super::pace::Pace;
use super::track::{CRUMB, Scene, Track};
use crate::Ignored;
use crate::devices::device_id;
use crate::run::{Run, WATCH, system};

/// How long a driver may take to answer before its devices count as lost.
const SILENCE: Duration = Duration::from_secs(15);
/// How long a look at a device keeps tasks from the others as well.
const SLOW: Duration = Duration::from_secs(2);
/// An older look is no ground to place a task on.
const FRESH: Duration = Duration::from_millis(2500);

/// What is seen of the devices.
pub(crate) struct Watching {
    watch: Watch,
    pace: Pace,
    /// Whether samples are taken while tasks run.
    counting: bool,
    /// The attempts whose memory is followed, by the number of their task.
    pub(crate) tracks: FxHashMap<u32, Track>,
    pub(super) units: Vec<Seen>,
    /// Whose processes are whose, as far as it was worked out; by process id.
    owners: FxHashMap<u32, Owner>,
    /// Ends that wait for a look at the devices.
    pub(crate) pending: Vec<Pending>,
    /// When the last sample was asked for.
    asked: Option<Instant>,
    awake: Awake,
}

/// One device, or group, as it was last seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What each of its devices is taken by.
    pub(super) accounts: Vec<Account>,
    free: Option<Bytes>,
    /// When it was last looked at.
    sampled: Option<Instant>,
    pub(super) drained: bool,
    /// Since when a look at it is waited for. What others hold there is not known
    /// meanwhile, so that nothing that asks for memory is placed there.
    awaited: Option<Instant>,
    /// It takes so long that the others do not wait for it.
    slow: bool,
    /// Memory that should be gone.
    pub(super) lingering: Option<Lingering>,
}

impl Seen {
    /// What strangers hold, on the device on which it is most.
    pub(super) fn strangers(&self) -> Bytes {
        let held = self.accounts.iter().map(|account| account.strangers);
        held.max().unwrap_or_default()
    }

    /// Whether what is known of it is of this moment, or nearly so.
    fn is_fresh(&self) -> bool {
        self.sampled.is_some_and(|at| at.elapsed() <= FRESH)
    }
}

impl Watching {
    pub(crate) fn new(watch: Watch, units: usize) -> Self {
        Self {
            watch,
            pace: Pace::default(),
            counting: false,
            tracks: FxHashMap::default(),
            units: (0..units).map(|_| Seen::default()).collect(),
            owners: FxHashMap::default(),
            pending: Vec::new(),
            asked: None,
            awake: Awake::default(),
        }
    }

    /// Asks for a sample now.
    pub(crate) fn look(&mut self) {
        self.pace.hurry();
    }

    /// Whether the device was found to be broken.
    pub(crate) fn is_drained(&self, device: DeviceId) -> bool {
        let seen = self.units.get(device.0 as usize);
        seen.is_some_and(|seen| seen.drained)
    }

    /// Whether a look at any device is waited for before anything is placed: which
    /// one is best is known when all of them are.
    fn is_awaiting(&self) -> bool {
        let mut units = self.units.iter().filter(|seen| !seen.drained);
        units.any(|seen| seen.awaited.is_some() && !seen.slow)
    }

    /// Whether all of these were looked at since then, or will not be.
    pub(crate) fn has_seen(&self, devices: &[DeviceId], since: Instant) -> bool {
        devices.iter().all(|device| {
            let seen = self.units.get(device.0 as usize);
            seen.is_none_or(|seen| seen.drained || seen.sampled >= Some(since))
        })
    }
}

impl Run<'_> {
    /// Listens to what is seen of the devices from now on.
    pub(crate) fn watch_devices(&mut self) -> Result<(), crate::RunError> {
        let Some(driver) = self.settings.sharing.driver.take() else {
            return Ok(());
        };
        let units = &self.settings.places.devices;
        match Watch::start(driver, units) {
            Ok(watch) => {
                use std::os::fd::AsFd as _;
                self.hands
                    .watch(watch.as_fd(), WATCH)
                    .map_err(system("watch the devices"))?;
                self.watching = Some(Watching::new(watch, units.len()));
            }
            Err(error) => self.warn(None, format!("the GPUs cannot be watched: {error}")),
        }
        Ok(())
    }

    /// From now on memory counts: some task asks for an amount of it. What others
    /// hold must be known before it is placed, and not be an old story: devices
    /// that were not looked at lately count as full until they are.
    pub(crate) fn count_memory(&mut self) {
        let Some(watching) = &mut self.watching else {
            return;
        };
        if !std::mem::replace(&mut watching.counting, true) {
            // Before the look, which is to see them.
            self.track_running();
        }
        let Some(watching) = &mut self.watching else {
            return;
        };
        let now = Instant::now();
        let mut stale = Vec::new();
        for (index, seen) in watching.units.iter_mut().enumerate() {
            if !seen.drained && seen.awaited.is_none() && !seen.is_fresh() {
                seen.awaited = Some(now);
                stale.push(index);
            }
        }
        if !stale.is_empty() {
            watching.pace.asked();
            watching.asked = Some(now);
            watching.watch.ask();
            // Whose processes are other runs' is known only of runs that are known.
            self.neighbours_changed();
            self.tell_all_outside();
        }
    }

    /// Tells the core anew of all devices what others hold, before it places
    /// anything on any of them.
    pub(super) fn tell_all_outside(&mut self) {
        let held = self.state.is_held();
        if !held {
            self.step(core::SchedulerEvent::Hold);
        }
        for index in 0..self.settings.places.devices.len() {
            self.tell_outside(index);
        }
        if !held {
            self.step(core::SchedulerEvent::Unhold);
        }
    }

    /// Follows those that started before anybody counted.
    fn track_running(&mut self) {
        let now = Instant::now();
        for running in self.state.running() {
            if running.placement.devices.is_empty() {
                continue;
            }
            let before = self.tasks.get(&running.task.number);
            let before = before.map_or(0, |known| known.before);
            let attempt = match running.attempt {
                0 => 0,
                attempt => attempt + before,
            };
            if let Some(watching) = &mut self.watching {
                let track = Track::new(attempt, &running.placement, now);
                watching.tracks.insert(running.task.number, track);
            }
        }
    }

    /// Follows an attempt's memory, if anybody counts it.
    pub(crate) fn track(&mut self, task: TaskId, attempt: u32, placement: &Placement) {
        if let Some(watching) = &mut self.watching
            && watching.counting
            && !placement.devices.is_empty()
        {
            let track = Track::new(attempt, placement, Instant::now());
            watching.tracks.insert(task.number, track);
            watching.look();
        }
    }

    /// Takes a sample if one is due; when the next one will be.
    pub(crate) fn look_around(&mut self) -> Option<Instant> {
        let waits = self.state.counts().waiting > 0;
        let watching = self.watching.as_mut()?;
        let told = self.neighbours.told.iter().zip(&watching.units);
        let mut told = told.filter(|(_, seen)| !seen.drained);
        let others = told.any(|(told, _)| told.memory.0 > 0);
        let lingers = watching.units.iter().any(|seen| seen.lingering.is_some());
        let needed = !watching.pending.is_empty()
            || watching.counting
                && (!watching.tracks.is_empty()
                    || (waits && others)
                    || lingers
                    || watching.units.iter().any(|seen| seen.awaited.is_some())
                    || watching.asked.is_none());
        let now = Instant::now();
        watching.awake.turn(now);
        if !needed {
            return None;
        }
        let mut due = watching.pace.due(now);
        if due <= now {
            watching.pace.asked();
            watching.watch.ask();
            watching.asked = Some(now);
            due = now + watching.pace.interval();
        }
        watching.awake.sleep_until(due);
        let silent = (0..watching.units.len()).find(|&index| {
            let since = watching.watch.unanswered_since(index);
            let since = since.map(|since| watching.awake.asked(since));
            !watching.units[index].drained && since.is_some_and(|since| since + SILENCE <= now)
        });
        let slow = watching.units.iter_mut().position(|seen| {
            let slow = seen.awaited.is_some_and(|since| since + SLOW <= now);
            slow && !seen.drained && !std::mem::replace(&mut seen.slow, true)
        });
        if let Some(index) = slow {
            let label = self.devices.label(device_id(index));
            let message = format!(
                "{label} takes long to look at; nothing that asks for memory is started there meanwhile"
            );
            self.warn(None, message);
            self.tell_all_outside();
        }
        if let Some(index) = silent {
            let reason = format!("the driver has not answered for {} s", SILENCE.as_secs());
            self.drain(index, &reason, &[]);
        }
        Some(due)
    }

    /// What the watch has found.
    pub(crate) fn devices_seen(&mut self) {
        let Some(watching) = &mut self.watching else {
            return;
        };
        for report in watching.watch.fetch() {
            match report {
                Report::Sample(sample) => self.sampled(&sample),
                Report::Xid { unit, xid } => {
                    if let Some(reason) = xid.hardware() {
                        self.drain(unit, &format!("{xid}: {reason}"), &[]);
                    }
                }
            }
        }
        self.judge_pending();
    }

    /// Takes note of how a device or group is.
    fn sampled(&mut self, sample: &Sample) {
        let grew = match lost(sample) {
            Some((members, reason)) => {
                self.drain(sample.unit, &reason, &members);
                false
            }
            None => self.count(sample),
        };
        if let Some(watching) = &mut self.watching {
            let ages = watching.tracks.values().map(|track| track.since.elapsed());
            let youngest = ages.min();
            let lingers = watching.units.iter().any(|seen| seen.lingering.is_some());
            watching.pace.sampled(sample.at, grew || lingers, youngest);
            // Process ids are used again.
            watching.owners.clear();
            if let Some(seen) = watching.units.get_mut(sample.unit) {
                seen.sampled = Some(sample.at);
            }
        }
    }

    /// Works out who holds what; whether anything of ours grew.
    fn count(&mut self, sample: &Sample) -> bool {
        let Some(mut watching) = self.watching.take() else {
            return false;
        };
        let (index, at) = (sample.unit, sample.at);
        let device = device_id(index);
        let promised: u64 = watching
            .tracks
            .values()
            .flat_map(|track| &track.places)
            .filter(|place| place.device == device)
            .map(|place| place.promised.0)
            .sum();
        let accounts: Vec<Account> = sample
            .members
            .iter()
            .map(|member| {
                account(member, Bytes(promised), |pid| {
                    *watching
                        .owners
                        .entry(pid)
                        .or_insert_with(|| self.owner(pid))
                })
            })
            .collect();
        let memory = sample.members.iter().filter_map(|member| member.memory);
        let seen = &mut watching.units[index];
        seen.free = memory.map(|memory| memory.free).min();
        seen.accounts = accounts;
        let awaited = seen.awaited.is_some_and(|since| since <= at);
        if awaited {
            (seen.awaited, seen.slow) = (None, false);
        }
        let awaited = awaited && !watching.is_awaiting();
        self.watching = Some(watching);
        let busy = sample
            .members
            .iter()
            .filter_map(|member| member.utilisation);
        let busy = busy.max().map(|percent| percent.0);
        let grew = self.tell_observed(device, index, at, busy);
        if awaited {
            self.tell_all_outside();
        } else {
            self.tell_outside(index);
        }
        self.mind_lingering(sample);
        grew
    }

    pub(super) fn owner(&self, pid: u32) -> Owner {
        if let Some(task) = self.hands.owner_of(pid) {
            return Owner::Ours(task);
        }
        if self.settings.sharing.ignored.iter().any(|who| is(who, pid)) {
            return Owner::Ignored;
        }
        let run = ancestry(pid).find(|pid| self.neighbours.is_run(*pid));
        run.map_or(Owner::Stranger, Owner::Run)
    }

    /// Tells the core what our attempts were seen to hold on a device.
    fn tell_observed(
        &mut self,
        device: DeviceId,
        index: usize,
        at: Instant,
        busy: Option<u8>,
    ) -> bool {
        let (others, _) = self.memory_of_others(index);
        let Some(watching) = &mut self.watching else {
            return false;
        };
        let mut grew = false;
        let mut news = Vec::new();
        let unit = &watching.units[index];
        let scene = Scene {
            free: unit.free,
            others,
            strangers: unit.strangers(),
        };
        for (&number, track) in &mut watching.tracks {
            let task = TaskId::new(self.id, number);
            // One that has ended stays as it was last seen alive, also while nobody
            // has been told yet.
            if !self.hands.is_led(task) {
                continue;
            }
            let Some(place) = track.place(device).filter(|_| track.since <= at) else {
                continue;
            };
            let (before, promised) = (place.observed, place.promised);
            // Of a group, the device on which it holds most.
            let accounts = watching.units[index].accounts.iter();
            let held = accounts.flat_map(|account| &account.ours);
            let held = held
                .filter(|(whose, _)| *whose == task)
                .map(|(_, held)| *held);
            let held = held.max().unwrap_or_default();
            grew |= track.sample(device, held, scene);
            track.look(at, busy);
            let matters = held.0.max(before.0) > promised.0;
            if matters && held.0.abs_diff(before.0) > CRUMB {
                news.push((task, track.attempt, held));
            }
        }
        for (task, attempt, memory) in news {
            let attempt = self.core_attempt(task, attempt);
            self.step(core::SchedulerEvent::Observed {
                task,
                attempt,
                device,
                memory,
            });
        }
        grew
    }

    /// Tells the core what others hold on a device, if that has changed.
    pub(crate) fn tell_outside(&mut self, index: usize) {
        if let Some(event) = self.outside_event(index) {
            self.step(event);
        }
    }

    /// What the core is to be told of what others hold on a device, if that has
    /// changed.
    pub(crate) fn outside_event(&mut self, index: usize) -> Option<core::SchedulerEvent> {
        let (memory, runs) = self.memory_outside(index);
        let unseen = self.is_unseen(index);
        let held = Outside {
            memory,
            runs,
            unseen,
            ..self.neighbours.held(index)
        };
        let told = self.neighbours.told.get_mut(index)?;
        let is_crumb =
            |new: Bytes, old: Bytes| new.0.abs_diff(old.0) <= CRUMB && (new.0 == 0) == (old.0 == 0);
        let but_for_memory = Outside {
            memory,
            runs,
            ..*told
        };
        if is_crumb(memory, told.memory) && is_crumb(runs, told.runs) && held == but_for_memory {
            return None;
        }
        *told = held;
        let device = device_id(index);
        Some(core::SchedulerEvent::Outside { device, held })
    }

    /// The memory of a device that counts as others', and how much of it other runs
    /// hold or may still take.
    fn memory_outside(&self, index: usize) -> (Bytes, Bytes) {
        let (mut memory, runs) = self.memory_of_others(index);
        if self.is_unseen(index) {
            let load = self.state.devices().nth(index);
            memory = memory.max(load.map_or(memory, |load| load.memory));
        }
        let seen = self.watching.as_ref().and_then(|all| all.units.get(index));
        let lingering = seen.and_then(|seen| seen.lingering.as_ref());
        let lingering = lingering.map(Lingering::counted);
        (memory.max(lingering.unwrap_or_default()), runs)
    }

    /// The memory of a device that others were seen to hold or may still take, and
    /// how much of it other runs do.
    fn memory_of_others(&self, index: usize) -> (Bytes, Bytes) {
        let watching = self.watching.as_ref();
        let Some(seen) = watching.and_then(|all| all.units.get(index)) else {
            // Nobody can look, so what other runs were promised is all we know.
            let keys = 0..self.devices.keys(index).len();
            let promised = keys.map(|member| self.neighbours.growth(index, member, &[]));
            let promised = Bytes(promised.max().unwrap_or(0));
            return (promised, promised);
        };
        let members = seen.accounts.iter().enumerate();
        let memory = members.map(|(member, account)| {
            let runs: u64 = account.runs.iter().map(|(_, held)| held.0).sum();
            // What other runs may still take of what they were promised.
            let growth = self.neighbours.growth(index, member, &account.runs);
            let runs = runs.saturating_add(growth);
            (Bytes(account.strangers.0.saturating_add(runs)), Bytes(runs))
        });
        memory.max().unwrap_or_default()
    }

    /// Whether what others hold on a device is not known at the moment: all of its
    /// memory counts as theirs.
    fn is_unseen(&self, index: usize) -> bool {
        self.watching.as_ref().is_some_and(|watching| {
            let seen = watching.units.get(index);
            seen.is_some_and(|seen| seen.awaited.is_some() || watching.is_awaiting())
        })
    }

    /// An attempt is over: its memory is others' until the driver shows it gone.
    pub(crate) fn untrack(&mut self, ended: &Ended) -> Option<Track> {
        let task = ended.task;
        let watching = self.watching.as_mut()?;
        let track = watching.tracks.remove(&task.number)?;
        let mut touched = Vec::new();
        for place in &track.places {
            let index = place.device.0 as usize;
            let Some(seen) = watching.units.get_mut(index) else {
                continue;
            };
            if let Some((held, scene)) = place.last
                && held.0 > CRUMB
                && !seen.drained
            {
                let left = Lingering::new(task, held, scene);
                // What is still there of an earlier one comes on top.
                seen.lingering = Some(left.after(seen.lingering.take()));
                touched.push(index);
            }
        }
        watching.look();
        for index in touched {
            self.tell_outside(index);
        }
        Some(track)
    }
}

fn is(who: &Ignored, pid: u32) -> bool {
    match who {
        Ignored::Process(process) => *process == pid,
        Ignored::User(uid) => {
            use std::os::unix::fs::MetadataExt as _;
            fs_err::metadata(format!("/proc/{pid}")).is_ok_and(|of| of.uid() == *uid)
        }
        Ignored::Program(name) => {
            let read = |what| fs_err::read_to_string(format!("/proc/{pid}/{what}"));
            let command = read("cmdline").unwrap_or_default();
            let program = command.split('\0').next().unwrap_or_default();
            let base = program.rsplit('/').next().unwrap_or_default();
            base == name || read("comm").is_ok_and(|comm| comm.trim_end() == name)
        }
    }
}
