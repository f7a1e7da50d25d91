//! A small language for scheduler tests: `lab.submit(task(1).whole(2))` returns
//! what the scheduler does about it, as text like `start 1 on 10+11`.

use std::time::Duration;

use crate::{
    CoreSpec, DeviceSpec, Effect, EndCause, NodeSpec, Now, Outside, OwnerId, PlacedTask, Pool,
    ProbePlan, RetryReason, SchedulerEvent, SchedulerSettings, SchedulerState, Submission, explain,
    step,
};
use packhorse_model::{
    Bytes, CoreId, DeviceId, GpuRequest, MemoryRequest, Milli, Models, NodeId, Outcome, Placement,
    Placing, Priority, Request, RunId, TaskId,
};

pub const FAILED: Outcome = Outcome::Failed { code: 1 };

/// So many GiB.
pub const fn gib(number: u64) -> Bytes {
    Bytes(number << 30)
}

/// Task `number` of the only run.
pub fn id(number: u32) -> TaskId {
    TaskId::new(RunId(1), number)
}

/// A task that needs one whole device.
pub fn task(number: u32) -> Builder {
    Builder(Submission::new(id(number), Request::default()))
}

#[derive(Clone)]
pub struct Builder(pub Submission);

impl Builder {
    pub fn whole(mut self, count: u32) -> Self {
        self.0.request.gpus = GpuRequest::Whole(count);
        self
    }

    pub fn share(mut self, milli: u32) -> Self {
        self.0.request.gpus = GpuRequest::Share(Milli(milli));
        self
    }

    pub fn no_gpu(mut self) -> Self {
        self.0.request.gpus = GpuRequest::None;
        self
    }

    pub fn cores(mut self, count: u32) -> Self {
        self.0.request.cores = count;
        self
    }

    /// A place on a device with so many GiB of its memory.
    pub fn memory(mut self, number: u64) -> Self {
        self.0.request.gpus = GpuRequest::Share(Milli(0));
        self.with_memory(number)
    }

    /// The same beside what it needs else.
    pub fn with_memory(mut self, number: u64) -> Self {
        self.0.request.memory = MemoryRequest::Bytes(gib(number));
        self
    }

    /// A place on a device with all that is free of its memory, so many GiB at least.
    pub fn at_least(mut self, number: u64) -> Self {
        self.0.request.gpus = GpuRequest::Share(Milli(0));
        self.0.request.memory = MemoryRequest::AtLeast(gib(number));
        self
    }

    /// Alone on its devices.
    pub fn alone(mut self) -> Self {
        self.0.request.gpus = GpuRequest::Share(Milli(0));
        self.0.request.memory = MemoryRequest::Whole;
        self
    }

    pub fn models(mut self, models: &[u8]) -> Self {
        self.0.request.models = Models(models.iter().map(|model| 1 << model).sum());
        self
    }

    pub fn device_memory(mut self, number: u64) -> Self {
        self.0.request.device_memory = gib(number);
        self
    }

    pub fn cpu(mut self, milli: u32) -> Self {
        self.0.request.cpu = Milli(milli);
        self
    }

    pub fn ram(mut self, number: u64) -> Self {
        self.0.request.ram = gib(number);
        self
    }

    pub fn batch(mut self, batch: u32) -> Self {
        self.0.batch = batch;
        self
    }

    pub fn expected(mut self, seconds: u64) -> Self {
        self.0.expected = Some(Duration::from_secs(seconds));
        self
    }

    pub fn probe(mut self) -> Self {
        self.0.probe = ProbePlan::First;
        self
    }

    /// Another one like it is measured first.
    pub fn awaiting(mut self) -> Self {
        self.0.probe = ProbePlan::Awaited;
        self
    }

    pub fn priority(mut self, priority: i32) -> Self {
        self.0.priority = Priority(priority);
        self
    }

    pub fn retries(mut self, retries: u32) -> Self {
        self.0.retries = retries;
        self
    }

