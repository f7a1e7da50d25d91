//! The scheduler again, slow and obvious: one list of tasks in the order of
//! submission, and everything else counted anew whenever it is needed.

use std::cmp::Reverse;
use std::collections::VecDeque;

use packhorse_core::{
    DeviceSpec, Effect, Event, NodeSpec, Policy, Pool, Refusal, Settings, Submission,
};
use packhorse_model::{
    CoreId, DeviceId, GpuRequest, Granted, Milli, NodeId, Outcome, Placement, Request, TaskId,
};

pub struct Model {
    pool: Pool,
    settings: Settings,
    held: bool,
    tasks: Vec<Task>,
    reservation: Option<Reservation>,
}

struct Task {
    submission: Submission,
    attempts: u32,
    stopping: bool,
    place: Place,
}

enum Place {
    Blocked,
    Waiting,
    Running(Placement),
    Finished(Outcome),
}

struct Reservation {
    task: TaskId,
    node: NodeId,
    devices: Vec<DeviceId>,
}

impl Model {
    pub fn new(pool: Pool, settings: Settings) -> Self {
        Self {
            pool,
            settings,
            held: false,
            tasks: vec![],
            reservation: None,
        }
    }

    /// Every task that was taken, in the order of submission.
    pub fn known(&self) -> Vec<TaskId> {
        self.tasks.iter().map(|task| task.submission.id).collect()
    }

