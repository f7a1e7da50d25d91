use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::{
    Effect, EndCause, Now, Outside, Pool, PoolError, SchedulerEvent, SchedulerSettings,
    SchedulerState, step,
};
use packhorse_model::{Bytes, DeviceId, Outcome, Placement, TaskId};
use rustc_hash::FxHashMap;

use crate::agenda::{Agenda, Happening};
use crate::history::{History, Ran};
use crate::truth::{Truth, Work};

/// How a process ends that is denied memory.
const OUT_OF_MEMORY: Outcome = Outcome::Failed { code: 1 };

/// A scheduler in a world of its own.
///
/// The driver is perfect: what an attempt holds is known as soon as it holds
/// it, and memory is free as soon as its holder is gone. An attempt that is to
/// grow past what its device has left dies. If it would have held more than it
/// was promised, it is the one to blame; if not, it is collateral.
#[derive(Clone, Debug)]
pub struct Simulation {
    state: SchedulerState,
    now: Duration,
    agenda: Agenda,
    truths: FxHashMap<TaskId, Truth>,
    /// The attempts that run, by task; as places in `history.ran`.
    running: FxHashMap<TaskId, usize>,
    devices: BTreeMap<DeviceId, Device>,
    history: History,
    effects: Vec<Effect>,
}

/// A device as it really is.
#[derive(Clone, Debug, Default)]
struct Device {
    /// How much memory it has; 0 if that does not count.
    capacity: Bytes,
    outside: Bytes,
    held: BTreeMap<TaskId, Bytes>,
}

impl Device {
    /// Whether `task` may hold so much.
    fn allows(&self, task: TaskId, memory: Bytes) -> bool {
        let others = self.held.iter().filter(|&(&other, _)| other != task);
        let others = others.map(|(_, held)| u128::from(held.0)).sum::<u128>();
        let all = others + u128::from(self.outside.0) + u128::from(memory.0);
        self.capacity.0 == 0 || all <= u128::from(self.capacity.0)
    }
}

impl Simulation {
    /// A world with nothing to do yet.
    pub fn new(pool: &Pool, settings: SchedulerSettings) -> Result<Self, PoolError> {
        let specs = pool.nodes.iter().flat_map(|node| &node.devices);
        let devices = specs.map(|spec| {
            let device = Device {
                capacity: spec.memory,
                ..Device::default()
            };
            (spec.id, device)
        });
        Ok(Self {
            state: SchedulerState::new(pool, settings)?,
            now: Duration::ZERO,
            agenda: Agenda::default(),
            truths: FxHashMap::default(),
            running: FxHashMap::default(),
            devices: devices.collect(),
            history: History::default(),
            effects: Vec::new(),
        })
    }

    /// A task comes.
    pub fn submit(&mut self, at: Duration, work: Work) {
        self.truths.insert(work.submission.id, work.truth);
        self.tell(at, SchedulerEvent::Submit(work.submission));
    }

    /// Something else happens. Memory that strangers hold is held on the device
    /// as well. A task that comes this way ends as soon as it starts.
    pub fn tell(&mut self, at: Duration, event: SchedulerEvent) {
        self.agenda.put(at, Happening::Tell(Box::new(event)));
    }

    /// Lets happen what happens, until nothing more will.
    pub fn run(mut self) -> History {
        while let Some((at, happening)) = self.agenda.next() {
            // What was asked for in the past happens now.
            self.now = self.now.max(at);
            match happening {
                Happening::End { task, start } => self.on_end(task, start),
                Happening::Hold {
                    task,
                    start,
                    memory,
                } => self.on_hold(task, start, memory),
                Happening::Tell(event) => {
                    if let SchedulerEvent::Outside { device, held } = &*event {
                        self.on_outside(*device, *held);
                    }
                    self.step(*event);
                }
            }
        }
        self.history.waiting = self.state.unfinished();
        self.history
    }

