//! A small language for scheduler tests: `lab.submit(task(1).whole(2))` returns
//! what the scheduler does about it, as text like `start 1 on 10+11`.

use std::time::Duration;

use packhorse_core::{
    DeviceSpec, Effect, Event, NodeSpec, Now, Policy, Pool, Settings, State, Submission, explain,
    step,
};
use packhorse_model::{
    CoreId, DeviceId, GpuRequest, Milli, NodeId, Outcome, Placement, Priority, Request, RunId,
    TaskId,
};

pub const FAILED: Outcome = Outcome::Failed { code: 1 };

/// Task `number` of the only run.
pub fn id(number: u32) -> TaskId {
    TaskId::new(RunId(1), number)
}

/// A task that needs one whole device.
pub fn task(number: u32) -> Builder {
    Builder(Submission {
        id: id(number),
        request: Request::default(),
        priority: Priority(0),
        retries: 0,
        time_limit: None,
        after: vec![],
    })
}

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

    pub fn after(mut self, numbers: &[u32]) -> Self {
        self.0.after = numbers.iter().map(|&number| id(number)).collect();
        self
    }
}

/// A pool in the making. Devices are 10, 11, …; the next node's 20, 21, …
#[derive(Default)]
pub struct Lab {
    pool: Pool,
    settings: Settings,
}

impl Lab {
    /// Adds a node with so many devices and no cores.
    pub fn node(mut self, devices: u32) -> Self {
        let number = u32::try_from(self.pool.nodes.len()).unwrap() + 1;
        let device = |index| DeviceSpec {
            id: DeviceId(number * 10 + index),
            near_cores: vec![],
        };
        self.pool.nodes.push(NodeSpec {
            id: NodeId(number),
            devices: (0..devices).map(device).collect(),
            cores: vec![],
        });
        self
    }

    /// Gives the last node cores 0, 1, …
    pub fn cores(mut self, count: u32) -> Self {
        self.pool.nodes.last_mut().unwrap().cores = (0..count).map(CoreId).collect();
        self
    }

    /// Says which cores are near a device of the last node.
    pub fn near(mut self, device: usize, cores: &[u32]) -> Self {
        let device = &mut self.pool.nodes.last_mut().unwrap().devices[device];
        device.near_cores = cores.iter().map(|&core| CoreId(core)).collect();
        self
    }

    pub fn slots(mut self, slots: u32) -> Self {
        self.pool.slots = Some(slots);
        self
    }

    pub fn spread(mut self) -> Self {
        self.settings.policy = Policy::Spread;
        self
    }

    pub fn max_per_device(mut self, most: u32) -> Self {
        self.settings.max_per_device = Some(most);
        self
    }

    pub fn start(self) -> Running {
        Running {
            state: State::new(&self.pool, self.settings).unwrap(),
            now: Duration::ZERO,
        }
    }
}

/// A scheduler at work, with a clock that the test moves.
pub struct Running {
    pub state: State,
    now: Duration,
}

impl Running {
    pub fn step(&mut self, event: Event) -> String {
        let mut effects = Vec::new();
        step(&mut self.state, event, Now(self.now), &mut effects);
        self.state.check();
        let texts: Vec<String> = effects.iter().map(text).collect();
        texts.join(", ")
    }

    pub fn submit(&mut self, task: Builder) -> String {
        self.step(Event::Submit(task.0))
    }

    /// Ends the running attempt of a task.
    pub fn end(&mut self, number: u32, outcome: Outcome) -> String {
        let running = self.state.running();
        let running = running.iter().find(|running| running.task == id(number));
        let attempt = running.expect("it runs").attempt;
        self.step(Event::Ended {
            task: id(number),
            attempt,
            outcome,
        })
    }

    pub fn done(&mut self, number: u32) -> String {
        self.end(number, Outcome::Succeeded)
    }

    pub fn cancel(&mut self, number: u32) -> String {
        self.step(Event::Cancel(id(number)))
    }

    pub fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// What `explain` says, with devices called `gpu10`, `gpu11`, …
    pub fn why(&self, number: u32) -> String {
        let explanation = explain(&self.state, id(number), Now(self.now)).expect("it is known");
        explanation
            .words(&|device| format!("gpu{}", device.0))
            .to_string()
    }

    /// The devices kept for the first in line.
    pub fn reserved(&self) -> Vec<u32> {
        let kept = self
            .state
            .devices()
            .filter(|load| load.reserved_for.is_some());
        kept.map(|load| load.device.0).collect()
    }
}

fn text(effect: &Effect) -> String {
    match effect {
        Effect::Refused { task, reason } => format!("refuse {}: {reason}", task.number),
        Effect::Start {
            task,
            attempt,
            placement,
            time_limit,
        } => {
            let again = if *attempt > 1 {
                format!("#{attempt}")
            } else {
                String::new()
            };
            let limit = time_limit.map(|limit| format!(" for {}s", limit.as_secs()));
            let limit = limit.unwrap_or_default();
            format!("start {}{again} {}{limit}", task.number, place(placement))
        }
        Effect::Stop { task, attempt } => format!("stop {}#{attempt}", task.number),
        Effect::Retrying {
            task, next_attempt, ..
        } => format!("retry {}#{next_attempt}", task.number),
        Effect::Finished {
            task,
            attempts,
            outcome,
        } => format!("{} {}/{attempts}", outcome.word(), task.number),
    }
}

fn place(placement: &Placement) -> String {
    let devices = placement
        .devices
        .iter()
        .map(|granted| granted.device.0.to_string());
    let mut text = match placement.devices.first() {
        None => format!("at node {}", placement.node.0),
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
