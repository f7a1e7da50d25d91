//! Devices that break: taken out, and their tasks run elsewhere.

use packhorse_core::SchedulerEvent;
use packhorse_model::{DeviceId, RunId, StopMode, TaskId};

use super::monitor::device_id;
use crate::engine::Engine;
use crate::input::DeviceView;
use crate::record::JournalEntry;

impl Engine {
    /// Takes a device out: nothing more starts there, and what runs there is run again
    /// elsewhere. `members` are those of a group that are to blame; if none is named, all.
    pub(crate) fn drain_device(&mut self, index: usize, reason: &str, members: &[usize]) {
        let Some(unit) = self
            .monitor
            .as_mut()
            .and_then(|all| all.units.get_mut(index))
        else {
            return;
        };
        if std::mem::replace(&mut unit.drained, true) {
            return;
        }
        unit.lingering = None;
        let device = device_id(index);
        let blamed = |member: usize| members.is_empty() || members.contains(&member);
        let run = self.runs.keys().next().copied().unwrap_or(RunId(0));
        let info = &self.devices[index];
        let keys = info.keys.iter().enumerate();
        let keys: Vec<String> = keys
            .filter(|(member, _)| blamed(*member))
            .map(|(_, key)| key.clone())
            .collect();
        let id = info.label.clone();
        for key in keys {
            self.record(JournalEntry::Drained {
                run,
                device: key,
                reason: reason.to_owned(),
                at: self.now.wall,
            });
        }
        let name = self.device_name(device);
        self.warn(
            None,
            format!(
                "{name} is taken out: {reason}; what ran there runs again elsewhere\n\
                 hint: `packhorse gpus --restore {id}` puts it back"
            ),
        );
        self.step(SchedulerEvent::Drain(device));
        // The others may have waited for a look at this one.
        self.tell_all_outside();
        self.evict_from(device);
    }

    /// Ends what runs on a device because of the device.
    fn evict_from(&mut self, device: DeviceId) {
        let mut on_it: Vec<TaskId> = Vec::new();
        for (&id, task) in &mut self.tasks {
            if let Some(attempt) = &mut task.attempt
                && !attempt.ended
                && attempt.devices.contains(&device)
            {
                attempt.evicted = true;
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
        let (Some(monitor), Some(task)) = (&self.monitor, self.tasks.get_mut(&id)) else {
            return;
        };
        let Some(attempt) = &mut task.attempt else {
            return;
        };
        let mut devices = attempt.devices.iter();
        if devices.any(|&device| monitor.is_drained(device)) {
            attempt.evicted = true;
            self.stop_attempt(id, StopMode::Terminate);
        }
    }

    /// A device that an earlier run found broken stays out.
    pub(crate) fn leave_out(&mut self, device: DeviceId, reason: &str) {
        let index = device.0 as usize;
        if let Some(unit) = self
            .monitor
            .as_mut()
            .and_then(|all| all.units.get_mut(index))
        {
            unit.drained = true;
        }
        let name = self.device_name(device);
        let id = self.devices.get(index).map_or("", |info| &info.label);
        let message = format!(
            "{name} was taken out by an earlier run and is not used: {reason}\n\
             hint: `packhorse gpus --restore {id}` puts it back"
        );
        self.warn(None, message);
        self.step(SchedulerEvent::Drain(device));
    }
}

/// The members that do not work, and why the first of them does not.
pub(super) fn lost(view: &DeviceView) -> Option<(Vec<usize>, String)> {
    let members = view.members.iter().enumerate();
    let lost: Vec<(usize, &String)> = members
        .filter_map(|(member, view)| Some((member, view.lost.as_ref()?)))
        .collect();
    let (_, reason) = lost.first()?;
    let members = lost.iter().map(|(member, _)| *member).collect();
    Some((members, (*reason).clone()))
}
