//! Memory that stays when its task is over.

use std::time::Duration;

use packhorse_model::{Bytes, TaskId};

use super::monitor::device_id;
use super::track::{NOISE_FLOOR, Surroundings};
use crate::engine::Engine;
use crate::input::{DeviceView, Owner, ProcessView};
use crate::mps::MpsState;

/// How long memory may stay after its task, before somebody is told.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// What a server of MPS may hold for itself. It comes with the first task, and stays.
const SERVER: u64 = 64 << 20;
/// How many processes are named before the rest is only counted.
const NAMED: usize = 3;

/// Memory of a device that should be gone.
#[derive(Debug)]
pub(super) struct Lingering {
    pub(super) task: TaskId,
    pub(super) since: Duration,
    pub(super) held: Bytes,
    /// How it was there otherwise when the task was last seen.
    pub(super) before: Surroundings,
}

impl Lingering {
    /// The same on top of what is still there of an earlier task.
    pub(super) fn after(self, earlier: Option<Self>) -> Self {
        match earlier {
            None => self,
            Some(earlier) => Self {
                held: Bytes(self.held.0.saturating_add(earlier.held.0)),
                before: earlier.before,
                ..self
            },
        }
    }

    /// How much of the device counts as taken until it is gone.
    pub(super) fn counted(&self) -> Bytes {
        Bytes(self.before.others.0.saturating_add(self.held.0))
    }
}

impl Engine {
    /// Sees whether memory that should be gone is.
    pub(super) fn update_lingering(&mut self, view: &DeviceView) {
        let now = self.now.monotonic;
        let expected = expected(&self.mps);
        let unit = &mut self.monitor.units[view.device];
        let lingering = unit.lingering.as_ref();
        let Some(lingering) = lingering.filter(|lingering| lingering.since < view.at) else {
            return;
        };
        let left = unit.strangers().0;
        let left = left.saturating_sub(lingering.before.strangers.0);
        let gone = left <= expected;
        if !gone && now.saturating_sub(lingering.since) < LINGER {
            return;
        }
        let task = lingering.task;
        unit.lingering = None;
        self.tell_outside(view.device);
        if !gone {
            let name = self.device_name(device_id(view.device));
            let message = format!(
                "{name} still holds {} that its task has left{}; it counts as others' memory",
                Bytes(left),
                processes_on(view)
            );
            self.warn(Some(task), message);
        }
    }
}

/// What there may be more on a device than before when its task is gone.
pub(super) fn expected(mps: &MpsState) -> u64 {
    if mps.is_used() { SERVER } else { NOISE_FLOOR }
}

/// Who is on a device, as the driver tells, to go on with a sentence.
pub(super) fn processes_on(view: &DeviceView) -> String {
    let members = view.members.iter();
    let lists: Option<Vec<&Vec<ProcessView>>> =
        members.map(|member| member.processes.as_ref()).collect();
    let Some(lists) = lists else {
        return ", and the driver does not tell who is on it".to_owned();
    };
    let mut found: Vec<&ProcessView> = Vec::new();
    for process in lists.into_iter().flatten() {
        if found.iter().all(|other| other.pid != process.pid) {
            found.push(process);
        }
    }
    // Tasks that run have their own reason to be there.
    found.sort_by_key(|process| matches!(process.owner, Owner::Task(_)));
    if found.is_empty() {
        return ", and the driver lists no process on it".to_owned();
    }
    let shown = found.iter().take(NAMED);
    let mut names: Vec<String> =
        shown.map(|process| format!("process {} ({})", process.pid, process.description)).collect();
    match found.len() - names.len() {
        0 => {}
        more => names.push(format!("{more} more")),
    }
    format!("; on it the driver lists {}", names.join(", "))
}
