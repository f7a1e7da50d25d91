//! Why a task is where it is, in words.

use packhorse_model::{Bytes, DeviceId, MemoryRequest, Milli, Placement, Request, TaskId};

use crate::device::{DeviceLedger, Tenant};
use crate::finished::TaskEnding;
use crate::ledger::{Amounts, small};
use crate::place::Spot;
use crate::prose::{Lasting, Number, Several, ShareInWords, gpus};
use crate::refusal::impossible;
use crate::reserve::{self, Reservation};
use crate::state::{AttemptRecord, SchedulerState};
use crate::tasks::{Handle, TaskRecord, TaskStatus};
use crate::time::Moment;
use crate::{KeptRoom, Now, Outside, ProbePlan};

/// Why `task` is where it is, as of `now`: a sentence in which devices are called
/// as `name` says, and `holders` which other runs are on one. `None` if there is no such
/// task.
///
/// It counts those in front, so it may look at every waiting task: it is for a
/// person who asks, not for every event.
pub fn explain(
    state: &SchedulerState,
    task: TaskId,
    now: Now,
    name: &dyn Fn(DeviceId) -> String,
    holders: &dyn Fn(DeviceId) -> Vec<String>,
) -> Option<String> {
    let Some(handle) = state.tasks.find(task) else {
        return Some(match state.finished.get(task)? {
            TaskEnding::Succeeded => format!("{task} has succeeded"),
            TaskEnding::Unsuccessful => format!("{task} is over and did not succeed"),
            TaskEnding::Interrupted => format!("{task} was interrupted"),
        });
    };
    let explainer = Explainer { state, now, name, holders };
    let record = state.tasks.get(handle);
    Some(match record.status {
        TaskStatus::Running(place) => explainer.running(&state.running[place as usize]),
        TaskStatus::Blocked => explainer.blocked(handle, record),
        TaskStatus::Waiting => explainer.waiting(handle, record),
    })
}

struct Explainer<'a> {
    state: &'a SchedulerState,
    now: Now,
    name: &'a dyn Fn(DeviceId) -> String,
    holders: &'a dyn Fn(DeviceId) -> Vec<String>,
}

