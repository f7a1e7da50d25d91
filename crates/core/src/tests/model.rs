//! The scheduler again, slow and obvious: one list of tasks in the order of
//! submission, and everything else counted anew whenever it is needed.
//!
//! Here is what happens to tasks; `rooms` is about devices and machines,
//! `handout` about who may start where, `outlook` about which place is best, and `cores`
//! about which cores it gets.

mod changes;
mod cores;
mod handout;
mod outlook;
mod rooms;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::{
    DeviceSpec, Effect, EndCause, NodeSpec, Outside, Pool, ProbePlan, RefusalReason, RetryReason,
    SchedulerEvent, SchedulerSettings, Submission,
};
use packhorse_model::{
    Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, Outcome, Placement, Request, RunId,
    TaskId,
};

pub struct Model {
    pool: Pool,
    settings: SchedulerSettings,
    held: bool,
    held_runs: BTreeSet<RunId>,
    /// Nodes and devices that go when nothing runs on them any more.
    leaving_nodes: BTreeSet<NodeId>,
    leaving_devices: BTreeSet<DeviceId>,
    tasks: Vec<Task>,
    reservation: Option<handout::Reservation>,
    outside: BTreeMap<DeviceId, Outside>,
    drained: BTreeSet<DeviceId>,
    mix: outlook::RequestMix,
    more_to_come: bool,
    now: Duration,
}

struct Task {
    /// With request and expectation as they are now.
    submission: Submission,
    /// In the order of the line: batch, then what is left of the priority.
    rank: (u32, i128),
    retries: u32,
    attempts: u32,
    collateral: u32,
    stopping: bool,
    place: Place,
}

enum Place {
    Blocked,
    Waiting,
    Running(Run),
    Finished(Outcome),
}

/// A running attempt.
struct Run {
    attempt: u32,
    request: Request,
    placement: Placement,
    since: Duration,
    limit: Option<Duration>,
    expected: Option<Duration>,
    observed: BTreeMap<DeviceId, Bytes>,
}

impl Model {
    pub fn new(pool: Pool, settings: SchedulerSettings) -> Self {
        Self {
            pool,
            settings,
            held: false,
            held_runs: BTreeSet::new(),
            leaving_nodes: BTreeSet::new(),
            leaving_devices: BTreeSet::new(),
            tasks: vec![],
            reservation: None,
            outside: BTreeMap::new(),
            drained: BTreeSet::new(),
            mix: outlook::RequestMix::default(),
            more_to_come: true,
            now: Duration::ZERO,
        }
    }

    /// Every task that was taken, in the order of submission.
    pub fn known(&self) -> Vec<TaskId> {
        self.tasks.iter().map(|task| task.submission.id).collect()
    }

    /// What runs, as (task, attempt).
    pub fn running(&self) -> Vec<(TaskId, u32)> {
        let runs = self.runs();
        runs.map(|(task, run)| (task.submission.id, run.attempt)).collect()
    }

    /// Where that is.
    pub fn devices_of(&self, id: TaskId) -> Vec<DeviceId> {
        let mut runs = self.runs();
        let run = runs.find(|(task, _)| task.submission.id == id);
        let granted = run.map(|(_, run)| run.placement.devices.iter().map(|given| given.device));
        granted.into_iter().flatten().collect()
    }

    fn runs(&self) -> impl Iterator<Item = (&Task, &Run)> {
        self.tasks.iter().filter_map(|task| match &task.place {
            Place::Running(run) => Some((task, run)),
            _ => None,
        })
    }

