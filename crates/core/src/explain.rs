//! Why a task is where it is, as data; `words` turns it into a sentence.

use std::time::Duration;

use packhorse_model::{DeviceId, GpuRequest, Milli, NodeId, Request, TaskId};

use crate::ledger::count;
use crate::past::Ending;
use crate::place::{self, Spot};
use crate::reserve;
use crate::state::{Running, State};
use crate::tasks::{Handle, Record, Status};
use crate::{Now, RunningTask};

/// What can be said about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// It runs.
    Running {
        /// Where, and since when.
        running: RunningTask,
        /// For how long.
        lasting: Duration,
    },
    /// It is not in line yet: these tasks have to succeed first.
    Blocked {
        /// The task.
        task: TaskId,
        /// What it comes after and has not finished.
        on: Vec<Pending>,
    },
    /// It is in line.
    Waiting(Waiting),
    /// It is over.
    Finished {
        /// The task.
        task: TaskId,
        /// How it ended.
        ending: Ending,
    },
}

/// A dependency that has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The task that has to succeed first.
    pub task: TaskId,
    /// For how long it has been running, if it runs.
    pub running: Option<Duration>,
}

/// A task in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The task.
    pub task: TaskId,
    /// The attempt it waits for, from 1.
    pub attempt: u32,
    /// How many stand in front of it.
    pub ahead: usize,
    /// Who is first in line. It may be this task.
    pub first: TaskId,
    /// What keeps it from starting.
    pub reason: Reason,
    /// What is kept for the first in line, if anything is.
    pub reserved: Option<Reserved>,
}

/// What keeps a task in line from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is handed out at the moment.
    Held,
    /// As many attempts run as there are slots.
    Slots {
        /// How many slots there are.
        slots: u32,
        /// Who has had one for longest.
        longest: Option<Holder>,
    },
    /// Something it needs is not free.
    Missing(Missing),
    /// What it needs is free, but kept for the first in line.
    Reserved,
}

/// What a task lacks, at the place where it will probably start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// How much GPU it needs.
    pub gpus: GpuRequest,
    /// The node it would start on.
    pub node: NodeId,
    /// The devices there that do not have enough room for it.
    pub devices: Vec<DeviceId>,
    /// The cores that it lacks there.
    pub cores: Option<CoresShort>,
    /// Who holds what it lacks, the longest running first.
    pub holders: Vec<Holder>,
}

/// Too few free cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoresShort {
    /// How many it needs.
    pub wanted: u32,
    /// How many are free.
    pub free: u32,
}

/// A running task that holds something another one lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The task.
    pub task: TaskId,
    /// The lacking devices that it is on.
    pub devices: Vec<DeviceId>,
    /// How much it has of each.
    pub share: Milli,
    /// How many of the lacking cores it has.
    pub cores: u32,
    /// When it started.
    pub since: Now,
    /// How long ago that is.
    pub lasting: Duration,
}

/// What is kept for the first in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// For whom.
    pub task: TaskId,
    /// The node it is on.
    pub node: NodeId,
    /// The devices that nobody else may start on.
    pub devices: Vec<DeviceId>,
    /// How many cores of the node others must leave.
    pub cores: u32,
}

/// Why `task` is where it is, as of `now`. `None` if there is no such task.
///
/// It counts those in front, so it may look at every waiting task: it is for a
/// person who asks, not for every event.
pub fn explain(state: &State, task: TaskId, now: Now) -> Option<Explanation> {
    let Some(handle) = state.tasks.find(task) else {
        let ending = state.past.get(task)?;
        return Some(Explanation::Finished { task, ending });
    };
    let record = state.tasks.get(handle);
    Some(match record.status {
        Status::Running(place) => {
            let running = state.running_task(&state.running[place as usize]);
            let lasting = now.since(running.since);
            Explanation::Running { running, lasting }
        }
        Status::Blocked => {
            let on = state.deps.waits_for(handle);
            Explanation::Blocked {
                task,
                on: on.map(|on| pending(state, on, now)).collect(),
            }
        }
        Status::Waiting => {
            let first = state.queue.first().unwrap_or(handle);
            let reservation = state.reservation.as_ref();
            Explanation::Waiting(Waiting {
                task,
                attempt: record.attempts.saturating_add(1),
                ahead: state.queue.ahead(record.order),
                first: state.tasks.get(first).id,
                reason: reason(state, handle, record, now),
                reserved: reservation.map(|kept| Reserved {
                    task: state.tasks.get(kept.holder).id,
                    node: state.ledger.nodes[kept.spot.node].id,
                    devices: device_ids(state, &kept.spot.devices),
                    cores: kept.cores,
                }),
            })
        }
    })
}

fn device_ids(state: &State, devices: &[usize]) -> Vec<DeviceId> {
    devices
        .iter()
        .map(|&device| state.ledger.devices[device].id)
        .collect()
}

fn pending(state: &State, on: Handle, now: Now) -> Pending {
    let record = state.tasks.get(on);
    let running = match record.status {
        Status::Running(place) => Some(now.since(state.running[place as usize].since)),
        Status::Blocked | Status::Waiting => None,
    };
    Pending {
        task: record.id,
        running,
    }
}

fn reason(state: &State, task: Handle, record: &Record, now: Now) -> Reason {
    if state.held {
        return Reason::Held;
    }
    if let Some(slots) = state.ledger.slots
        && !state.ledger.has_slot()
    {
        let longest = state.running.iter().min_by_key(|running| running.number);
        let longest = longest.map(|running| holder(state, running, &[], 0, now));
        return Reason::Slots { slots, longest };
    }
    let request = state.queue.request(record.class);
    if place::find(&state.ledger, state.settings, request, None).is_some() {
        return Reason::Reserved;
    }
    let own = state
        .reservation
        .as_ref()
        .filter(|kept| kept.holder == task);
    let spot = own.map(|kept| kept.spot.clone());
    match spot.or_else(|| reserve::soonest(&state.ledger, request)) {
        Some(spot) => Reason::Missing(missing(state, request, &spot, now)),
        None => Reason::Reserved,
    }
}

fn missing(state: &State, request: &Request, spot: &Spot, now: Now) -> Missing {
    let node = &state.ledger.nodes[spot.node];
    let has_room = |device: usize| {
        place::has_room(
            &state.ledger.devices[device],
            state.settings,
            request.gpus.share(),
        )
    };
    let full: Vec<usize> = spot
        .devices
        .iter()
        .copied()
        .filter(|&device| !has_room(device))
        .collect();
    let cores = (node.free_cores < request.cores).then_some(CoresShort {
        wanted: request.cores,
        free: node.free_cores,
    });
    let mut running: Vec<&Running> = state.running.iter().collect();
    running.sort_unstable_by_key(|running| running.number);
    let holders = running.into_iter().filter_map(|running| {
        let held = &running.held;
        let on: Vec<usize> = held
            .devices
            .iter()
            .copied()
            .filter(|device| full.contains(device))
            .collect();
        let takes_cores = cores.is_some() && held.node == spot.node;
        let taken = if takes_cores { held.cores.len() } else { 0 };
        (!on.is_empty() || taken > 0).then(|| holder(state, running, &on, taken, now))
    });
    Missing {
        gpus: request.gpus,
        node: node.id,
        devices: device_ids(state, &full),
        cores,
        holders: holders.collect(),
    }
}

fn holder(state: &State, running: &Running, on: &[usize], cores: usize, now: Now) -> Holder {
    Holder {
        task: state.tasks.get(running.task).id,
        devices: device_ids(state, on),
        share: running.held.share,
        cores: count(cores),
        since: running.since,
        lasting: now.since(running.since),
    }
}
