//! Who goes next and where: the scheduler, and simple policies to compare it with.

use std::time::Duration;

use packhorse_core::{
    DeviceSpec, Effect, EndCause, NodeSpec, Now, Pool, PoolError, SchedulerEvent,
    SchedulerSettings, SchedulerState, step,
};
use packhorse_model::{
    Bytes, DeviceId, GpuRequest, Milli, NodeId, Outcome, Request, RunId, TaskId,
};

use super::workload::ArrivingTask;
use crate::bench::packing::simulation::plain_submission;

/// A task by its number, and the GPUs that it starts on.
pub type Start = (usize, Vec<usize>);

/// Whoever decides. Times are in milliseconds.
pub trait SchedulingPolicy {
    /// Tasks have come, all at the same time.
    fn arrive(&mut self, tasks: &[(usize, ArrivingTask)], now: u64) -> Vec<Start>;
    fn end(&mut self, task: usize, now: u64) -> Vec<Start>;
}

/// The scheduler itself.
pub struct OwnPolicy {
    state: SchedulerState,
    /// Whether more may come than what is there at the start.
    more: bool,
}

impl OwnPolicy {
    pub fn new(gpus: u32, more: bool) -> Result<Self, PoolError> {
        let device = |id: u32| DeviceSpec {
            id: DeviceId(id),
            near_cores: Vec::new(),
            memory: Bytes(0),
            model: 0,
            one_process: false,
        };
        let node = NodeSpec {
            id: NodeId(0),
            devices: (0..gpus).map(device).collect(),
            cores: Vec::new(),
            cpu: None,
            ram: None,
        };
        let pool = Pool { nodes: vec![node], slots: None };
        let state = SchedulerState::new(&pool, SchedulerSettings::default())?;
        Ok(Self { state, more })
    }

    fn step(&mut self, events: impl IntoIterator<Item = SchedulerEvent>, now: u64) -> Vec<Start> {
        let now = Now(Duration::from_millis(now));
        let mut effects = Vec::new();
        for event in events {
            step(&mut self.state, event, now, &mut effects);
        }
        let started = effects.into_iter().filter_map(|effect| match effect {
            Effect::Start { task, placement, .. } => {
                let devices = placement.devices.iter().map(|on| on.device.0 as usize);
                Some((task.number as usize - 1, devices.collect()))
            }
            _ => None,
        });
        started.collect()
    }
}

fn number(task: usize) -> u32 {
    u32::try_from(task + 1).unwrap_or(u32::MAX)
}

impl SchedulingPolicy for OwnPolicy {
    fn arrive(&mut self, tasks: &[(usize, ArrivingTask)], now: u64) -> Vec<Start> {
        let submit = |&(task, arriving): &(usize, ArrivingTask)| {
            let request = Request { gpus: arriving.gpus, ..Request::default() };
            SchedulerEvent::Submit(plain_submission(number(task), request))
        };
        // As in a run: what arrives together is in line together.
        let before = [SchedulerEvent::Hold, SchedulerEvent::MoreToCome(self.more)];
        let events = before.into_iter().chain(tasks.iter().map(submit));
        self.step(events.chain([SchedulerEvent::Unhold]), now)
    }

    fn end(&mut self, task: usize, now: u64) -> Vec<Start> {
        let ended = SchedulerEvent::Ended {
            task: TaskId::new(RunId(1), number(task)),
            attempt: 1,
            outcome: Outcome::Succeeded,
            cause: EndCause::Own,
        };
        self.step([ended], now)
    }
}

/// How a simple line chooses between GPUs that have room for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    First,
    /// The fullest.
    Best,
    /// The emptiest.
    Spread,
}

/// A simple line: in the order of arrival, everything starts that fits. The first that does
/// not gets GPUs kept for it, the emptiest, on which nobody else starts until it does.
pub struct SimplePolicy {
    choice: Choice,
    gpus: Vec<SimpleGpu>,
    waiting: Vec<(usize, GpuRequest)>,
    /// Who starts when these are free.
    kept: Option<(usize, Vec<usize>)>,
}

#[derive(Clone, Debug, Default)]
struct SimpleGpu {
    tasks: Vec<(usize, Milli)>,
}

impl SimpleGpu {
    fn used(&self) -> u32 {
        self.tasks.iter().map(|(_, share)| share.0).sum()
    }
}

