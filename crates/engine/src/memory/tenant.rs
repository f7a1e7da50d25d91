//! GPUs that tasks have to themselves in a run that counts no memory: strangers on them are
//! named once, and the next task waits until the memory of the last one is gone.

use std::time::Duration;

use packhorse_model::{Bytes, DeviceId, GpuRequest, Milli, Placement, TaskId};

use super::lingering::Lingering;
use super::monitor::device_id;
use super::track::Surroundings;
use crate::action::Action;
use crate::engine::Engine;
use crate::input::{DeviceView, Owner};

/// What a task left that ran for less is not looked for: it would cost the next one more
/// than it is worth.
const LONG: Duration = Duration::from_secs(2);

/// The look at a device when a task first has it to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FirstLook {
    /// None has had it yet.
    #[default]
    NotYet,
    /// It was asked for then.
    Asked(Duration),
    /// Strangers held so much.
    Seen(Bytes),
}

impl Engine {
    /// A task has devices to itself: who else is on them is looked at once.
    pub(super) fn look_at_tenancy(&mut self, placement: &Placement) {
        let now = self.now.monotonic;
        let mut asks = false;
        for granted in &placement.devices {
            let unit = self.monitor.units.get_mut(granted.device.0 as usize);
            if let Some(unit) = unit.filter(|_| granted.share == Milli::ONE)
                && unit.first_look == FirstLook::NotYet
            {
                unit.first_look = FirstLook::Asked(now);
                asks = true;
            }
        }
        if asks {
            self.monitor.ask(now);
            self.act(Action::Sample);
        }
    }

    /// Takes note of strangers on a device that a task has to itself.
    pub(super) fn note_first_look(&mut self, view: &DeviceView) {
        let unit = &mut self.monitor.units[view.device];
        let strangers = unit.strangers();
        match unit.first_look {
            FirstLook::Asked(at) if at <= view.at => {}
            _ => return,
        }
        unit.first_look = FirstLook::Seen(strangers);
        // A desktop's few windows are nothing to speak of.
        let visible = self.devices[view.device].memory.0 / 20;
        if strangers.0 <= visible {
            return;
        }
        let processes = view.members.iter().flat_map(|member| &member.processes);
        let processes = processes.flatten();
        let theirs = processes.filter(|process| process.owner == Owner::Stranger);
        let names = theirs.map(|process| {
            let held = process
                .memory
                .map_or_else(String::new, |it| format!(", {it}"));
            format!("process {} ({}{held})", process.pid, process.description)
        });
        let names: Vec<String> = names.collect();
        let name = self.device_name(device_id(view.device));
        let who = match names.len() {
            0 => "and the driver does not tell who they are".to_owned(),
            _ => names.join(", "),
        };
        let message = format!("others hold {strangers} of {name}, which a task has whole: {who}");
        self.warn(None, message);
    }

    /// A task that had devices to itself has ended: nobody else gets them before its memory is
    /// gone.
    pub(super) fn await_release(&mut self, task: TaskId, devices: &[DeviceId], took: Duration) {
        let request = self.state.running_request(task);
        let had_whole = request.is_some_and(|it| matches!(it.gpus, GpuRequest::Whole(_)));
        let is_wanted = self.has_waiting() || self.has_other_runs();
        if self.monitor.is_counting() || took < LONG || !had_whole || !is_wanted {
            return;
        }
        for device in devices {
            let index = device.0 as usize;
            let unit = self
                .monitor
                .units
                .get_mut(index)
                .filter(|unit| !unit.drained);
            let Some(unit) = unit else {
                continue;
            };
            let FirstLook::Seen(strangers) = unit.first_look else {
                continue;
            };
            unit.lingering = Some(Lingering {
                task,
                since: self.now.monotonic,
                held: Bytes(0),
                before: Surroundings {
                    free: None,
                    others: strangers,
                    strangers,
                },
                closes: true,
            });
            self.monitor.look();
            self.tell_outside(index);
        }
    }
}
