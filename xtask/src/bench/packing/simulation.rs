//! A virtual clock around the scheduler, and devices whose memory is physical.
//!
//! ```text
//!   SimulatedTask (what the scheduler is told,    ─┐
//!   and what the task will really do)              │
//!   other events at given times (other processes  ─┤
//!   on a device, lost devices)                     ▼
//!                  EventQueue ──▶ core's step ──▶ effects ──▶ History
//!                      ▲                             │
//!                      └── memory growth and end ────┘
//!                          of started attempts
//! ```
//!
//! The same input gives the same output.

mod event_queue;
mod history;
mod task;

use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::{
    Effect, EndCause, Now, Pool, PoolError, SchedulerEvent, SchedulerSettings, SchedulerState, step,
};
use packhorse_model::{Bytes, DeviceId, Outcome, Placement, TaskId};

use event_queue::{EventQueue, SimulationEvent};
use history::{History, SimulatedAttempt};
use task::MemoryStep;
pub use task::{SimulatedTask, TaskBehaviour, plain_submission};

/// The outcome of a process that cannot get memory.
const OUT_OF_MEMORY: Outcome = Outcome::Failed { code: 1 };

/// A scheduler with simulated tasks and devices.
///
/// The driver is perfect: the scheduler learns at once what an attempt holds, and
/// memory is free as soon as its holder has ended. An attempt that would grow past what
/// its device has left dies. If it would have held more than it was promised, it is
/// itself to blame; otherwise it is collateral damage.
#[derive(Clone, Debug)]
pub struct Simulation {
    state: SchedulerState,
    now: Duration,
    queue: EventQueue,
    behaviours: BTreeMap<TaskId, TaskBehaviour>,
    devices: BTreeMap<DeviceId, SimulatedDevice>,
    history: History,
}

/// The memory of a device.
#[derive(Clone, Debug, Default)]
struct SimulatedDevice {
    /// How much it has; 0 if that is not limited.
    capacity: Bytes,
    outside: Bytes,
    held: BTreeMap<TaskId, Bytes>,
}

impl SimulatedDevice {
    /// Whether there is room for `task` to hold this much.
    fn allows(&self, task: TaskId, memory: Bytes) -> bool {
        let others = self.held.iter().filter(|&(&other, _)| other != task);
        let others = others.map(|(_, held)| u128::from(held.0)).sum::<u128>();
        let all = others + u128::from(self.outside.0) + u128::from(memory.0);
        self.capacity.0 == 0 || all <= u128::from(self.capacity.0)
    }
}

impl Simulation {
    /// A simulation without tasks.
    pub fn new(pool: &Pool, settings: SchedulerSettings) -> Result<Self, PoolError> {
        let specs = pool.nodes.iter().flat_map(|node| &node.devices);
        let devices = specs.map(|spec| {
            let device = SimulatedDevice { capacity: spec.memory, ..SimulatedDevice::default() };
            (spec.id, device)
        });
        Ok(Self {
            state: SchedulerState::new(pool, settings)?,
            now: Duration::ZERO,
            queue: EventQueue::default(),
            behaviours: BTreeMap::new(),
            devices: devices.collect(),
            history: History::default(),
        })
    }

    /// Submits a task at this time.
    pub fn submit(&mut self, at: Duration, task: SimulatedTask) {
        self.behaviours.insert(task.submission.id, task.behaviour);
        self.schedule(at, SchedulerEvent::Submit(task.submission));
    }

    /// Gives the scheduler another event at this time. Memory that other processes hold
    /// is really held on the device. A task submitted this way ends as soon as it starts.
    pub fn schedule(&mut self, at: Duration, event: SchedulerEvent) {
        self.queue.push(at, SimulationEvent::Scheduler(Box::new(event)));
    }

    /// Runs until nothing more will happen.
    pub fn run(mut self) -> History {
        while let Some((at, event)) = self.queue.pop() {
            // An event for a time in the past happens now.
            self.now = self.now.max(at);
            match event {
                SimulationEvent::End { attempt } => self.on_end(attempt),
                SimulationEvent::Memory { attempt, memory } => self.on_memory(attempt, memory),
                SimulationEvent::Scheduler(event) => {
                    if let SchedulerEvent::Outside { device, held } = &*event
                        && let Some(device) = self.devices.get_mut(device)
                    {
                        device.outside = held.memory;
                    }
                    self.step(*event);
                }
            }
        }
        self.history
    }