    pub fn limit(mut self, seconds: u64) -> Self {
        self.0.time_limit = Some(Duration::from_secs(seconds));
        self
    }

    /// It belongs to this run instead of the first.
    pub fn run(mut self, run: u32) -> Self {
        self.0.id.run = RunId(run);
        self
    }

    pub fn owner(mut self, owner: u32) -> Self {
        self.0.owner = OwnerId(owner);
        self
    }

    /// It came at this time.
    pub fn arrived(mut self, seconds: u64) -> Self {
        self.0.arrived = Some(Now(Duration::from_secs(seconds)));
        self
    }

    pub fn after(mut self, numbers: &[u32]) -> Self {
        self.0.after = numbers.iter().map(|&number| id(number)).collect();
        self
    }
}

/// A pool in the making. Devices are 10, 11, …; the next node's 20, 21, …
#[derive(Clone, Default)]
pub struct Lab {
    pool: Pool,
    settings: SchedulerSettings,
}

impl Lab {
    /// Adds a node with so many devices and no cores.
    pub fn node(mut self, devices: u32) -> Self {
        let number = u32::try_from(self.pool.nodes.len()).unwrap() + 1;
        let device = |index| DeviceSpec {
            id: DeviceId(number * 10 + index),
            near_cores: vec![],
            memory: Bytes(0),
            model: 0,
            one_process: false,
        };
        self.pool.nodes.push(NodeSpec {
            id: NodeId(number),
            devices: (0..devices).map(device).collect(),
            cores: vec![],
            cpu: None,
            ram: None,
        });
        self
    }

    /// Gives the last node cores 0, 1, …
    pub fn cores(self, count: u32) -> Self {
        self.threads(count, 1, 1)
    }

    /// Gives the last node so many physical cores with so many threads each, in so many
    /// parts. As on most machines, cores 0, 1, … are their first threads, and then come
    /// the second ones.
    pub fn threads(mut self, physical: u32, threads: u32, parts: u32) -> Self {
        let core = |number: u32| CoreSpec {
            id: CoreId(number),
            physical: number % physical,
            numa: number % physical * parts / physical,
        };
        let cores = (0..physical * threads).map(core);
        self.pool.nodes.last_mut().unwrap().cores = cores.collect();
        self
    }

    /// Takes all cores from the last node but these.
    pub fn only(mut self, cores: &[u32]) -> Self {
        let own = &mut self.pool.nodes.last_mut().unwrap().cores;
        own.retain(|core| cores.contains(&core.id.0));
        self
    }

    /// Says which cores are near a device of the last node.
    pub fn near(mut self, device: usize, cores: &[u32]) -> Self {
        let device = &mut self.pool.nodes.last_mut().unwrap().devices[device];
        device.near_cores = cores.iter().map(|&core| CoreId(core)).collect();
        self
    }

    /// Gives the devices of the last node so many GiB each.
    pub fn sizes(mut self, numbers: &[u64]) -> Self {
        let devices = &mut self.pool.nodes.last_mut().unwrap().devices;
        for (device, &number) in devices.iter_mut().zip(numbers) {
            device.memory = gib(number);
        }
        self
    }

    /// Says of which models the devices of the last node are.
    pub fn models(mut self, models: &[u8]) -> Self {
        let devices = &mut self.pool.nodes.last_mut().unwrap().devices;
        for (device, &model) in devices.iter_mut().zip(models) {
            device.model = model;
        }
        self
    }

    /// SchedulerCounts what keeps the last node's cores busy, and its main memory in GiB.
    pub fn host(mut self, cpu: u32, ram: u64) -> Self {
        let node = self.pool.nodes.last_mut().unwrap();
        node.cpu = Some(Milli(cpu));
        node.ram = Some(gib(ram));
        self
    }

    pub fn ageing(mut self, seconds: u64) -> Self {
        self.settings.ageing = Some(Duration::from_secs(seconds));
        self
    }

