//! Tasks whose processes on a GPU are not their own: a container's, or a daemon's that works
//! for them. While such a task is the only one on a device, and nothing is known of what it
//! needs, what the device's memory grows by counts as its.

use packhorse_model::{Bytes, TaskId};

use super::monitor::device_id;
use super::track::NOISE_FLOOR;
use crate::engine::Engine;
use crate::input::DeviceView;

/// The memory of one member of a device that no process of ours or of other runs is shown
/// for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GrowthOnMember {
    /// What that was when the attempt was first seen there.
    before: Bytes,
    /// How much more than that counts as the attempt's.
    counted: Bytes,
    /// Whether any of what was seen of it is that.
    pub(super) is_seen: bool,
}

impl Engine {
    /// Gives what a device's memory has grown by to the task that must have taken it.
    pub(super) fn attribute_growth(&mut self, view: &DeviceView) {
        let index = view.device;
        let device = device_id(index);
        let tasks = self.tracked_on(index);
        let over = tasks.iter().filter(|&&task| !self.goes_on(task));
        let over: Vec<TaskId> = over.copied().collect();
        let others = self.other_runs.told[index].attempts;
        let monitor = &mut self.monitor;
        let unit = &mut monitor.units[index];
        let is_alone = tasks.len() == 1 && others == 0 && unit.lingering.is_none();
        for task in tasks {
            let track = monitor.tracks.get_mut(&task);
            // What is left after its end was not its own, or is leaving.
            let is_over = view.ended.contains(&task) || over.contains(&task);
            let Some(track) =
                track.filter(|track| track.is_unknown && track.since <= view.at && !is_over)
            else {
                continue;
            };
            let Some(on) = track.devices.iter_mut().find(|on| on.device == device) else {
                continue;
            };
            let found = unit.attributions.iter_mut();
            if on.growth.is_empty() {
                on.growth = found
                    .map(|found| GrowthOnMember {
                        before: found.strangers,
                        ..GrowthOnMember::default()
                    })
                    .collect();
                continue;
            }
            for (found, growth) in found.zip(&mut on.growth) {
                if found.ours.iter().any(|(whose, _)| *whose == task) {
                    // It has processes of its own: the rest was somebody else's.
                    growth.counted = Bytes(0);
                    if std::mem::take(&mut growth.is_seen) {
                        on.peak = Bytes(0);
                    }
                    continue;
                }
                let grown = found.strangers.0.saturating_sub(growth.before.0);
                let grown = if is_alone {
                    grown
                } else {
                    // Whose it is that came since nobody knows.
                    grown.min(growth.counted.0)
                };
                growth.counted = Bytes(grown);
                if grown > NOISE_FLOOR {
                    growth.is_seen = true;
                    found.strangers.0 -= grown;
                    found.ours.push((task, Bytes(grown)));
                }
            }
        }
    }
}
