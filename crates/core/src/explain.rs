//! Why a task is where it is, as data; `prose` turns it into a sentence.

use std::time::Duration;

use packhorse_model::{Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, TaskId};

use crate::device::Tenant;
use crate::finished::TaskEnding;
use crate::ledger::Amounts;
use crate::place::Spot;
use crate::queue::Demand;
use crate::refusal::impossible;
use crate::reserve;
use crate::state::{AttemptRecord, SchedulerState};
use crate::tasks::{Handle, TaskRecord, TaskStatus};
use crate::time::Moment;
use crate::{Now, Outside, ProbePlan, RefusalReason, RunningTask};

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
    /// It is not in line yet: these tasks have to succeed first, or another one
    /// like it has to be measured.
    Blocked {
        /// The task.
        task: TaskId,
        /// What it comes after and has not finished; nobody, if it waits for a
        /// measurement alone.
        on: Vec<PendingDependency>,
    },
    /// It could be in line, but its run is held.
    Held {
        /// The task.
        task: TaskId,
    },
    /// It is in line.
    Waiting(WaitingTask),
    /// It is over.
    Finished {
        /// The task.
        task: TaskId,
        /// How it ended.
        ending: TaskEnding,
    },
}

/// A dependency that has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingDependency {
    /// The task that has to succeed first.
    pub task: TaskId,
    /// For how long it has been running, if it runs.
    pub running: Option<Duration>,
}

/// A task in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingTask {
    /// The task.
    pub task: TaskId,
    /// The attempt it waits for, from 1; 0 is a probe.
    pub attempt: u32,
    /// How many stand in front of it.
    pub ahead: usize,
    /// Who is first in line. It may be this task.
    pub first: TaskId,
    /// What keeps it from starting.
    pub reason: WaitReason,
    /// What is kept for the first in line, if anything is.
    pub reserved: Option<Reserved>,
}

/// What keeps a task in line from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Nothing is started at the moment.
    Held,
    /// As many attempts run as there are slots.
    Slots {
        /// How many slots there are.
        slots: u32,
        /// Who has had one for longest.
        longest: Option<Holder>,
    },
    /// Something it needs is not free.
    Missing(MissingResources),
    /// It could start only if these devices took something new again.
    Drained(Vec<DeviceId>),
    /// No machine of the pool could ever run it: the one that could was removed, or
    /// the task was adopted.
    Impossible(RefusalReason),
    /// What it needs is free, but kept for the first in line.
    Reserved,
}

/// What a task lacks, at the place where it will probably start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingResources {
    /// How much GPU it needs.
    pub gpus: GpuRequest,
    /// How much memory of each.
    pub memory: MemoryRequest,
    /// The node it would start on.
    pub node: NodeId,
    /// The devices there that do not have enough room for it.
    pub devices: Vec<DeviceId>,
    /// How much memory is free on the one of them with the least, if it is
    /// memory that they lack.
    pub free: Option<Bytes>,
    /// The cores that it lacks there.
    pub cores: Option<Short<u32>>,
    /// How busy the cores there may still be kept, if that is too little.
    pub cpu: Option<Short<Milli>>,
    /// The main memory that it lacks there.
    pub ram: Option<Short<Bytes>>,
    /// Who of ours holds what it lacks, the longest running first.
    pub holders: Vec<Holder>,
    /// What others hold on those devices.
    pub outside: Vec<(DeviceId, Outside)>,
}

/// Too little of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short<T> {
    /// How much it needs.
    pub wanted: T,
    /// How much is free.
    pub free: T,
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
    /// How much memory of each it counts for, at most.
    pub memory: Bytes,
    /// Whether it has them to itself.
    pub whole: bool,
    /// How many of the lacking cores it has.
    pub cores: u32,
    /// How busy it keeps the cores, if that is what is lacking.
    pub cpu: Milli,
    /// How much of the lacking main memory it has.
    pub ram: Bytes,
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
    /// The devices that others may start on only if that does not delay it.
    pub devices: Vec<DeviceId>,
    /// How many cores of the node others must leave.
    pub cores: u32,
    /// How much they must leave of what may keep its cores busy.
    pub cpu: Milli,
    /// How much main memory of the node they must leave.
    pub ram: Bytes,
    /// How long it takes at most until it starts there, if that is known.
    pub within: Option<Duration>,
}