    pub fn slots(mut self, slots: u32) -> Self {
        self.pool.slots = Some(slots);
        self
    }

    pub fn spread(mut self) -> Self {
        self.settings.policy = Placing::Spread;
        self
    }

    pub fn max_per_device(mut self, most: u32) -> Self {
        self.settings.max_per_device = Some(most);
        self
    }

    /// One process at a time may compute on a device.
    pub fn one_process(mut self, device: u32) -> Self {
        let mut devices = self.pool.nodes.iter_mut().flat_map(|node| &mut node.devices);
        let device = devices.find(|spec| spec.id == DeviceId(device));
        device.expect("it is there").one_process = true;
        self
    }

    /// A choice is made by a look that is no older than this.
    pub fn look_lasts(mut self, seconds: u64) -> Self {
        self.settings.look_lasts = Some(Duration::from_secs(seconds));
        self
    }

    pub fn start(self) -> Running {
        Running {
            state: SchedulerState::new(&self.pool, self.settings).unwrap(),
            now: Duration::ZERO,
        }
    }
}

/// A scheduler at work, with a clock that the test moves.
pub struct Running {
    pub state: SchedulerState,
    now: Duration,
}

impl Running {
    pub fn step(&mut self, event: SchedulerEvent) -> String {
        let mut effects = Vec::new();
        step(&mut self.state, event, Now(self.now), &mut effects);
        self.state.check();
        let texts: Vec<String> = effects.iter().map(text).collect();
        texts.join(", ")
    }

    pub fn submit(&mut self, task: Builder) -> String {
        self.step(SchedulerEvent::Submit(task.0))
    }

    /// Ends the running attempt of a task, by its own doing.
    pub fn end(&mut self, number: u32, outcome: Outcome) -> String {
        self.end_by(number, outcome, EndCause::Own)
    }

    /// Ends the running attempt of a task for lack of memory.
    pub fn out_of_memory(&mut self, number: u32, peak: u64) -> String {
        let peak = gib(peak);
        self.end_by(number, FAILED, EndCause::OutOfMemory { peak, at_least: Bytes(0) })
    }

    pub fn end_by(&mut self, number: u32, outcome: Outcome, cause: EndCause) -> String {
        let running = self.running(number);
        self.step(SchedulerEvent::Ended {
            task: running.task,
            attempt: running.attempt,
            outcome,
            cause,
        })
    }

    /// What runs of task `number`, of whichever run.
    pub fn running(&self, number: u32) -> PlacedTask {
        let mut running = self.state.running().into_iter();
        let running = running.find(|running| running.task.number == number);
        running.expect("it runs")
    }

    pub fn done(&mut self, number: u32) -> String {
        self.end(number, Outcome::Succeeded)
    }

    pub fn cancel(&mut self, number: u32) -> String {
        self.step(SchedulerEvent::Cancel(id(number)))
    }

    /// The driver shows that it holds so many GiB of a device.
    pub fn observe(&mut self, number: u32, device: u32, memory: u64) -> String {
        let attempt = self.running(number).attempt;
        self.step(SchedulerEvent::Observed {
            task: id(number),
            attempt,
            device: DeviceId(device),
            memory: gib(memory),
        })
    }

    pub fn promise(&mut self, number: u32, memory: u64) -> String {
        let running = self.running(number);
        self.step(SchedulerEvent::Promised {
            task: running.task,
            attempt: running.attempt,
            memory: gib(memory),
        })
    }

    pub fn outside(&mut self, device: u32, held: Outside) -> String {
        let device = DeviceId(device);
        self.step(SchedulerEvent::Outside { device, held })
    }

    /// Strangers' processes hold so many GiB of a device.
    pub fn strangers(&mut self, device: u32, memory: u64) -> String {
        let held = Outside { memory: gib(memory), ..Outside::default() };
        self.outside(device, held)
    }

