//! GPUs that tasks have to themselves in a run that counts no memory: strangers on them are
//! named once, and nobody gets one before the memory of its last tenant is gone.
//!
//! ```text
//!  first task starts ──▶ a look: who else is there?
//!  last tenant leaves ─▶ closed ──▶ a look: is anything left? ──▶ open
//!                          ▲               │ yes
//!                          └───────────────┘ 5 seconds at most
//! ```
//!
//! Processes of strangers that live were there before the last tenant, or came meanwhile:
//! they are not waited for.

use std::time::Duration;

use packhorse_model::{AttemptEnd, Bytes, DeviceId, GpuRequest, Milli, Placement, TaskId};

use super::attribution::VISIBLE;
use super::lingering::{LINGER, expected, processes_on};
use super::monitor::device_id;
use crate::action::Action;
use crate::engine::Engine;
use crate::input::{DeviceView, Owner, ProcessView};

/// A device is looked at so often when tenants leave it that had it for less. A look after
/// each would cost more than it is worth: hardly any program gets to much memory in that
/// time.
const OFTEN: Duration = Duration::from_secs(1);

/// A device that tasks have to themselves.
#[derive(Debug, Default)]
pub(super) struct Tenancy {
    /// When a look was asked for, because a task has it to itself for the first time.
    asked: Option<Duration>,
    /// Whether a task has had it to itself.
    was_given: bool,
    /// What was there on the last look that no living process was shown for.
    unclaimed: Option<Bytes>,
    /// When that was.
    looked: Option<Duration>,
    /// Whether strangers on it were named.
    named: bool,
    closing: Option<Closing>,
}

/// A device on which nothing is started until its last tenant's memory is gone.
#[derive(Clone, Copy, Debug)]
struct Closing {
    since: Duration,
    /// The tenant; nobody's if it was another run's.
    task: Option<TaskId>,
}

impl Tenancy {
    /// Whether nothing is started on it.
    pub(super) const fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Nothing more will be seen of it: nobody waits for its last tenant's memory.
    pub(super) const fn stop_waiting(&mut self) {
        (self.asked, self.closing) = (None, None);
    }

    /// Takes note of what was there before anything was started, and was told already.
    pub(super) const fn first_look(&mut self, unclaimed: Bytes, named: bool) {
        (self.unclaimed, self.named) = (Some(unclaimed), named);
    }

    /// Whether somebody may soon be told who is on it.
    pub(super) const fn names_processes(&self) -> bool {
        self.asked.is_some() || self.closing.is_some()
    }
}

impl Engine {
    /// A task has devices to itself: who else is on them is looked at once.
    pub(super) fn look_at_tenancy(&mut self, placement: &Placement) {
        let now = self.now.monotonic;
        let mut asks = false;
        for granted in &placement.devices {
            let unit = self.monitor.units.get_mut(granted.device.0 as usize);
            if let Some(unit) = unit.filter(|_| granted.share == Milli::ONE)
                && !std::mem::replace(&mut unit.tenancy.was_given, true)
                && !unit.is_fresh(now)
            {
                unit.tenancy.asked = Some(now);
                asks = true;
            }
        }
        if asks {
            self.monitor.ask(now);
            self.act(Action::Sample);
        }
    }

    /// An attempt has ended: whoever is to have its devices whole gets them when its memory
    /// is gone.
    pub(super) fn await_release(&mut self, end: &AttemptEnd, devices: &[DeviceId]) {
        if self.monitor.is_counting() || !self.monitor.is_watching() {
            return;
        }
        let request = self.state.running_request(end.task);
        let had_whole = request.is_some_and(|it| matches!(it.gpus, GpuRequest::Whole(_)));
        // It may be next itself.
        let is_wanted = self.state.wants_whole() || (had_whole && !end.outcome.is_success());
        if !is_wanted {
            return;
        }
        let loads = self.state.devices().enumerate();
        let left = loads.filter(|(_, load)| load.attempts <= 1 && devices.contains(&load.device));
        let left: Vec<usize> = left.map(|(index, _)| index).collect();
        for index in left {
            self.close_device(index, Some(end.task), end.took);
        }
    }

    /// Other runs have left a device: the same.
    pub(crate) fn await_release_of_others(&mut self) {
        if self.monitor.is_counting() || !self.monitor.is_watching() || !self.state.wants_whole() {
            return;
        }
        let loads = self.state.devices().enumerate();
        let free = loads.filter(|(_, load)| load.attempts == 0);
        let free: Vec<usize> = free.map(|(index, _)| index).collect();
        for index in free {
            let told = &self.other_runs.told[index];
            let had_some = told.attempts > 0 || told.share.0 > 0;
            let held = self.other_runs.held(index, &self.devices[index]);
            if had_some && held.attempts == 0 && held.share.0 == 0 {
                self.close_device(index, None, Duration::ZERO);
            }
        }
    }