    fn step(&mut self, event: SchedulerEvent) {
        let mut effects = Vec::new();
        step(&mut self.state, event, Now(self.now), &mut effects);
        for effect in effects {
            match effect {
                Effect::Start { task, attempt, placement, time_limit } => {
                    self.start(task, attempt, placement, time_limit);
                }
                Effect::Stop { task, .. } => self.stop(task),
                Effect::Finished { task, outcome, .. } => {
                    self.history.finished.insert(task, outcome);
                }
                Effect::Refused { task, reason } => self.history.refused.push((task, reason)),
                Effect::Retrying { .. } | Effect::NotAdded(_) | Effect::Look => {}
            }
        }
    }

    fn start(
        &mut self,
        task: TaskId,
        number: u32,
        placement: Placement,
        time_limit: Option<Duration>,
    ) {
        let attempt = self.history.attempts.len();
        self.history.attempts.push(SimulatedAttempt {
            task,
            attempt: number,
            placement,
            start: self.now,
            end: self.now,
            peak: Bytes(0),
            outcome: None,
        });
        let behaviour = self.behaviours.get(&task);
        let lasts = behaviour.map_or(Duration::ZERO, |behaviour| behaviour.lasts);
        let lasts = time_limit.map_or(lasts, |limit| limit.min(lasts));
        let steps = behaviour.iter().flat_map(|behaviour| &behaviour.memory);
        for &MemoryStep { after, memory } in steps.filter(|step| step.after < lasts) {
            let at = self.now.saturating_add(after);
            let event = SimulationEvent::Memory { attempt, memory };
            self.queue.push(at, event);
        }
        let end = self.now.saturating_add(lasts);
        self.queue.push(end, SimulationEvent::End { attempt });
    }

    /// An attempt that is told to end does so at once.
    fn stop(&mut self, task: TaskId) {
        let mut attempts = self.history.attempts.iter();
        let running = attempts.rposition(|attempt| attempt.task == task && attempt.is_running());
        if let Some(attempt) = running {
            let event = self.end(attempt, Outcome::Interrupted, EndCause::Own);
            self.schedule(self.now, event);
        }
    }

    fn on_end(&mut self, attempt: usize) {
        let record = &self.history.attempts[attempt];
        if !record.is_running() {
            return;
        }
        let ran = self.now.saturating_sub(record.start);
        let outcome = match self.behaviours.get(&record.task) {
            Some(behaviour) if ran < behaviour.lasts => Outcome::TimedOut,
            Some(behaviour) => behaviour.outcome,
            None => Outcome::Succeeded,
        };
        let event = self.end(attempt, outcome, EndCause::Own);
        self.step(event);
    }

    fn on_memory(&mut self, attempt: usize, memory: Bytes) {
        let record = &mut self.history.attempts[attempt];
        if !record.is_running() {
            return;
        }
        let (task, number) = (record.task, record.attempt);
        let granted = record.placement.devices.clone();
        let fits = granted.iter().all(|granted| {
            let device = self.devices.get(&granted.device);
            device.is_none_or(|device| device.allows(task, memory))
        });
        if !fits {
            let promised = granted.iter().map(|granted| granted.memory).min();
            let cause = if promised.is_none_or(|promised| memory > promised) {
                EndCause::OutOfMemory { peak: record.peak, at_least: Bytes(0) }
            } else {
                EndCause::Crowded
            };
            let event = self.end(attempt, OUT_OF_MEMORY, cause);
            self.step(event);
            return;
        }
        record.peak = record.peak.max(memory);
        for granted in granted {
            if let Some(device) = self.devices.get_mut(&granted.device) {
                device.held.insert(task, memory);
            }
            self.step(SchedulerEvent::Observed {
                task,
                attempt: number,
                device: granted.device,
                memory,
            });
        }
    }

    /// Takes the attempt off its devices. Returns the event that tells the scheduler.
    fn end(&mut self, attempt: usize, outcome: Outcome, cause: EndCause) -> SchedulerEvent {
        let record = &mut self.history.attempts[attempt];
        record.end = self.now;
        record.outcome = Some((outcome, cause));
        for granted in &record.placement.devices {
            if let Some(device) = self.devices.get_mut(&granted.device) {
                device.held.remove(&record.task);
            }
        }
        SchedulerEvent::Ended { task: record.task, attempt: record.attempt, outcome, cause }
    }
}

#[cfg(test)]
mod tests;