    /// A program of strangers holds so many GiB of a device.
    pub fn computing(&mut self, device: u32, memory: u64) -> String {
        let held = Outside { memory: gib(memory), has_strangers: true, ..Outside::default() };
        self.outside(device, held)
    }

    /// A desktop holds so many GiB of a device.
    pub fn drawing(&mut self, device: u32, memory: u64) -> String {
        let held = Outside { memory: gib(memory), drawn: gib(memory), ..Outside::default() };
        self.outside(device, held)
    }

    pub fn looked(&mut self) -> String {
        self.step(SchedulerEvent::Looked)
    }

    pub fn drain(&mut self, device: u32) -> String {
        self.step(SchedulerEvent::Drain(DeviceId(device)))
    }

    pub fn restore(&mut self, device: u32) -> String {
        self.step(SchedulerEvent::Restore(DeviceId(device)))
    }

    /// What a task needs is known to be this.
    pub fn revise(&mut self, task: Builder) -> String {
        self.step(SchedulerEvent::Revise {
            task: task.0.id,
            request: task.0.request,
            expected: task.0.expected,
            probe: task.0.probe,
        })
    }

    pub fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// What `explain` says, with devices called `gpu10`, `gpu11`, …
    pub fn why(&self, number: u32) -> String {
        let name = |device: DeviceId| format!("gpu{}", device.0);
        explain(&self.state, id(number), Now(self.now), &name, &|_| Vec::new())
            .expect("it is known")
    }

    /// The devices kept for the first in line.
    pub fn reserved(&self) -> Vec<u32> {
        let kept = self.state.devices().filter(|load| load.reserved_for.is_some());
        kept.map(|load| load.device.0).collect()
    }
}

fn text(effect: &Effect) -> String {
    match effect {
        Effect::Refused { task, reason } => format!("refuse {}: {reason}", task.number),
        Effect::Start { task, attempt, placement, time_limit } => {
            let again = if *attempt == 1 { String::new() } else { format!("#{attempt}") };
            let limit = time_limit.map(|limit| format!(" for {}s", limit.as_secs()));
            let limit = limit.unwrap_or_default();
            format!("start {}{again} {}{limit}", task.number, place(placement))
        }
        Effect::Look => "look".to_owned(),
        Effect::NotAdded(error) => format!("not added: {error}"),
        Effect::Stop { task, attempt } => format!("stop {}#{attempt}", task.number),
        Effect::Retrying { task, next_attempt, why, .. } => {
            let why = match why {
                RetryReason::Retry => "retry".to_owned(),
                RetryReason::Collateral => "collateral".to_owned(),
                RetryReason::MoreMemory { memory } => format!("with {memory}"),
                RetryReason::Alone => "alone".to_owned(),
                RetryReason::LargerDevice { above } => format!("above {above}"),
                RetryReason::Probed => "probed".to_owned(),
            };
            format!("{why} {}#{next_attempt}", task.number)
        }
        Effect::Finished { task, attempts, outcome } => {
            format!("{} {}/{attempts}", outcome.word(), task.number)
        }
    }
}

fn place(placement: &Placement) -> String {
    let devices = placement.devices.iter().map(|granted| granted.device.0.to_string());
    let mut text = match placement.devices.first() {
        None => format!("at node {}", placement.node.0),
        Some(granted) if granted.share == Milli(0) => {
            format!("on {} with {}", join(devices), granted.memory)
        }
        Some(granted) if granted.share < Milli::ONE => {
            format!("on {}:{}", join(devices), granted.share)
        }
        Some(_) => format!("on {}", join(devices)),
    };
    if !placement.cores.is_empty() {
        text += " cores ";
        text += &join(placement.cores.iter().map(ToString::to_string));
    }
    text
}

fn join(ids: impl Iterator<Item = String>) -> String {
    ids.collect::<Vec<_>>().join("+")
}