impl Explainer<'_> {
    /// The names of devices, given by their places in the pool's order.
    fn names(&self, devices: &[usize]) -> Vec<String> {
        let devices = self.state.ledger.at(devices);
        devices.map(|device| (self.name)(device.id)).collect()
    }

    fn lasting(&self, running: &AttemptRecord) -> Lasting {
        Lasting(self.now.since(running.since))
    }

    fn running(&self, running: &AttemptRecord) -> String {
        let task = self.state.running_task(running);
        let mut text = format!(
            "{} has been running {} for {}",
            task.task,
            self.place(&task.placement),
            self.lasting(running)
        );
        match task.attempt {
            0 => text += " to be measured",
            1 => {}
            attempt => text += &format!(" (attempt {attempt})"),
        }
        if task.stopping {
            text += " and is being stopped";
        }
        text
    }

    fn place(&self, placement: &Placement) -> String {
        let devices = placement.devices.iter();
        let names: Vec<String> = devices.map(|granted| (self.name)(granted.device)).collect();
        let mut with = Vec::new();
        let place = match placement.devices.first() {
            None => "without a GPU".to_owned(),
            Some(granted) => {
                if granted.memory > Bytes(0) {
                    with.push(granted.memory.to_string());
                }
                format!("on {}", ShareInWords(granted.share, &names))
            }
        };
        let cores: Vec<String> = placement.cores.iter().map(ToString::to_string).collect();
        match cores.len() {
            0 => {}
            1 => with.push(format!("core {}", cores[0])),
            _ => with.push(format!("cores {}", cores.join(", "))),
        }
        if with.is_empty() {
            return place;
        }
        format!("{place} with {}", with.join(" and "))
    }

    fn blocked(&self, task: Handle, record: &TaskRecord) -> String {
        let id = record.id;
        let on = self.state.deps.waits_for(task).map(|on| {
            let on = self.state.tasks.get(on);
            match on.status {
                TaskStatus::Running(place) => {
                    let lasting = self.lasting(&self.state.running[place as usize]);
                    format!("{} (running for {lasting})", on.id)
                }
                TaskStatus::Blocked | TaskStatus::Waiting => format!("{} (not started)", on.id),
            }
        });
        let on: Vec<String> = on.collect();
        match on.len() {
            0 if record.probe == ProbePlan::Awaited => {
                format!("{id} waits until one like it has been measured")
            }
            0 => format!("{id} waits: its run is held"),
            1 => format!("{id} waits until {} has succeeded", on[0]),
            _ => format!("{id} waits until {} have succeeded", Several(&on)),
        }
    }

    fn waiting(&self, task: Handle, record: &TaskRecord) -> String {
        let mut text = format!("{} waits", record.id);
        let kept = self.state.reservation.as_ref();
        // What is kept for another run is its own only after that.
        let kept = kept.filter(|kept| kept.holder != task || !self.is_kept_for_others(kept));
        let kept = kept.map(|kept| self.kept(kept, task));
        match (self.reason(task, record), kept) {
            (Some(reason), Some(kept)) => text += &format!("{reason}; {kept}"),
            (Some(reason), None) => text += &reason,
            (None, Some(kept)) => text += &format!(": {kept}, and it fits nowhere else"),
            (None, None) => {}
        }
        let first = self.state.first_in_line().unwrap_or(record.id);
        match self.state.queue.ahead(record.key) {
            0 => text += "; it is first in line",
            1 => text += &format!("; {first} is in front of it"),
            ahead => text += &format!("; {ahead} tasks are in front of it, {first} first"),
        }
        match record.next_attempt() {
            0 => text += "; it will be measured first",
            1 => {}
            attempt => text += &format!("; it will be attempt {attempt}"),
        }
        text
    }

    /// What keeps a task in line from starting; nothing if what it needs is free,
    /// but kept for the first in line.
    fn reason(&self, task: Handle, record: &TaskRecord) -> Option<String> {
        let state = self.state;
        if state.held {
            return Some(": nothing is handed out at the moment".to_owned());
        }
        if state.looking {
            return Some(" for a look who is on the GPUs".to_owned());
        }
        if let Some(slots) = state.ledger.slots
            && !state.ledger.has_slot()
        {
            let all = if slots == 1 { "the only one is" } else { "all are" };
            let mut text = format!(" for one of {}: {all} taken", Number(slots, "slot"));
            let longest = state.running.iter().min_by_key(|running| running.number);
            if let Some(longest) = longest {
                let (id, lasting) = (state.tasks.get(longest.task).id, self.lasting(longest));
                text += &format!(", the longest by {id} (for {lasting})");
            }
            return Some(text);
        }
        let demand = state.queue.demand(record.class);
        let nodes = 0..state.ledger.nodes.len();
        if state.view(None).best(demand, nodes).is_some() {
            return None;
        }
        let request = &demand.request;
        let kept = state.reservation.as_ref();
        let own = kept.filter(|kept| kept.holder == task);
        let now = Moment::new(self.now);
        let spot = own
            .map(|kept| kept.spot.clone())
            .or_else(|| reserve::soonest(&state.ledger, request, now))
            .or_else(|| place_without_others(state, request));
        if let Some(spot) = spot {
            return Some(self.missing(request, &spot));
        }
        if let Some(refusal) = impossible(&state.ledger, request) {
            // The rest is a hint for whoever submits it.
            let refusal = refusal.to_string();
            return refusal.lines().next().map(|line| format!(": {line}"));
        }
        let drained = self.names(&drained(state, request));
        let verb = if drained.len() == 1 { "takes" } else { "take" };
        let drained = Several(&drained);
        Some(format!(": {drained} {verb} nothing new, being drained"))
    }

    /// What is lacking at the place where a task will probably start, and who has
    /// it, the longest running first.
    fn missing(&self, request: &Request, spot: &Spot) -> String {
        let state = self.state;
        let node = &state.ledger.nodes[spot.node];
        let room = |device: usize| state.ledger.devices[device].headroom(request);
        let full = spot.devices.iter().copied();
        let full = full.filter(|&device| room(device).is_none_or(|room| !room.fits(request)));
        let full: Vec<usize> = full.collect();
        // If a device lacks more than memory, say that instead.
        let memory = |&device: &usize| {
            let room = room(device).filter(|room| request.gpus.share() <= room.share);
            room.map(|room| room.memory)
        };
        let free: Option<Vec<Bytes>> = full.iter().map(memory).collect();
        let free = free.and_then(|free| free.into_iter().min());
        let outside = state.ledger.at(&full);
        let outside = outside.filter(|device| device.outside != Outside::default());
        let outside: Vec<&DeviceLedger> = outside.collect();
        let needs = node.needs(request);
        let lacking = needs.beyond(node.free);
        let mut wanted = Vec::new();
        if !full.is_empty() {
            let mut gpus = gpus(request.gpus, request.memory);
            let crowded =
                |device: &&DeviceLedger| device.is_load(device.outside.computing_strangers());
            if matches!(request.memory, MemoryRequest::AtLeast(_)) && outside.iter().any(crowded) {
                // However much is free: whoever may take anything takes nothing from them.
                gpus += " on one that processes of others hold at most 5 % of";
            }
            let unseen = outside.iter().any(|device| device.outside.unseen);
            wanted.push(match free.filter(|_| !unseen) {
                Some(free) => format!("{gpus} ({free} free)"),
                None => gpus,
            });
        }
        if lacking.cores > 0 {
            let (cores, free) = (Number(request.cores, "core"), node.free.cores);
            wanted.push(format!("{cores} of one machine with {free} free"));
        } else if lacking.cpu > 0 {
            // Whoever lacks cores of its own lacks busy ones as well.
            let (cpu, free) = (needs.busy(), node.free.busy());
            wanted.push(format!("{cpu} cores' work on one machine with {free} left"));
        }
        if lacking.ram > 0 {
            let (ram, free) = (request.ram, Bytes(node.free.ram));
            wanted.push(format!("{ram} of main memory ({free} free)"));
        }
        let mut text = format!(" for {}", wanted.join(" and "));
        let ours = state.by_start().into_iter().filter_map(|running| {
            let held = &running.allocation;
            let on = held.devices.iter().copied();
            let on: Vec<usize> = on.filter(|device| full.contains(device)).collect();
            let taken = if held.node == spot.node {
                held.amounts.where_lacking(lacking)
            } else {
                Amounts::default()
            };
            let matters = !on.is_empty() || taken != Amounts::default();
            matters.then(|| self.holder(running, &on, taken, free.is_some()))
        });
        let others = outside.iter();
        let others = others.flat_map(|device| self.others(device, request, free.is_some()));
        let holders: Vec<String> = ours.chain(others).collect();
        if !holders.is_empty() {
            text += &format!(": {}", Several(&holders));
        }
        text
    }

    /// What an attempt holds of these devices, and of what its machine lacks.
    fn holder(
        &self,
        running: &AttemptRecord,
        on: &[usize],
        taken: Amounts,
        lacks_only_memory: bool,
    ) -> String {
        let tenants = self.state.ledger.at(on).flat_map(|device| &device.tenants);
        let tenants = tenants.filter(|tenant| tenant.task == running.task);
        let mut things = Vec::new();
        if let Some(tenant) = tenants.clone().next() {
            let names = self.names(on);
            let memory = tenants.map(Tenant::memory).max();
            things.push(match memory {
                Some(memory) if lacks_only_memory && !tenant.whole => {
                    format!("{memory} of {}", Several(&names))
                }
                _ => ShareInWords(tenant.share, &names).to_string(),
            });
        }
        things.extend(amounts(taken));
        let (task, lasting) = (self.state.tasks.get(running.task).id, self.lasting(running));
        format!("{task} holds {} (for {lasting})", things.join(" and "))
    }

    /// What others hold on a device, as far as it matters.
    fn others(
        &self,
        device: &DeviceLedger,
        request: &Request,
        lacks_only_memory: bool,
    ) -> Vec<String> {
        let (name, held) = ((self.name)(device.id), device.outside);
        let counts_memory = request.memory != MemoryRequest::Uncounted;
        let who = (self.holders)(device.id);
        let who = match who.len() {
            0 => String::new(),
            _ => format!(" ({})", Several(&who)),
        };
        if held.unseen && (counts_memory || held.whole) {
            // Nobody is on it, and still nobody may have it.
            let is_left = held.whole && held.attempts == 0 && held.share == Milli(0);
            return vec![if is_left {
                format!("{name} may still hold memory of its last task")
            } else {
                format!("{name} has not been looked at yet")
            }];
        }
        if device.one_process && held.has_strangers {
            let text = "which takes one process at a time";
            return vec![format!("a stranger's program has {name}, {text}")];
        }
        if held.whole {
            return vec![format!("another run holds {name}{who}")];
        }
        let room = device.room(device.load, held, request);
        if room.is_some_and(|room| room.fits(request)) {
            let text = "is kept for another run, which has waited longer";
            return vec![format!("{name} {text}{who}")];
        }
        let mut texts = Vec::new();
        if lacks_only_memory {
            if held.runs > Bytes(0) {
                texts.push(format!("other runs hold {} of {name}{who}", held.runs));
            }
        } else if held.attempts > 0 || held.share > Milli(0) {
            let what = ShareInWords(held.share, std::slice::from_ref(&name));
            texts.push(format!("other runs hold {what}{who}"));
        }
        let strangers = held.strangers();
        if strangers > Bytes(0) && counts_memory {
            texts.push(format!("processes of others hold {strangers} of {name}"));
        }
        texts
    }

    fn is_kept_for_others(&self, kept: &Reservation) -> bool {
        let mut devices = self.state.ledger.at(&kept.spot.devices);
        devices.any(|device| device.outside.kept != KeptRoom::default())
    }

    /// What is kept for the first in line, which may be `asked`.
    fn kept(&self, kept: &Reservation, asked: Handle) -> String {
        let mut things = self.names(&kept.spot.devices);
        things.extend(amounts(kept.needs));
        let one = kept.needs.cores <= 1 && kept.needs.busy() <= Milli::ONE;
        let are = if things.len() == 1 && one { "is" } else { "are" };
        let mut text = format!("{} {are} kept for ", Several(&things));
        if kept.holder == asked {
            text += "it";
        } else {
            text += &self.state.tasks.get(kept.holder).id.to_string();
        }
        let until = kept.until.get();
        if let Some(within) = until.and_then(|until| until.0.checked_sub(self.now.0)) {
            text += &format!(" (it starts within {})", Lasting(within));
        }
        text
    }
}