    /// Every device there is.
    pub fn devices(&self) -> Vec<DeviceId> {
        let devices = self.pool.nodes.iter().flat_map(|node| &node.devices);
        devices.map(|device| device.id).collect()
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether nothing may start there.
    pub fn is_closed(&self, device: DeviceId) -> bool {
        self.drained.contains(&device) || self.leaving_devices.contains(&device)
    }

    /// Tasks that are not over and fit nowhere any more.
    pub fn hopeless(&self) -> Vec<TaskId> {
        let open = self.tasks.iter().filter(|task| !matches!(task.place, Place::Finished(_)));
        let hopeless = open.filter(|task| self.impossible(&task.submission.request).is_some());
        hopeless.map(|task| task.submission.id).collect()
    }

    /// Those that wait for another one's probe, and what they need.
    pub fn awaiting(&self) -> Vec<(TaskId, Request)> {
        let unfinished = self.tasks.iter().map(|task| &task.submission);
        let awaiting = unfinished.filter(|task| task.probe == ProbePlan::Awaited);
        awaiting.map(|task| (task.id, task.request.clone())).collect()
    }

    pub fn step(&mut self, event: SchedulerEvent, now: Duration) -> Vec<Effect> {
        self.now = now;
        let mut effects = vec![];
        match event {
            SchedulerEvent::Submit(submission) => self.submit(submission, &mut effects),
            SchedulerEvent::Ended { task, attempt, outcome, cause } => {
                self.ended(task, attempt, outcome, cause, &mut effects);
            }
            SchedulerEvent::Observed { task, attempt, device, memory } => {
                self.observed(task, attempt, device, memory);
            }
            SchedulerEvent::Promised { task, attempt, memory } => {
                self.promised(task, attempt, memory);
            }
            SchedulerEvent::Outside { device, held } => {
                if self.devices().contains(&device) {
                    self.outside.insert(device, held);
                }
            }
            SchedulerEvent::Drain(device) => {
                if self.devices().contains(&device) {
                    self.drained.insert(device);
                }
            }
            SchedulerEvent::Restore(device) => {
                self.drained.remove(&device);
            }
            SchedulerEvent::Revise { task, request, expected, probe } => {
                self.revise(task, request, expected, probe);
            }
            SchedulerEvent::Cancel(task) => self.cancel(task, &mut effects),
            // Nobody can look.
            SchedulerEvent::Looked => {}
            SchedulerEvent::Hold => self.held = true,
            SchedulerEvent::Unhold => self.held = false,
            SchedulerEvent::MoreToCome(more) => self.more_to_come = more,
            SchedulerEvent::Adopt { submission, attempt, placement, since } => {
                self.adopt(submission, attempt, placement, since.0, &mut effects);
            }
            SchedulerEvent::HoldRun(run) => {
                self.held_runs.insert(run);
                for task in &mut self.tasks {
                    if task.submission.id.run == run && matches!(task.place, Place::Waiting) {
                        task.place = Place::Blocked;
                    }
                }
            }
            SchedulerEvent::UnholdRun(run) => {
                self.held_runs.remove(&run);
                self.unblock();
            }
            SchedulerEvent::AddNode(node) => {
                let error = self.add_node(node).err();
                effects.extend(error.map(Effect::NotAdded));
            }
            SchedulerEvent::AddDevice { node, device } => {
                let error = self.add_device(node, device).err();
                effects.extend(error.map(Effect::NotAdded));
            }
            SchedulerEvent::RemoveNode(node) => self.remove_node(node),
            SchedulerEvent::RemoveDevice(device) => self.remove_device(device),
        }
        self.hand_out(&mut effects);
        effects
    }

    fn find(&self, id: TaskId) -> Option<usize> {
        self.tasks.iter().position(|task| task.submission.id == id)
    }

    fn submit(&mut self, submission: Submission, effects: &mut Vec<Effect>) {
        let task = submission.id;
        if let Some(reason) = self.refusal(&submission) {
            effects.push(Effect::Refused { task, reason });
            return;
        }
        let outcomes = submission.after.iter().filter_map(|&on| {
            let on = &self.tasks[self.find(on).unwrap()];
            if let Place::Finished(outcome) = on.place { Some(outcome) } else { None }
        });
        let outcomes: Vec<Outcome> = outcomes.collect();
        let end = if outcomes.contains(&Outcome::Interrupted) {
            Some(Outcome::Interrupted)
        } else if outcomes.iter().any(|outcome| !outcome.is_success()) {
            Some(Outcome::Skipped)
        } else {
            None
        };
        if end.is_none() {
            self.mix.see(&submission.request);
        } else {
            // Until it is finished, below.
            self.mix.wait(&submission.request);
        }
        self.tasks.push(Task {
            rank: self.rank(&submission),
            retries: submission.retries,
            submission,
            attempts: 0,
            collateral: 0,
            stopping: false,
            place: Place::Blocked,
        });
        if let Some(outcome) = end {
            self.finish(self.tasks.len() - 1, outcome, effects);
        }
        self.unblock();
    }

    fn rank(&self, submission: &Submission) -> (u32, i128) {
        let priority = i128::from(submission.priority.0);
        let rank = match self.settings.ageing {
            None => priority * 2,
            Some(ageing) => {
                let micros = |length: Duration| i128::try_from(length.as_micros()).unwrap();
                let arrived = submission.arrived.map_or(self.now, |arrived| arrived.0);
                micros(arrived.min(self.now)) + micros(ageing) * priority
            }
        };
        (submission.batch, rank)
    }

    fn refusal(&self, submission: &Submission) -> Option<RefusalReason> {
        if self.find(submission.id).is_some() {
            return Some(RefusalReason::AlreadyKnown);
        }
        for &on in &submission.after {
            if on == submission.id {
                return Some(RefusalReason::AfterItself);
            }
            if self.find(on).is_none() {
                return Some(RefusalReason::UnknownDependency(on));
            }
        }
        self.impossible(&submission.request)
    }

    fn nonsense(request: &Request) -> Option<RefusalReason> {
        let gpus = request.gpus;
        let memory = rooms::memory(request);
        match gpus {
            GpuRequest::Whole(0) => Some(RefusalReason::NotAnAmount(gpus)),
            GpuRequest::Share(Milli(share)) if share >= 1000 => {
                Some(RefusalReason::NotAnAmount(gpus))
            }
            GpuRequest::Share(Milli(0))
                if memory == 0 && request.memory != MemoryRequest::Whole =>
            {
                Some(RefusalReason::NotAnAmount(gpus))
            }
            _ => None,
        }
    }

    fn impossible(&self, request: &Request) -> Option<RefusalReason> {
        let gpus = request.gpus;
        let memory = rooms::memory(request);
        if let Some(reason) = Self::nonsense(request) {
            return Some(reason);
        }
        let wanted = gpus.devices() as usize;
        let stays = |device: &DeviceSpec| !self.leaving_devices.contains(&device.id);
        let suits = |device: &DeviceSpec| {
            stays(device) && self.room(device, &[], Outside::default(), request) >= Some(memory)
        };
        let nodes = self.pool.nodes.iter();
        let nodes: Vec<&NodeSpec> =
            nodes.filter(|node| !self.leaving_nodes.contains(&node.id)).collect();
        let suitable: Vec<usize> = nodes
            .iter()
            .map(|node| node.devices.iter().filter(|device| suits(device)).count())
            .collect();
        let lacking = |node| rooms::lacking(node, request, &[]);
        if (nodes.iter().zip(&suitable))
            .any(|(node, &suitable)| suitable >= wanted && lacking(node) == [0, 0, 0])
        {
            return None;
        }
        if nodes.is_empty() {
            return Some(RefusalReason::NoMachine);
        }
        let number = |count: usize| u32::try_from(count).unwrap();
        let devices: Vec<usize> = nodes
            .iter()
            .map(|node| node.devices.iter().filter(|device| stays(device)).count())
            .collect();
        let most_gpus = *devices.iter().max().unwrap();
        if most_gpus < wanted {
            return Some(RefusalReason::TooManyGpus {
                wanted: number(wanted),
                most_gpus: number(most_gpus),
            });
        }
        let best = *suitable.iter().max().unwrap();
        if wanted > 0 && best == 0 {
            let devices = self.pool.nodes.iter().flat_map(|node| &node.devices);
            let devices = devices.filter(|device| stays(device));
            let allowed = devices.filter(|device| request.models.contains(device.model));
            let allowed: Vec<&DeviceSpec> = allowed.collect();
            let shares = matches!(request.gpus, GpuRequest::Share(_));
            if shares && !allowed.is_empty() && allowed.iter().all(|device| device.one_process) {
                return Some(RefusalReason::OneProcessEach);
            }
            return Some(match allowed.iter().map(|device| device.memory).max() {
                None => RefusalReason::NoSuchModel,
                Some(most) => RefusalReason::TooMuchMemory {
                    wanted: Bytes(memory).max(request.device_memory),
                    most,
                },
            });
        }
        if wanted > best {
            return Some(RefusalReason::TooFewSuitableGpus {
                wanted: number(wanted),
                most_gpus: number(best),
            });
        }
        let least = |index: usize| nodes.iter().map(|node| lacking(node)[index]).min().unwrap();
        Some(if least(0) > 0 {
            let cores = nodes.iter().map(|node| node.cores.len()).max().unwrap();
            RefusalReason::TooManyCores { wanted: request.cores, most_cores: number(cores) }
        } else if least(1) > 0 {
            RefusalReason::TooMuchCpu {
                wanted: request.cpu.max(Milli(request.cores * 1000)),
                most: nodes.iter().map(|node| node.cpu.unwrap()).max().unwrap(),
            }
        } else if least(2) > 0 {
            RefusalReason::TooMuchRam {
                wanted: request.ram,
                most: nodes.iter().map(|node| node.ram.unwrap()).max().unwrap(),
            }
        } else if request.cpu == Milli(0) && request.ram == Bytes(0) {
            RefusalReason::NoNodeHasBoth { devices: number(wanted), cores: request.cores }
        } else {
            RefusalReason::NoNodeHasAll
        })
    }

    fn ended(
        &mut self,
        id: TaskId,
        attempt: u32,
        outcome: Outcome,
        cause: EndCause,
        effects: &mut Vec<Effect>,
    ) {
        let Some(index) = self.find(id) else { return };
        let Place::Running(run) = &self.tasks[index].place else {
            return;
        };
        if run.attempt != attempt {
            return;
        }
        let (request, placement) = (run.request.clone(), run.placement.clone());
        let task = &self.tasks[index];
        let out_of_memory = match cause {
            EndCause::OutOfMemory { peak, at_least } if request.gpus != GpuRequest::None => {
                Some((peak, at_least))
            }
            _ => None,
        };
        let why = if attempt == 0 {
            if task.stopping || outcome == Outcome::Interrupted {
                self.finish(index, Outcome::Interrupted, effects);
                self.unblock();
                self.remove_unused();
                return;
            }
            Some(RetryReason::Probed)
        } else if task.stopping || outcome.is_success() {
            None
        } else if cause == EndCause::Collateral && task.collateral < 16 {
            self.tasks[index].collateral += 1;
            Some(RetryReason::Collateral)
        } else if cause == EndCause::Crowded {
            let alone = Request { memory: MemoryRequest::Whole, ..request.clone() };
            let may_be_alone = request.gpus != GpuRequest::None && request != alone;
            if task.collateral >= 3 && may_be_alone && self.impossible(&alone).is_none() {
                self.change_need(index, alone);
                Some(RetryReason::Alone)
            } else {
                self.tasks[index].collateral = task.collateral.saturating_add(1);
                Some(RetryReason::Collateral)
            }
        } else if let (Some((peak, at_least)), true) = (out_of_memory, outcome.is_worth_retrying())
        {
            let next = self.next_rung(&request, &placement, (peak.0, at_least.0));
            if let Some((why, request)) = next {
                self.change_need(index, request);
                Some(why)
            } else if request.memory == MemoryRequest::Uncounted && task.retries > 0 {
                self.tasks[index].retries -= 1;
                Some(RetryReason::Retry)
            } else {
                None
            }
        } else if outcome.is_worth_retrying() && task.retries > 0 {
            self.tasks[index].retries -= 1;
            Some(RetryReason::Retry)
        } else {
            None
        };
        let task = &mut self.tasks[index];
        if let Some(why) = why {
            // If it waits for no measurement, it is in line at once.
            task.place = Place::Blocked;
            self.mix.wait(&task.submission.request);
            effects.push(Effect::Retrying {
                task: id,
                next_attempt: if task.submission.probe == ProbePlan::First {
                    0
                } else {
                    task.attempts + 1
                },
                outcome,
                why,
                left: task.retries,
            });
        } else {
            self.finish(index, outcome, effects);
        }
        self.unblock();
        self.remove_unused();
    }

    fn next_rung(
        &self,
        request: &Request,
        placement: &Placement,
        (peak, at_least): (u64, u64),
    ) -> Option<(RetryReason, Request)> {
        let mut next = request.clone();
        let devices = || self.pool.nodes.iter().flat_map(|node| &node.devices);
        if let MemoryRequest::Bytes(Bytes(before)) = request.memory {
            let step = 64 << 20;
            let memory = (before + before / 2).max(peak + peak / 4).max(at_least);
            let memory = memory.div_ceil(step) * step;
            next.memory = MemoryRequest::Bytes(Bytes(memory));
            let allowed = devices().filter(|device| request.models.contains(device.model));
            let largest = allowed.map(|device| device.memory.0).max();
            if largest.is_some_and(|largest| memory < largest) && self.impossible(&next).is_none() {
                let memory = Bytes(memory);
                return Some((RetryReason::MoreMemory { memory }, next));
            }
        }
        next.memory = MemoryRequest::Whole;
        let company = |granted: &packhorse_model::Granted| {
            let memory = devices().find(|device| device.id == granted.device).unwrap().memory;
            let held = self
                .outside
                .get(&granted.device)
                .map_or(0, |held| held.memory.0.saturating_sub(held.drawn.0));
            u128::from(held) * 20 > u128::from(memory.0)
        };
        let was_alone = if let MemoryRequest::AtLeast(_) = request.memory {
            placement.devices.iter().all(|granted| {
                let its_own = |device: &&DeviceSpec| device.id == granted.device;
                let memory = devices().find(its_own).unwrap().memory.0;
                let drawn = self.outside.get(&granted.device).map_or(0, |held| held.drawn.0);
                memory.saturating_sub(granted.memory.0 + drawn) * 20 <= memory
            })
        } else {
            matches!(request.gpus, GpuRequest::Whole(_)) && !placement.devices.iter().any(company)
        };
        let its_own = |id| devices().find(|device| device.id == id).unwrap().memory;
        let granted = placement.devices.iter();
        let above = granted.map(|granted| its_own(granted.device)).min();
        if request.memory != MemoryRequest::Whole && !was_alone {
            if above.is_some_and(|above| above.0 > 0) {
                next.device_memory = next.device_memory.max(Bytes(peak));
            }
            return self.impossible(&next).is_none().then_some((RetryReason::Alone, next));
        }
        let above = above?;
        next.device_memory = Bytes(above.0 + 1);
        let possible = above.0 > 0 && self.impossible(&next).is_none();
        possible.then_some((RetryReason::LargerDevice { above }, next))
    }

    fn observed(&mut self, id: TaskId, attempt: u32, device: DeviceId, memory: Bytes) {
        let Some(index) = self.find(id) else { return };
        if let Place::Running(run) = &mut self.tasks[index].place
            && run.attempt == attempt
        {
            run.observed.insert(device, memory);
        }
    }

    fn promised(&mut self, id: TaskId, attempt: u32, memory: Bytes) {
        let Some(index) = self.find(id) else { return };
        let Place::Running(run) = &self.tasks[index].place else {
            return;
        };
        let least = match run.request.memory {
            MemoryRequest::AtLeast(_) => Bytes(0),
            MemoryRequest::Bytes(asked) => asked,
            MemoryRequest::Uncounted | MemoryRequest::Whole => return,
        };
        if run.attempt != attempt {
            return;
        }
        let mut placement = run.placement.clone();
        let observed = run.observed.clone();
        for granted in &mut placement.devices {
            let nodes = self.pool.nodes.iter();
            let mut devices = nodes.flat_map(|node| &node.devices);
            let device = devices.find(|device| device.id == granted.device).unwrap();
            let seen = observed.get(&device.id).copied().unwrap_or_default();
            let all = self.tenants(device).iter().map(|tenant| tenant.memory).sum::<u64>();
            let others = all - granted.memory.max(seen).0 + self.outside(device.id).memory.0;
            let most = device.memory.0.saturating_sub(others);
            granted.memory = memory.min(Bytes(most)).max(least);
        }
        if let Place::Running(run) = &mut self.tasks[index].place {
            run.placement = placement;
        }
    }

    fn revise(
        &mut self,
        id: TaskId,
        request: Request,
        expected: Option<Duration>,
        probe: ProbePlan,
    ) {
        let Some(index) = self.find(id) else { return };
        if self.impossible(&request).is_some() {
            return;
        }
        let task = &mut self.tasks[index];
        match &task.place {
            Place::Finished(_) => {}
            Place::Running(run) if run.attempt > 0 => {}
            _ => {
                self.change_need(index, request);
                let task = &mut self.tasks[index];
                task.submission.expected = expected;
                task.submission.probe = probe;
                if matches!(task.place, Place::Waiting) {
                    task.place = Place::Blocked;
                }
            }
        }
        self.unblock();
    }

    fn change_need(&mut self, index: usize, request: Request) {
        let task = &mut self.tasks[index];
        let runs = matches!(task.place, Place::Running(_));
        if runs {
            self.mix.wait(&task.submission.request);
        }
        self.mix.forget(&task.submission.request);
        self.mix.see(&request);
        if runs {
            self.mix.stop_waiting(&request);
        }
        task.submission.request = request;
    }

    fn cancel(&mut self, id: TaskId, effects: &mut Vec<Effect>) {
        let Some(index) = self.find(id) else { return };
        let task = &mut self.tasks[index];
        match &task.place {
            Place::Finished(_) => {}
            Place::Blocked | Place::Waiting => self.finish(index, Outcome::Interrupted, effects),
            Place::Running(_) if task.stopping => {}
            Place::Running(run) => {
                effects.push(Effect::Stop { task: id, attempt: run.attempt });
                task.stopping = true;
            }
        }
    }

    /// Finishes a task and all after it that cannot start any more.
    fn finish(&mut self, index: usize, outcome: Outcome, effects: &mut Vec<Effect>) {
        let mut line = VecDeque::from([(index, outcome)]);
        while let Some((index, outcome)) = line.pop_front() {
            let task = &mut self.tasks[index];
            if matches!(task.place, Place::Finished(_)) {
                continue;
            }
            if matches!(task.place, Place::Blocked | Place::Waiting) {
                self.mix.stop_waiting(&task.submission.request);
            }
            task.place = Place::Finished(outcome);
            let id = task.submission.id;
            effects.push(Effect::Finished { task: id, attempts: task.attempts, outcome });
            if !outcome.is_success() {
                let interrupted = outcome == Outcome::Interrupted;
                let next = if interrupted { Outcome::Interrupted } else { Outcome::Skipped };
                for (index, task) in self.tasks.iter().enumerate() {
                    if task.submission.after.contains(&id) {
                        line.push_back((index, next));
                    }
                }
            }
        }
    }

    /// Puts in line whose dependencies have all succeeded.
    fn unblock(&mut self) {
        for index in 0..self.tasks.len() {
            let ready = self.tasks[index].submission.after.iter().all(|&on| {
                let on = &self.tasks[self.find(on).unwrap()];
                matches!(on.place, Place::Finished(outcome) if outcome.is_success())
            });
            let task = &mut self.tasks[index];
            let awaits = task.submission.probe == ProbePlan::Awaited;
            let held = self.held_runs.contains(&task.submission.id.run);
            if ready && !awaits && !held && matches!(task.place, Place::Blocked) {
                task.place = Place::Waiting;
            }
        }
    }
}