/// Why `task` is where it is, as of `now`. `None` if there is no such task.
///
/// It counts those in front, so it may look at every waiting task: it is for a
/// person who asks, not for every event.
pub fn explain(state: &SchedulerState, task: TaskId, now: Now) -> Option<Explanation> {
    let Some(handle) = state.tasks.find(task) else {
        let ending = state.finished.get(task)?;
        return Some(Explanation::Finished { task, ending });
    };
    let record = state.tasks.get(handle);
    Some(match record.status {
        TaskStatus::Running(place) => {
            let running = state.running_task(&state.running[place as usize]);
            let lasting = now.since(running.since);
            Explanation::Running { running, lasting }
        }
        TaskStatus::Blocked
            if record.probe != ProbePlan::Awaited && !state.deps.is_blocked(handle) =>
        {
            Explanation::Held { task }
        }
        TaskStatus::Blocked => {
            let on = state.deps.waits_for(handle);
            Explanation::Blocked {
                task,
                on: on.map(|on| pending(state, on, now)).collect(),
            }
        }
        TaskStatus::Waiting => {
            let first = state.queue.first().unwrap_or(handle);
            let reservation = state.reservation.as_ref();
            Explanation::Waiting(WaitingTask {
                task,
                attempt: if record.probe == ProbePlan::First {
                    0
                } else {
                    record.attempts.saturating_add(1)
                },
                ahead: state.queue.ahead(record.key),
                first: state.tasks.get(first).id,
                reason: reason(state, handle, record, now),
                reserved: reservation.map(|kept| Reserved {
                    task: state.tasks.get(kept.holder).id,
                    node: state.ledger.nodes[kept.spot.node].id,
                    devices: device_ids(state, &kept.spot.devices),
                    cores: small(kept.needs.cores),
                    cpu: Milli(small(kept.needs.cpu)),
                    ram: Bytes(kept.needs.ram),
                    within: within(kept.until, now),
                }),
            })
        }
    })
}

fn device_ids(state: &SchedulerState, devices: &[usize]) -> Vec<DeviceId> {
    devices
        .iter()
        .map(|&device| state.ledger.devices[device].id)
        .collect()
}

fn pending(state: &SchedulerState, on: Handle, now: Now) -> PendingDependency {
    let record = state.tasks.get(on);
    let running = match record.status {
        TaskStatus::Running(place) => Some(now.since(state.running[place as usize].since)),
        TaskStatus::Blocked | TaskStatus::Waiting => None,
    };
    PendingDependency {
        task: record.id,
        running,
    }
}

/// The time from `now` to `until`, if there is any.
fn within(until: Moment, now: Now) -> Option<Duration> {
    until.get()?.0.checked_sub(now.0)
}