/// What is held or kept of a machine.
fn amounts(amounts: Amounts) -> impl Iterator<Item = String> {
    let cores = match (amounts.cores, amounts.busy()) {
        (0, Milli(0)) => None,
        (0, busy) => Some(format!("{busy} cores' work")),
        (cores, _) => Some(Number(small(cores), "core").to_string()),
    };
    let ram = (amounts.ram > 0).then(|| format!("{} of main memory", Bytes(amounts.ram)));
    cores.into_iter().chain(ram)
}

/// Where it could start if other users' processes went: where they hold least.
fn place_without_others(state: &SchedulerState, request: &Request) -> Option<Spot> {
    let ledger = &state.ledger;
    let wanted = request.gpus.devices() as usize;
    let spots = ledger.nodes.iter().enumerate().filter_map(|(node, account)| {
        let able = !account.leaving && account.needs(request).is_within(account.size);
        let devices = ledger.devices_of(node);
        let devices = devices.filter(|(_, device)| !device.is_closed() && device.suits(request));
        let mut devices: Vec<_> = devices
            .map(|(index, device)| ((device.outside.memory, device.attempts()), index))
            .collect();
        if devices.len() < wanted || !able {
            return None;
        }
        devices.sort_unstable();
        devices.truncate(wanted);
        let most = devices.last().map(|&(most, _)| most);
        let mut devices: Vec<usize> = devices.into_iter().map(|(_, index)| index).collect();
        devices.sort_unstable();
        Some((most, Spot { node, devices }))
    });
    let (_, spot) = spots.min_by_key(|&(most, _)| most)?;
    Some(spot)
}

/// The drained devices that would do.
fn drained(state: &SchedulerState, request: &Request) -> Vec<usize> {
    let devices = state.ledger.devices.iter().enumerate();
    let suitable =
        devices.filter(|(_, device)| device.drained && !device.leaving && device.suits(request));
    suitable.map(|(index, _)| index).collect()
}