/// What `request` takes of each of its GPUs, and of how many.
fn size(request: GpuRequest) -> (Milli, usize) {
    match request {
        GpuRequest::None => (Milli(0), 0),
        GpuRequest::Share(share) => (share, 1),
        GpuRequest::Whole(count) => (Milli::ONE, count as usize),
    }
}

impl SimplePolicy {
    pub fn new(choice: Choice, gpus: u32) -> Self {
        Self {
            choice,
            gpus: vec![SimpleGpu::default(); gpus as usize],
            waiting: Vec::new(),
            kept: None,
        }
    }

    /// Where a task fits; what is kept for another does not count.
    fn place(&self, task: usize, request: GpuRequest) -> Option<Vec<usize>> {
        let (share, count) = size(request);
        let kept = self.kept.as_ref().filter(|kept| kept.0 != task);
        let fits = |gpu: &usize| {
            self.gpus[*gpu].used() + share.0 <= Milli::ONE.0
                && kept.is_none_or(|(_, kept)| !kept.contains(gpu))
        };
        let mut fitting: Vec<usize> = (0..self.gpus.len()).filter(fits).collect();
        match self.choice {
            Choice::First => {}
            Choice::Best => fitting.sort_by_key(|&gpu| u32::MAX - self.gpus[gpu].used()),
            Choice::Spread => fitting.sort_by_key(|&gpu| self.gpus[gpu].used()),
        }
        fitting.truncate(count);
        (fitting.len() == count).then_some(fitting)
    }

    fn start(&mut self) -> Vec<Start> {
        let mut started = Vec::new();
        for (task, request) in std::mem::take(&mut self.waiting) {
            if let Some(gpus) = self.place(task, request) {
                let (share, _) = size(request);
                for &gpu in &gpus {
                    self.gpus[gpu].tasks.push((task, share));
                }
                self.kept.take_if(|kept| kept.0 == task);
                started.push((task, gpus));
                continue;
            }
            if self.kept.is_none() {
                let mut emptiest: Vec<usize> = (0..self.gpus.len()).collect();
                emptiest.sort_by_key(|&gpu| (self.gpus[gpu].used(), self.gpus[gpu].tasks.len()));
                emptiest.truncate(size(request).1);
                self.kept = Some((task, emptiest));
            }
            self.waiting.push((task, request));
        }
        started
    }
}

impl SchedulingPolicy for SimplePolicy {
    fn arrive(&mut self, tasks: &[(usize, ArrivingTask)], _: u64) -> Vec<Start> {
        let tasks = tasks.iter().map(|&(task, arriving)| (task, arriving.gpus));
        self.waiting.extend(tasks);
        self.start()
    }

    fn end(&mut self, task: usize, _: u64) -> Vec<Start> {
        for gpu in &mut self.gpus {
            gpu.tasks.retain(|&(other, _)| other != task);
        }
        self.start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(gpus: GpuRequest) -> ArrivingTask {
        let (at, alone) = (0, 1);
        ArrivingTask { at, gpus, alone }
    }

    fn share(milli: u32) -> ArrivingTask {
        task(GpuRequest::Share(Milli(milli)))
    }

    /// Where the third of these goes on two GPUs.
    fn third(choice: Choice) -> Vec<usize> {
        let mut policy = SimplePolicy::new(choice, 3);
        let tasks = [share(300), share(800), share(200)];
        let tasks: Vec<_> = tasks.into_iter().enumerate().collect();
        let mut started = policy.arrive(&tasks, 0);
        started.pop().unwrap().1
    }

    #[test]
    fn each_policy_chooses_as_it_is_called() {
        assert_eq!(third(Choice::First), [0]);
        assert_eq!(third(Choice::Best), [1]);
        assert_eq!(third(Choice::Spread), [2]);
    }

    #[test]
    fn what_is_kept_for_the_first_in_line_is_kept_from_those_behind_it() {
        let mut policy = SimplePolicy::new(Choice::First, 1);
        let whole = task(GpuRequest::Whole(1));
        let tasks = [(0, share(500)), (1, whole), (2, share(500))];
        assert_eq!(policy.arrive(&tasks, 0), [(0, vec![0])]);
        assert_eq!(policy.end(0, 1), [(1, vec![0])]);
        assert_eq!(policy.end(1, 2), [(2, vec![0])]);
    }
}