fn small(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

fn reason(state: &SchedulerState, task: Handle, record: &TaskRecord, now: Now) -> WaitReason {
    if state.held {
        return WaitReason::Held;
    }
    if let Some(slots) = state.ledger.slots
        && !state.ledger.has_slot()
    {
        let longest = state.running.iter().min_by_key(|running| running.number);
        let nothing = Amounts::default();
        let longest = longest.map(|running| holder(state, running, &[], nothing, now));
        return WaitReason::Slots { slots, longest };
    }
    let demand = state.queue.demand(record.class);
    let nodes = 0..state.ledger.nodes.len();
    if state.view(None).best(demand, nodes).is_some() {
        return WaitReason::Reserved;
    }
    let own = state.reservation.as_ref();
    let own = own.filter(|kept| kept.holder == task);
    let spot = own
        .map(|kept| kept.spot.clone())
        .or_else(|| reserve::soonest(&state.ledger, state.settings, demand, Moment::new(now)))
        .or_else(|| place_without_others(state, demand));
    if let Some(spot) = spot {
        return WaitReason::Missing(missing(state, demand, &spot, now));
    }
    match impossible(&state.ledger, state.settings, &demand.request) {
        Some(reason) => WaitReason::Impossible(reason),
        None => WaitReason::Drained(drained(state, demand)),
    }
}

/// Where it could start if other users' processes went: where they hold least.
fn place_without_others(state: &SchedulerState, demand: &Demand) -> Option<Spot> {
    let ledger = &state.ledger;
    let wanted = demand.request.gpus.devices() as usize;
    let spots = (0..ledger.nodes.len()).filter_map(|node| {
        let needs = ledger.nodes[node].needs(&demand.request);
        let mut devices: Vec<_> = ledger
            .devices_of(node)
            .filter(|(_, device)| !device.is_closed())
            .filter(|(_, device)| {
                let size = device.size(state.settings, &demand.request);
                size.is_some_and(|size| size.fits(&demand.request))
            })
            .map(|(index, device)| (device.outside.memory, device.attempts(), index))
            .collect();
        let node_ledger = &ledger.nodes[node];
        let able = !node_ledger.leaving && needs.is_within(node_ledger.size);
        if devices.len() < wanted || !able {
            return None;
        }
        devices.sort_unstable();
        devices.truncate(wanted);
        let most = devices
            .last()
            .map(|&(memory, attempts, _)| (memory, attempts));
        let mut devices: Vec<usize> = devices.into_iter().map(|(.., index)| index).collect();
        devices.sort_unstable();
        Some((most, Spot { node, devices }))
    });
    let (_, spot) = spots.min_by_key(|&(most, _)| most)?;
    Some(spot)
}

/// The drained devices that would do.
fn drained(state: &SchedulerState, demand: &Demand) -> Vec<DeviceId> {
    let devices = state.ledger.devices.iter();
    let suitable = devices.filter(|device| {
        let size = device.size(state.settings, &demand.request);
        device.drained && !device.leaving && size.is_some_and(|size| size.fits(&demand.request))
    });
    suitable.map(|device| device.id).collect()
}

fn missing(state: &SchedulerState, demand: &Demand, spot: &Spot, now: Now) -> MissingResources {
    let request = &demand.request;
    let node = &state.ledger.nodes[spot.node];
    let room = |device: usize| state.ledger.devices[device].headroom(state.settings, request);
    let full: Vec<usize> = spot
        .devices
        .iter()
        .copied()
        .filter(|&device| room(device).is_none_or(|room| !room.fits(request)))
        .collect();
    // If a device lacks more than memory, say that instead.
    let memory = |&device: &usize| {
        let room = room(device).filter(|room| request.gpus.share() <= room.share);
        room.map(|room| room.memory)
    };
    let rooms: Option<Vec<Bytes>> = full.iter().map(memory).collect();
    let needs = node.needs(request);
    let lacking = needs.beyond(node.free);
    let mut running: Vec<&AttemptRecord> = state.running.iter().collect();
    running.sort_unstable_by_key(|running| running.number);
    let holders = running.into_iter().filter_map(|running| {
        let held = &running.allocation;
        let on: Vec<usize> = held
            .devices
            .iter()
            .copied()
            .filter(|device| full.contains(device))
            .collect();
        let taken = if held.node == spot.node {
            held.amounts.where_lacking(lacking)
        } else {
            Amounts::default()
        };
        let matters = !on.is_empty() || taken != Amounts::default();
        matters.then(|| holder(state, running, &on, taken, now))
    });
    let outside = full.iter().map(|&device| &state.ledger.devices[device]);
    let outside = outside.filter(|device| device.outside != Outside::default());
    MissingResources {
        gpus: request.gpus,
        memory: request.memory,
        node: node.id,
        devices: device_ids(state, &full),
        free: rooms.and_then(|rooms| rooms.into_iter().min()),
        cores: (lacking.cores > 0).then_some(Short {
            wanted: request.cores,
            free: small(node.free.cores),
        }),
        cpu: (lacking.cpu > 0).then_some(Short {
            wanted: Milli(small(needs.cpu)),
            free: Milli(small(node.free.cpu)),
        }),
        ram: (lacking.ram > 0).then_some(Short {
            wanted: request.ram,
            free: Bytes(node.free.ram),
        }),
        holders: holders.collect(),
        outside: outside.map(|device| (device.id, device.outside)).collect(),
    }
}

fn holder(
    state: &SchedulerState,
    running: &AttemptRecord,
    on: &[usize],
    taken: Amounts,
    now: Now,
) -> Holder {
    let tenants = on.iter().flat_map(|&device| {
        let tenants = state.ledger.devices[device].tenants.iter();
        tenants.filter(|tenant| tenant.task == running.task)
    });
    let tenants: Vec<&Tenant> = tenants.collect();
    Holder {
        task: state.tasks.get(running.task).id,
        devices: device_ids(state, on),
        share: tenants.first().map_or(Milli(0), |tenant| tenant.share),
        memory: tenants
            .iter()
            .map(|tenant| tenant.memory())
            .max()
            .unwrap_or(Bytes(0)),
        whole: tenants.iter().any(|tenant| tenant.whole),
        cores: small(taken.cores),
        cpu: Milli(small(taken.cpu)),
        ram: Bytes(taken.ram),
        since: running.since,
        lasting: now.since(running.since),
    }
}
