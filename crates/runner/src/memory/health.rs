//! Devices that break: taken out, and their tasks run elsewhere.

use packhorse_core as core;
use packhorse_gpu::{Health, Sample};
use packhorse_hands::Stop;
use packhorse_model::TaskId;
use packhorse_store::{Record, UnixMicros};

use crate::devices::device_id;
use crate::run::Run;

impl Run<'_> {
    /// Takes a device out: nothing more starts there, and what runs there is run
    /// again elsewhere.
    /// `members` are those of a group that are to blame; if none is named, all.
    pub(crate) fn drain(&mut self, index: usize, reason: &str, members: &[usize]) {
        let Some(seen) = self
            .watching
            .as_mut()
            .and_then(|watching| watching.units.get_mut(index))
        else {
            return;
        };
        if std::mem::replace(&mut seen.drained, true) {
            return;
        }
        seen.lingering = None;
        let device = device_id(index);
        let blamed = |member: usize| members.is_empty() || members.contains(&member);
        for (member, key) in self.devices.keys(index).into_iter().enumerate() {
            if !blamed(member) {
                continue;
            }
            self.store.send(Record::Drained {
                device: key.into(),
                reason: reason.into(),
                at: UnixMicros::now(),
            });
        }
        let label = self.devices.label(device);
        let id = self.devices.labels()[index].clone();
        self.warn(
            None,
            format!(
                "{label} is taken out: {reason}; what ran there runs again elsewhere\n\
                 hint: `packhorse gpus --restore {id}` puts it back"
            ),
        );
        self.step(core::SchedulerEvent::Drain(device));
        // The others may have waited for a look at this one.
        self.tell_all_outside();
        let on_it: Vec<TaskId> = self
            .state
            .running()
            .into_iter()
            .filter(|running| {
                running
                    .placement
                    .devices
                    .iter()
                    .any(|of| of.device == device)
            })
            .map(|running| running.task)
            .collect();
        for task in on_it {
            if let Some(known) = self.tasks.get_mut(&task.number) {
                known.uprooted = true;
            }
            self.hands.stop(task, Stop::Terminate);
        }
    }

    /// A device that an earlier run found broken stays out.
    pub(crate) fn leave_out(&mut self, index: usize, reason: &str) {
        if let Some(watching) = &mut self.watching
            && let Some(seen) = watching.units.get_mut(index)
        {
            seen.drained = true;
        }
        let device = device_id(index);
        let (label, id) = (self.devices.label(device), &self.devices.labels()[index]);
        let message = format!(
            "{label} was taken out by an earlier run and is not used: {reason}\n\
             hint: `packhorse gpus --restore {id}` puts it back"
        );
        self.warn(None, message);
        self.step(core::SchedulerEvent::Drain(device));
    }
}

/// The members that do not work, and why the first of them does not.
pub(super) fn lost(sample: &Sample) -> Option<(Vec<usize>, String)> {
    let members = sample.members.iter().enumerate();
    let lost: Vec<(usize, &String)> = members
        .filter_map(|(member, reading)| match &reading.health {
            Health::Ok => None,
            Health::Lost(reason) => Some((member, reason)),
        })
        .collect();
    let (_, reason) = lost.first()?;
    Some((
        lost.iter().map(|(member, _)| *member).collect(),
        (*reason).clone(),
    ))
}
