//! Devices that break: taken out, and their tasks run elsewhere.

use packhorse_core::SchedulerEvent;
use packhorse_model::{DeviceId, Record, RunId, StopMode, TaskId};

use super::monitor::device_id;
use crate::engine::Engine;
use crate::input::DeviceView;
use crate::task::Eviction;

impl Engine {
    /// Takes a device out: nothing more starts there, and what runs there is run again
    /// elsewhere. `members` are those of a group that are to blame; if none is named, all.
    pub(crate) fn drain_device(&mut self, index: usize, reason: &str, members: &[usize]) {
        let Some(unit) = self.monitor.units.get_mut(index) else {
            return;
        };
        if std::mem::replace(&mut unit.drained, true) {
            return;
        }
        // Nothing more will be seen of it.
        (unit.lingering, unit.awaited) = (None, None);
        unit.tenancy.stop_waiting();
        let device = device_id(index);
        let run = self.runs.keys().next().copied().unwrap_or(RunId(0));
        let keys = self.devices[index].keys.clone();
        for (member, device) in keys.into_iter().enumerate() {
            if members.is_empty() || members.contains(&member) {
                self.record(Record::Drained {
                    run,
                    device: device.into(),
                    reason: reason.into(),
                    at: self.now.wall,
                });
            }
        }
        self.warn_of(
            device,
            &format!("is taken out: {reason}; what ran there runs again elsewhere"),
        );
        self.step(SchedulerEvent::Drain(device));
        // The others may have waited for a look at this one.
        self.tell_all_outside();
        self.evict_from(device);
    }

    /// The driver reported an error of some program on a device.
    pub(crate) fn program_faulted(&mut self, device: DeviceId, error: String) {
        if let Some(unit) = self.monitor.units.get_mut(device.0 as usize) {
            unit.fault = Some((self.now.monotonic, error));
        }
    }

    /// Ends what runs on a device because of the device.
    fn evict_from(&mut self, device: DeviceId) {
        let mut on_it: Vec<TaskId> = Vec::new();
        for (&id, task) in &mut self.tasks {
            if let Some(attempt) = &mut task.attempt
                && !attempt.ended
                && attempt.devices.contains(&device)
            {
                attempt.evicted = Some(Eviction::DeviceLost);
                on_it.push(id);
            }
        }
        on_it.sort_unstable();
        for task in on_it {
            self.stop_attempt(task, StopMode::Terminate);
        }
    }

    /// Ends an attempt again whose device was taken out while it was started.
    pub(crate) fn evict_if_drained(&mut self, id: TaskId) {
        let task = self.tasks.get_mut(&id);
        if let Some(attempt) = task.and_then(|task| task.attempt.as_mut())
            && let mut devices = attempt.devices.iter()
            && devices.any(|&device| self.monitor.is_drained(device))
        {
            attempt.evicted = Some(Eviction::DeviceLost);
            self.stop_attempt(id, StopMode::Terminate);
        }
    }

    /// A device that an earlier run found broken stays out.
    pub(crate) fn leave_out(&mut self, device: DeviceId, reason: &str) {
        if let Some(unit) = self.monitor.units.get_mut(device.0 as usize) {
            unit.drained = true;
        }
        self.warn_of(device, &format!("was taken out by an earlier run and is not used: {reason}"));
        self.step(SchedulerEvent::Drain(device));
    }

    /// Says what is the matter with a device, and how it is put back.
    fn warn_of(&mut self, device: DeviceId, matter: &str) {
        let name = self.device_name(device);
        let info = self.devices.get(device.0 as usize);
        let id = info.map_or("", |info| &info.label);
        let message =
            format!("{name} {matter}\nhint: `packhorse gpus --restore {id}` puts it back");
        self.warn(None, message);
    }
}

/// The members that do not work, and why the first of them does not.
pub(super) fn lost(view: &DeviceView) -> Option<(Vec<usize>, String)> {
    let reason = view.members.iter().find_map(|member| member.lost.clone())?;
    let members = view.members.iter().enumerate();
    let lost = members.filter(|(_, member)| member.lost.is_some());
    Some((lost.map(|(index, _)| index).collect(), reason))
}