    fn on_outside(&mut self, device: DeviceId, held: Outside) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.outside = held.memory;
        }
    }

    fn step(&mut self, event: SchedulerEvent) {
        let mut effects = std::mem::take(&mut self.effects);
        step(&mut self.state, event, Now(self.now), &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Start {
                    task,
                    attempt,
                    placement,
                    time_limit,
                } => self.start(task, attempt, placement, time_limit),
                Effect::Stop { task, .. } => self.stop(task),
                Effect::Finished { task, outcome, .. } => {
                    self.history.finished.insert(task, outcome);
                }
                Effect::Refused { task, reason } => self.history.refused.push((task, reason)),
                Effect::Retrying { .. } => {}
            }
        }
        self.effects = effects;
    }

    fn start(
        &mut self,
        task: TaskId,
        attempt: u32,
        placement: Placement,
        time_limit: Option<Duration>,
    ) {
        let start = self.history.ran.len();
        self.history.ran.push(Ran {
            task,
            attempt,
            placement,
            start: self.now,
            end: self.now,
            peak: Bytes(0),
            outcome: None,
        });
        self.running.insert(task, start);
        let truth = self.truths.get(&task);
        let lasts = truth.map_or(Duration::ZERO, |truth| truth.lasts);
        let lasts = time_limit.map_or(lasts, |limit| limit.min(lasts));
        for hold in truth.iter().flat_map(|truth| &truth.memory) {
            if hold.after < lasts {
                let memory = hold.memory;
                let happening = Happening::Hold {
                    task,
                    start,
                    memory,
                };
                let at = self.now.saturating_add(hold.after);
                self.agenda.put(at, happening);
            }
        }
        let end = self.now.saturating_add(lasts);
        self.agenda.put(end, Happening::End { task, start });
    }

    /// It is told to end, and does so at once.
    fn stop(&mut self, task: TaskId) {
        if let Some(&start) = self.running.get(&task) {
            let event = self.end(task, start, Outcome::Interrupted, EndCause::Own);
            self.tell(self.now, event);
        }
    }

    fn on_end(&mut self, task: TaskId, start: usize) {
        if self.running.get(&task) != Some(&start) {
            return;
        }
        let outcome = match self.truths.get(&task) {
            Some(truth) if self.now.saturating_sub(self.history.ran[start].start) < truth.lasts => {
                Outcome::TimedOut
            }
            Some(truth) => truth.outcome,
            None => Outcome::Succeeded,
        };
        let event = self.end(task, start, outcome, EndCause::Own);
        self.step(event);
    }

    fn on_hold(&mut self, task: TaskId, start: usize, memory: Bytes) {
        if self.running.get(&task) != Some(&start) {
            return;
        }
        let ran = &mut self.history.ran[start];
        let attempt = ran.attempt;
        let granted = ran.placement.devices.clone();
        let fits = granted.iter().all(|granted| {
            let device = self.devices.get(&granted.device);
            device.is_none_or(|device| device.allows(task, memory))
        });
        if !fits {
            let promised = granted.iter().map(|granted| granted.memory).min();
            let cause = if promised.is_none_or(|promised| memory > promised) {
                EndCause::OutOfMemory { peak: ran.peak }
            } else {
                EndCause::Collateral
            };
            let event = self.end(task, start, OUT_OF_MEMORY, cause);
            self.step(event);
            return;
        }
        ran.peak = ran.peak.max(memory);
        for granted in granted {
            if let Some(device) = self.devices.get_mut(&granted.device) {
                device.held.insert(task, memory);
            }
            self.step(SchedulerEvent::Observed {
                task,
                attempt,
                device: granted.device,
                memory,
            });
        }
    }

    /// Takes the attempt off its devices; the event says so to the scheduler.
    fn end(
        &mut self,
        task: TaskId,
        start: usize,
        outcome: Outcome,
        cause: EndCause,
    ) -> SchedulerEvent {
        self.running.remove(&task);
        let ran = &mut self.history.ran[start];
        ran.end = self.now;
        ran.outcome = Some((outcome, cause));
        for granted in &ran.placement.devices {
            if let Some(device) = self.devices.get_mut(&granted.device) {
                device.held.remove(&task);
            }
        }
        SchedulerEvent::Ended {
            task,
            attempt: ran.attempt,
            outcome,
            cause,
        }
    }
}

#[cfg(test)]
mod tests;
