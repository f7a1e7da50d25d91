//! Who is on the devices when one of several is chosen: strangers are seen before a task is
//! placed beside them.

use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::{Bytes, Stranger, StrangersOn};

use super::attribution::{VISIBLE, attribute};
use super::health::lost;
use crate::action::Action;
use crate::engine::Engine;
use crate::input::{DeviceView, Owner};

/// How long a choice waits for a look. Mostly it takes some milliseconds; a device that hangs
/// is not waited for.
pub(super) const CHOICE: Duration = Duration::from_millis(250);
/// How many processes of a device are told of.
const MOST_TOLD: usize = 16;

impl Engine {
    /// Takes note of who was on the devices before anything was started.
    pub(crate) fn first_look(&mut self, views: &[DeviceView]) {
        for view in views {
            // What is lost is told, and taken out, when there is a run.
            if lost(view).is_some() || view.device >= self.monitor.units.len() {
                continue;
            }
            let members = view.members.iter();
            let found = members.map(|member| attribute(member, Bytes(0), false));
            let unit = &mut self.monitor.units[view.device];
            unit.attributions = found.collect();
            unit.sampled = Some(view.at);
            let strangers = self.strangers_on(view);
            let unit = &mut self.monitor.units[view.device];
            unit.tenancy.first_look(unit.unclaimed(), strangers.is_some());
            self.first_seen.extend(strangers);
            self.tell_outside(view.device);
        }
        self.step(SchedulerEvent::Looked);
    }

    /// The strangers on a device, if there are any to speak of.
    fn strangers_on(&self, view: &DeviceView) -> Option<StrangersOn> {
        let unit = &self.monitor.units[view.device];
        let info = &self.devices[view.device];
        let memory = unit.strangers();
        let computes = unit.attributions.iter().any(|found| found.has_strangers);
        if !computes && memory.0 <= info.memory.0 / VISIBLE {
            return None;
        }
        let processes = view.members.iter().flat_map(|member| &member.processes).flatten();
        let theirs = processes.filter(|it| matches!(it.owner, Owner::Stranger | Owner::Unseen));
        let mut processes: Vec<Stranger> = theirs
            .map(|process| Stranger {
                pid: process.pid,
                who: process.description.clone(),
                memory: process.memory,
                draws: process.draws,
            })
            .collect();
        processes.sort_by_key(|process| (process.draws, std::cmp::Reverse(process.memory)));
        processes.truncate(MOST_TOLD);
        Some(StrangersOn { gpu: info.label.clone(), memory, processes })
    }

    /// One of several devices is to be chosen: who is on them is looked at first.
    pub(crate) fn look_before_choice(&mut self) {
        let now = self.now.monotonic;
        let mut units = self.monitor.units.iter();
        if units.all(|unit| unit.drained || unit.is_fresh(now)) {
            return self.end_choice();
        }
        self.monitor.choosing = Some(now);
        self.monitor.ask(now);
        self.act(Action::Sample);
        // Whose processes are other runs' is known only of runs that are known.
        if self.other_runs.enabled {
            self.act(Action::RefreshOtherRuns);
        }
        self.end_choice_if_seen();
    }

    /// Lets the scheduler choose once all devices were seen that answer at all.
    pub(super) fn end_choice_if_seen(&mut self) {
        let Some(since) = self.monitor.choosing else {
            return;
        };
        let mut units = self.monitor.units.iter();
        let is_seen = units.all(|unit| {
            let is_silent = unit.unanswered.is_some_and(|asked| asked + CHOICE <= since);
            unit.drained || is_silent || unit.sampled >= Some(since)
        });
        if is_seen {
            self.end_choice();
        }
    }

    pub(super) fn end_choice(&mut self) {
        self.monitor.choosing = None;
        self.step(SchedulerEvent::Looked);
    }
}