    fn close_device(&mut self, index: usize, task: Option<TaskId>, took: Duration) {
        let since = self.now.monotonic;
        let Some(unit) = self.monitor.units.get_mut(index) else {
            return;
        };
        let tenancy = &mut unit.tenancy;
        let looked = tenancy.looked;
        let is_due = took >= OFTEN || looked.is_none_or(|at| since.saturating_sub(at) >= OFTEN);
        if unit.drained || tenancy.is_closing() || !is_due {
            return;
        }
        tenancy.closing = Some(Closing { since, task });
        self.monitor.look();
        self.tell_outside(index);
    }

    /// Sees who is on a device that a task has to itself, and whether its last tenant's
    /// memory is gone.
    pub(super) fn update_tenancy(&mut self, view: &DeviceView) {
        let unit = &mut self.monitor.units[view.device];
        let (strangers, unclaimed) = (unit.strangers(), unit.unclaimed());
        let tenancy = &mut unit.tenancy;
        if tenancy.asked.is_some_and(|at| at <= view.at) {
            tenancy.asked = None;
            tenancy.unclaimed = Some(unclaimed);
            tenancy.looked = Some(view.at);
            self.name_strangers(view, strangers);
        }
        self.reopen(view);
    }

    /// Opens a device again whose last tenant's memory is gone, or has been waited for long
    /// enough.
    fn reopen(&mut self, view: &DeviceView) {
        let index = view.device;
        let visible = self.devices[index].memory.0 / VISIBLE;
        let expected = expected(&self.mps);
        let unit = &mut self.monitor.units[index];
        let (strangers, unclaimed) = (unit.strangers(), unit.unclaimed());
        let tenancy = &mut unit.tenancy;
        let closing = tenancy.closing.filter(|closing| closing.since <= view.at);
        let Some(Closing { since, task }) = closing else {
            return;
        };
        // Where nobody has looked before, some of it may always have been there.
        let expected = tenancy.unclaimed.map_or(visible, |_| expected);
        let before = tenancy.unclaimed.unwrap_or_default();
        let left = unclaimed.0.saturating_sub(before.0);
        let is_gone = left <= expected;
        if !is_gone && self.now.monotonic.saturating_sub(since) < LINGER {
            return;
        }
        // What is there now is waited for no more.
        tenancy.unclaimed = Some(unclaimed);
        tenancy.looked = Some(view.at);
        tenancy.closing = None;
        self.tell_outside(index);
        // A process that is still listed is somebody's.
        let left = left.saturating_sub(listed(view, Owner::Unseen));
        self.name_strangers(view, Bytes(strangers.0.saturating_sub(left)));
        if !is_gone && left > expected {
            let name = self.device_name(device_id(index));
            let whose = match task {
                Some(_) => "its task",
                None => "another run",
            };
            let message = format!(
                "{name} still holds {} that {whose} has left{}",
                Bytes(left),
                processes_on(view)
            );
            self.warn(task, message);
        }
    }

    /// Tells once who else holds so much of a device.
    fn name_strangers(&mut self, view: &DeviceView, held: Bytes) {
        let visible = self.devices[view.device].memory.0 / VISIBLE;
        let tenancy = &mut self.monitor.units[view.device].tenancy;
        if held.0 <= visible || std::mem::replace(&mut tenancy.named, true) {
            return;
        }
        let processes = view.members.iter().flat_map(|member| &member.processes);
        let theirs = processes.flatten().filter(|it| is_strangers(it));
        let names = theirs.map(|process| {
            let held = process.memory.map_or_else(String::new, |it| format!(", {it}"));
            format!("process {} ({}{held})", process.pid, process.description)
        });
        let names: Vec<String> = names.collect();
        let name = self.device_name(device_id(view.device));
        let who = match names.len() {
            0 => "and the driver does not tell who they are".to_owned(),
            _ => names.join(", "),
        };
        let message = format!("others hold {held} of {name}, which a task has whole: {who}");
        self.warn(None, message);
    }
}

fn is_strangers(process: &ProcessView) -> bool {
    matches!(process.owner, Owner::Stranger | Owner::Unseen)
}

/// What processes of these hold, on the member on which it is most.
fn listed(view: &DeviceView, owner: Owner) -> u64 {
    let members = view.members.iter().map(|member| {
        let processes = member.processes.iter().flatten();
        let theirs = processes.filter(|process| process.owner == owner);
        let held = theirs.filter_map(|process| process.memory);
        held.map(|held| held.0).fold(0, u64::saturating_add)
    });
    members.max().unwrap_or_default()
}
