//! Memory that stays when its task is over.

use std::time::{Duration, Instant};

use packhorse_gpu::{Held, Process, Sample};
use packhorse_model::{Bytes, TaskId};

use super::book::Owner;
use super::track::{CRUMB, Scene};
use crate::devices::device_id;
use crate::run::Run;

/// How long memory may stay after its task, before somebody is told.
const LINGER: Duration = Duration::from_secs(5);
/// How many processes are named before the rest is only counted.
const NAMED: usize = 3;

/// Memory of a device that should be gone.
#[derive(Debug)]
pub(super) struct Lingering {
    task: TaskId,
    since: Instant,
    held: Bytes,
    /// How it was there otherwise when the task was last seen.
    before: Scene,
}

impl Lingering {
    pub(super) fn new(task: TaskId, held: Bytes, before: Scene) -> Self {
        Self {
            task,
            since: Instant::now(),
            held,
            before,
        }
    }

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

    /// For how much the device counts as taken until it is gone.
    pub(super) fn counted(&self) -> Bytes {
        Bytes(self.before.others.0.saturating_add(self.held.0))
    }
}

impl Run<'_> {
    /// Sees whether memory that should be gone is.
    pub(super) fn mind_lingering(&mut self, sample: &Sample) {
        let Some(watching) = &mut self.watching else {
            return;
        };
        let seen = &mut watching.units[sample.unit];
        let Some(lingering) = &seen.lingering else {
            return;
        };
        if sample.at <= lingering.since {
            return;
        }
        let left = seen
            .strangers()
            .0
            .saturating_sub(lingering.before.strangers.0);
        let gone = left <= CRUMB;
        if !gone && lingering.since.elapsed() < LINGER {
            return;
        }
        let task = lingering.task;
        seen.lingering = None;
        self.tell_outside(sample.unit);
        if !gone {
            let label = self.devices.label(device_id(sample.unit));
            let message = format!(
                "{label} still holds {} that its task has left{}; it counts as others' memory",
                Bytes(left),
                self.people_on(sample)
            );
            self.warn(Some(task), message);
        }
    }

    /// Who is on a device, as the driver tells, to go on with a sentence.
    fn people_on(&self, sample: &Sample) -> String {
        let lists: Option<Vec<&Vec<Held>>> = sample
            .members
            .iter()
            .map(|member| member.processes.as_ref())
            .collect();
        let Some(lists) = lists else {
            return ", and the driver does not tell who is on it".to_owned();
        };
        let mut people: Vec<(Held, Owner)> = Vec::new();
        for held in lists.into_iter().flatten() {
            if people.iter().all(|(other, _)| other.pid != held.pid) {
                people.push((*held, self.owner(held.pid)));
            }
        }
        // Tasks that run have their own reason to be there.
        people.sort_by_key(|(_, owner)| matches!(owner, Owner::Ours(_)));
        if people.is_empty() {
            return ", and the driver lists no process on it".to_owned();
        }
        let mut names: Vec<String> = people.iter().take(NAMED).map(person).collect();
        match people.len() - names.len() {
            0 => {}
            more => names.push(format!("{more} more")),
        }
        format!("; on it the driver lists {}", names.join(", "))
    }
}

/// A process as people know it.
fn person((held, owner): &(Held, Owner)) -> String {
    let process = Process::of(*held);
    let program = process.program().unwrap_or("not to be seen from here");
    let whose = match owner {
        Owner::Ours(task) => format!(" of task {task}"),
        Owner::Run(_) | Owner::Ignored | Owner::Stranger => process
            .user
            .as_ref()
            .map_or_else(String::new, |user| format!(" of {user}")),
    };
    format!("process {} ({program}{whose})", held.pid)
}