    /// What runs, as (task, attempt).
    pub fn running(&self) -> Vec<(TaskId, u32)> {
        let running = self
            .tasks
            .iter()
            .filter(|task| matches!(task.place, Place::Running(_)));
        running
            .map(|task| (task.submission.id, task.attempts))
            .collect()
    }

    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = vec![];
        match event {
            Event::Submit(submission) => self.submit(submission, &mut effects),
            Event::Ended {
                task,
                attempt,
                outcome,
            } => self.ended(task, attempt, outcome, &mut effects),
            Event::Cancel(task) => self.cancel(task, &mut effects),
            Event::Hold => self.held = true,
            Event::Unhold => self.held = false,
        }
        self.hand_out(&mut effects);
        effects
    }

    fn find(&self, id: TaskId) -> Option<usize> {
        self.tasks.iter().position(|task| task.submission.id == id)
    }

    // What happens to tasks.

    fn submit(&mut self, submission: Submission, effects: &mut Vec<Effect>) {
        let task = submission.id;
        if let Some(reason) = self.refusal(&submission) {
            effects.push(Effect::Refused { task, reason });
            return;
        }
        let outcomes = submission.after.iter().filter_map(|&on| {
            let on = &self.tasks[self.find(on).unwrap()];
            if let Place::Finished(outcome) = on.place {
                Some(outcome)
            } else {
                None
            }
        });
        let outcomes: Vec<Outcome> = outcomes.collect();
        let end = if outcomes.contains(&Outcome::Interrupted) {
            Some(Outcome::Interrupted)
        } else if outcomes.iter().any(|outcome| !outcome.is_success()) {
            Some(Outcome::Skipped)
        } else {
            None
        };
        self.tasks.push(Task {
            submission,
            attempts: 0,
            stopping: false,
            place: Place::Blocked,
        });
        if let Some(outcome) = end {
            self.finish(self.tasks.len() - 1, outcome, effects);
        }
        self.unblock();
    }

    fn refusal(&self, submission: &Submission) -> Option<Refusal> {
        if self.find(submission.id).is_some() {
            return Some(Refusal::AlreadyKnown);
        }
        for &on in &submission.after {
            if on == submission.id {
                return Some(Refusal::AfterItself);
            }
            if self.find(on).is_none() {
                return Some(Refusal::UnknownDependency(on));
            }
        }
        let gpus = submission.request.gpus;
        match gpus {
            GpuRequest::Whole(0) => return Some(Refusal::NotAnAmount(gpus)),
            GpuRequest::Share(Milli(share)) if share == 0 || share >= 1000 => {
                return Some(Refusal::NotAnAmount(gpus));
            }
            _ => {}
        }
        let (devices, cores) = (gpus.devices() as usize, submission.request.cores as usize);
        let nodes = &self.pool.nodes;
        if nodes
            .iter()
            .any(|node| node.devices.len() >= devices && node.cores.len() >= cores)
        {
            return None;
        }
        let most_gpus = nodes.iter().map(|node| node.devices.len()).max().unwrap();
        let most_cores = nodes.iter().map(|node| node.cores.len()).max().unwrap();
        let number = |count: usize| u32::try_from(count).unwrap();
        Some(if most_gpus < devices {
            Refusal::TooManyGpus {
                wanted: number(devices),
                most_gpus: number(most_gpus),
            }
        } else if most_cores < cores {
            Refusal::TooManyCores {
                wanted: number(cores),
                most_cores: number(most_cores),
            }
        } else {
            Refusal::NoNodeHasBoth {
                devices: number(devices),
                cores: number(cores),
            }
        })
    }

    fn ended(&mut self, id: TaskId, attempt: u32, outcome: Outcome, effects: &mut Vec<Effect>) {
        let Some(index) = self.find(id) else { return };
        let task = &mut self.tasks[index];
        if !matches!(task.place, Place::Running(_)) || task.attempts != attempt {
            return;
        }
        let again = task.attempts <= task.submission.retries && !task.stopping;
        if again && outcome.is_worth_retrying() {
            task.place = Place::Waiting;
            effects.push(Effect::Retrying {
                task: id,
                next_attempt: attempt + 1,
                outcome,
            });
        } else {
            self.finish(index, outcome, effects);
        }
        self.unblock();
    }

    fn cancel(&mut self, id: TaskId, effects: &mut Vec<Effect>) {
        let Some(index) = self.find(id) else { return };
        let task = &mut self.tasks[index];
        match task.place {
            Place::Finished(_) => {}
            Place::Blocked | Place::Waiting => self.finish(index, Outcome::Interrupted, effects),
            Place::Running(_) if task.stopping => {}
            Place::Running(_) => {
                task.stopping = true;
                effects.push(Effect::Stop {
                    task: id,
                    attempt: task.attempts,
                });
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
            task.place = Place::Finished(outcome);
            let id = task.submission.id;
            effects.push(Effect::Finished {
                task: id,
                attempts: task.attempts,
                outcome,
            });
            if !outcome.is_success() {
                let interrupted = outcome == Outcome::Interrupted;
                let next = if interrupted {
                    Outcome::Interrupted
                } else {
                    Outcome::Skipped
                };
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
            if ready && matches!(task.place, Place::Blocked) {
                task.place = Place::Waiting;
            }
        }
    }

    // Who may start.

    fn hand_out(&mut self, effects: &mut Vec<Effect>) {
        loop {
            let line = self.line();
            let first = line.first().map(|&index| self.tasks[index].submission.id);
            if self.reservation.as_ref().map(|kept| kept.task) != first {
                self.reservation = None;
            }
            if line.is_empty() || self.held || !self.has_slot() {
                return;
            }
            if let Some(placement) = self.best_place(line[0], false) {
                self.start(line[0], placement, effects);
                continue;
            }
            if self.reservation.is_none() {
                self.reserve(line[0]);
            }
            for &index in &line[1..] {
                if self.has_slot()
                    && let Some(placement) = self.best_place(index, true)
                {
                    self.start(index, placement, effects);
                }
            }
            return;
        }
    }

    fn line(&self) -> Vec<usize> {
        let waits = |&index: &usize| matches!(self.tasks[index].place, Place::Waiting);
        let mut line: Vec<usize> = (0..self.tasks.len()).filter(waits).collect();
        line.sort_by_key(|&index| self.tasks[index].submission.priority);
        line
    }

    fn has_slot(&self) -> bool {
        self.pool
            .slots
            .is_none_or(|slots| self.running().len() < slots as usize)
    }

    fn start(&mut self, index: usize, placement: Placement, effects: &mut Vec<Effect>) {
        let task = &mut self.tasks[index];
        task.attempts += 1;
        effects.push(Effect::Start {
            task: task.submission.id,
            attempt: task.attempts,
            placement: placement.clone(),
            time_limit: task.submission.time_limit,
        });
        task.place = Place::Running(placement);
    }

    fn reserve(&mut self, index: usize) {
        let task = &self.tasks[index];
        let Request { gpus, cores } = task.submission.request;
        let load = |device: &DeviceSpec| (self.used(device.id), self.attempts_on(device.id));
        let mut choices = vec![];
        for (order, node) in self.pool.nodes.iter().enumerate() {
            let wanted = gpus.devices() as usize;
            if node.devices.len() < wanted || node.cores.len() < cores as usize {
                continue;
            }
            let mut devices: Vec<usize> = (0..node.devices.len()).collect();
            devices.sort_by_key(|&device| (load(&node.devices[device]), device));
            devices.truncate(wanted);
            let used: u32 = devices
                .iter()
                .map(|&device| load(&node.devices[device]).0)
                .sum();
            let attempts: usize = devices
                .iter()
                .map(|&device| load(&node.devices[device]).1)
                .sum();
            let lacking = (cores as usize).saturating_sub(self.free_cores(node).len());
            choices.push(((used, attempts, lacking, order), node, devices));
        }
        choices.sort_by_key(|choice| choice.0);
        let (_, node, devices) = choices.remove(0);
        self.reservation = Some(Reservation {
            task: task.submission.id,
            node: node.id,
            devices: devices
                .iter()
                .map(|&device| node.devices[device].id)
                .collect(),
        });
    }

    // Where.

    fn best_place(&self, index: usize, respectful: bool) -> Option<Placement> {
        let request = &self.tasks[index].submission.request;
        let kept = self.reservation.as_ref().filter(|_| respectful);
        let mut choices = vec![];
        for (order, node) in self.pool.nodes.iter().enumerate() {
            let free_cores = self.free_cores(node);
            let Some(left) = free_cores.len().checked_sub(request.cores as usize) else {
                continue;
            };
            if let Some(kept) = kept
                && kept.node == node.id
                && request.cores > 0
                && left < self.cores_wanted(kept.task)
            {
                continue;
            }
            let open: Vec<&DeviceSpec> = node
                .devices
                .iter()
                .filter(|device| kept.is_none_or(|kept| !kept.devices.contains(&device.id)))
                .collect();
            let pack = self.settings.policy == Policy::Pack;
            match request.gpus {
                GpuRequest::None => {
                    let load = if pack {
                        free_cores.len()
                    } else {
                        self.attempts_at(node.id)
                    };
                    choices.push(((load, 0), order, node, vec![]));
                }
                GpuRequest::Share(share) => {
                    for device in open {
                        let used = self.used(device.id);
                        let attempts = self.attempts_on(device.id);
                        let most = self.settings.max_per_device.unwrap_or(u32::MAX) as usize;
                        if used + share.0 <= 1000 && attempts < most {
                            let load = (used as usize, attempts);
                            let score = if pack { (1000 - load.0, 0) } else { load };
                            choices.push((score, order, node, vec![device]));
                        }
                    }
                }
                GpuRequest::Whole(wanted) => {
                    let mut free = open;
                    free.retain(|device| self.attempts_on(device.id) == 0);
                    let many = free.len();
                    if many >= wanted as usize {
                        free.truncate(wanted as usize);
                        let score = if pack { many } else { usize::MAX - many };
                        choices.push(((score, 0), order, node, free));
                    }
                }
            }
        }
        // Stable: among equals the first of the pool's order stays first.
        choices.sort_by_key(|choice| choice.0);
        let (_, _, node, devices) = choices.into_iter().next()?;
        Some(self.placement(request, node, &devices))
    }

    fn placement(&self, request: &Request, node: &NodeSpec, devices: &[&DeviceSpec]) -> Placement {
        let is_near = |core: CoreId| {
            devices
                .iter()
                .any(|device| device.near_cores.contains(&core))
        };
        let mut cores = self.free_cores(node);
        cores.sort_by_key(|&core| Reverse(is_near(core)));
        cores.truncate(request.cores as usize);
        let place = |core: &CoreId| node.cores.iter().position(|other| other == core);
        cores.sort_by_key(place);
        let granted = |device: &&DeviceSpec| Granted {
            device: device.id,
            share: request.gpus.share(),
        };
        Placement {
            node: node.id,
            devices: devices.iter().map(granted).collect(),
            cores,
        }
    }

    // Counting.

    fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.tasks.iter().filter_map(|task| match &task.place {
            Place::Running(placement) => Some(placement),
            _ => None,
        })
    }

    fn grants(&self, device: DeviceId) -> impl Iterator<Item = Milli> {
        let granted = self.placements().flat_map(|placement| &placement.devices);
        granted
            .filter(move |granted| granted.device == device)
            .map(|granted| granted.share)
    }

    fn used(&self, device: DeviceId) -> u32 {
        self.grants(device).map(|share| share.0).sum()
    }

    fn attempts_on(&self, device: DeviceId) -> usize {
        self.grants(device).count()
    }

    fn attempts_at(&self, node: NodeId) -> usize {
        self.placements()
            .filter(|placement| placement.node == node)
            .count()
    }

    fn free_cores(&self, node: &NodeSpec) -> Vec<CoreId> {
        let mut free = node.cores.clone();
        for placement in self
            .placements()
            .filter(|placement| placement.node == node.id)
        {
            free.retain(|core| !placement.cores.contains(core));
        }
        free
    }

    fn cores_wanted(&self, task: TaskId) -> usize {
        self.tasks[self.find(task).unwrap()]
            .submission
            .request
            .cores as usize
    }
}
