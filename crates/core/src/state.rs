use packhorse_model::{Bytes, DeviceId, GpuRequest, Milli, Placement, Request, RunId, TaskId};
use rustc_hash::FxHashSet;

use crate::deps::Deps;
use crate::device::DeviceLedger;
use crate::dispatch::Stale;
use crate::finished::FinishedTasks;
use crate::fragmentation::RequestMix;
use crate::ledger::{AttemptAllocation, Ledger, count};
use crate::place::PoolView;
use crate::queue::{ClassId, TaskQueue};
use crate::refusal::impossible;
use crate::reserve::Reservation;
use crate::tasks::{Handle, TaskStatus, Tasks};
use crate::time::Moment;
use crate::{
    Now, Outside, OwnerId, Pool, PoolError, ProbePlan, RefusalReason, SchedulerSettings, reach,
};

/// Everything the scheduler knows. Changed by [`step`](crate::step) alone.
#[derive(Clone, Debug)]
pub struct SchedulerState {
    pub(crate) settings: SchedulerSettings,
    pub(crate) ledger: Ledger,
    /// What tasks need here, and how often.
    pub(crate) mix: RequestMix,
    pub(crate) tasks: Tasks,
    pub(crate) queue: TaskQueue,
    pub(crate) deps: Deps,
    pub(crate) finished: FinishedTasks,
    pub(crate) running: Vec<AttemptRecord>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) held: bool,
    /// When it was last told who is on the devices.
    pub(crate) looked: Option<Now>,
    /// Whether a look at the devices is waited for, and nothing is started.
    pub(crate) looking: bool,
    /// The runs of which nothing is started.
    pub(crate) held_runs: FxHashSet<RunId>,
    /// How many tasks were taken so far; the next one's place in line.
    pub(crate) submitted: u64,
    /// How many attempts were started so far.
    pub(crate) started: u64,
    /// Where something may fit that did not at the last dispatch.
    pub(crate) stale: Stale,
    /// When the last event happened.
    pub(crate) now: Now,
}

/// A running attempt.
#[derive(Clone, Debug)]
pub(crate) struct AttemptRecord {
    pub(crate) task: Handle,
    /// What it was started with.
    pub(crate) class: ClassId,
    /// Which attempt it is; 0 is a probe.
    pub(crate) attempt: u32,
    pub(crate) since: Now,
    /// Its number among all attempts ever started.
    pub(crate) number: u64,
    pub(crate) allocation: AttemptAllocation,
    pub(crate) stopping: bool,
    /// Whether it ran already when we heard of it, so that nobody looked whether
    /// there was room for it.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the tests' checks"))]
    pub(crate) adopted: bool,
}

/// How many tasks are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerCounts {
    /// In line.
    pub waiting: usize,
    /// Not in line: a task they come after has not finished, or they wait for a
    /// measurement, or their run is held.
    pub blocked: usize,
    /// With an attempt that runs.
    pub running: usize,
    /// Over.
    pub finished: u64,
}

/// A task that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedTask {
    pub task: TaskId,
    /// Who it belongs to.
    pub owner: OwnerId,
    /// Which attempt of it; 0 is a probe.
    pub attempt: u32,
    /// What it was given.
    pub placement: Placement,
    /// When it started.
    pub since: Now,
    /// Whether it was cancelled and its end is awaited.
    pub stopping: bool,
}

/// What the first in line waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedDevices {
    /// The first in line.
    pub task: TaskId,
    /// What it asks for.
    pub request: Request,
    /// The devices that are kept for it, in the pool's order.
    pub devices: Vec<DeviceId>,
    /// Whether other runs have to make room on them.
    pub needs_others: bool,
}

/// What is given out of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLoad {
    pub device: DeviceId,
    /// How much of it is given out.
    pub used: Milli,
    /// To how many attempts.
    pub attempts: u32,
    /// Whether one of them has it to itself.
    pub whole: bool,
    /// How much memory it has; 0 if nobody knows.
    pub memory: Bytes,
    /// How much of that is promised to our attempts.
    pub promised: Bytes,
    /// How much of it our attempts count for: each what it was promised, or
    /// what it was seen to hold if that is more.
    pub counted: Bytes,
    /// What others hold on it.
    pub outside: Outside,
    /// Whether nothing more is started on it: it is drained, or will be removed.
    pub drained: bool,
    /// The first in line, if the device is kept for it.
    pub reserved_for: Option<TaskId>,
}

impl SchedulerState {
    /// A scheduler for `pool`, with nothing to do yet.
    pub fn new(pool: &Pool, settings: SchedulerSettings) -> Result<Self, PoolError> {
        pool.validate(&settings)?;
        let ledger = Ledger::new(pool, settings.max_per_device);
        Ok(Self {
            settings,
            mix: RequestMix::new(&ledger),
            ledger,
            tasks: Tasks::default(),
            queue: TaskQueue::default(),
            deps: Deps::default(),
            finished: FinishedTasks::default(),
            running: Vec::new(),
            reservation: None,
            held: false,
            looked: None,
            looking: false,
            held_runs: FxHashSet::default(),
            submitted: 0,
            started: 0,
            stale: Stale::default(),
            now: Now::default(),
        })
    }

    /// How many tasks are where.
    pub fn counts(&self) -> SchedulerCounts {
        let (waiting, running) = (self.queue.len(), self.running.len());
        SchedulerCounts {
            waiting,
            blocked: self.tasks.len() - waiting - running,
            running,
            finished: self.finished.len(),
        }
    }

    /// Whether there is or was such a task.
    pub fn knows(&self, task: TaskId) -> bool {
        self.tasks.find(task).is_some() || self.finished.get(task).is_some()
    }

    /// Why a task that needs this could never run here, if it could not.
    pub fn refusal(&self, request: &Request) -> Option<RefusalReason> {
        impossible(&self.ledger, request)
    }

    /// How many tasks that need this fit at a time where nothing else runs.
    /// `u64::MAX`: nothing that is counted limits them.
    pub fn at_a_time(&self, request: &Request) -> u64 {
        self.ledger.at_a_time(request)
    }

    /// How many of our attempts are on a device.
    pub fn attempts_on(&self, device: DeviceId) -> u32 {
        let device = self.ledger.find(device).map(|place| &self.ledger.devices[place]);
        device.map_or(0, |device| device.load.attempts)
    }

    /// Whether anybody in line is to have a device to itself.
    pub fn wants_whole(&self) -> bool {
        let mut families = self.queue.families();
        families.any(|family| matches!(family.request.gpus, GpuRequest::Whole(_)))
    }

    /// Who is first in line, if anybody waits.
    pub fn first_in_line(&self) -> Option<TaskId> {
        Some(self.tasks.get(self.queue.first()?).id)
    }

    /// Whether nothing runs, and nothing of what is in line could ever start while
    /// the devices that are drained now stay so and no machine is added, even if
    /// all others' processes were gone.
    pub fn is_stuck(&self) -> bool {
        self.running.is_empty() && self.queue.len() > 0 && reach::nothing_ever(self)
    }

    /// What runs, in the order it was started.
    pub fn running(&self) -> Vec<PlacedTask> {
        let running = self.by_start().into_iter();
        running.map(|running| self.running_task(running)).collect()
    }

    /// What the attempt of a task that runs was started with.
    pub fn running_request(&self, task: TaskId) -> Option<&Request> {
        let record = self.tasks.get(self.tasks.find(task)?);
        let TaskStatus::Running(place) = record.status else {
            return None;
        };
        let running = &self.running[place as usize];
        Some(&self.queue.demand(running.class).request)
    }

    /// The running attempts in the order they were started.
    pub(crate) fn by_start(&self) -> Vec<&AttemptRecord> {
        let mut running: Vec<&AttemptRecord> = self.running.iter().collect();
        running.sort_unstable_by_key(|running| running.number);
        running
    }

    /// Takes note of an attempt that runs from now on, or did when it was `adopted`.
    pub(crate) fn add_running(
        &mut self,
        task: Handle,
        attempt: u32,
        since: Now,
        allocation: AttemptAllocation,
        adopted: bool,
    ) {
        let record = self.tasks.get_mut(task);
        record.probe = ProbePlan::None;
        record.status = TaskStatus::Running(count(self.running.len()));
        self.queue.refer_to_class(record.class);
        let request = &self.queue.demand(record.class).request;
        self.mix.stop_waiting(request);
        self.running.push(AttemptRecord {
            task,
            class: record.class,
            attempt,
            since,
            number: self.started,
            allocation,
            stopping: false,
            adopted,
        });
        self.started += 1;
    }

    pub(crate) fn running_task(&self, running: &AttemptRecord) -> PlacedTask {
        let record = self.tasks.get(running.task);
        PlacedTask {
            task: record.id,
            owner: record.owner,
            attempt: running.attempt,
            placement: self.ledger.placement(&running.allocation, running.task),
            since: running.since,
            stopping: running.stopping,
        }
    }

    /// What is given out of each device, in the pool's order.
    pub fn devices(&self) -> impl Iterator<Item = DeviceLoad> {
        let devices = self.ledger.devices.iter().enumerate();
        devices.map(|(index, device)| {
            let kept = self.reservation.as_ref();
            let kept = kept.filter(|kept| kept.has_device(index));
            DeviceLoad {
                device: device.id,
                used: device.load.share,
                attempts: device.load.attempts,
                whole: device.load.whole,
                memory: device.capacity,
                promised: device.promised(),
                counted: device.load.memory,
                outside: device.outside,
                drained: device.is_closed(),
                reserved_for: kept.map(|kept| self.tasks.get(kept.holder).id),
            }
        })
    }

    /// What the first in line waits for, if it is devices.
    pub fn wanted(&self) -> Option<WantedDevices> {
        let kept = self.reservation.as_ref()?;
        let request = &self.queue.demand(kept.class).request;
        let mut devices = self.ledger.at(&kept.spot.devices);
        let is_full = |device: &DeviceLedger| {
            let room = device.headroom(request);
            room.is_none_or(|room| !room.fits(request))
        };
        devices.clone().any(is_full).then(|| WantedDevices {
            task: self.tasks.get(kept.holder).id,
            request: request.clone(),
            devices: devices.clone().map(|device| device.id).collect(),
            needs_others: devices.any(|device| device.needs_others(request)),
        })
    }

    /// The pool, as seen by a task that has to respect `kept`.
    /// Whether a device may be chosen among several: who is on them is known, or cannot be.
    pub(crate) fn has_looked(&self) -> bool {
        self.settings
            .look_lasts
            .is_none_or(|lasts| self.looked.is_some_and(|looked| self.now.since(looked) <= lasts))
    }

    pub(crate) fn view<'a>(&'a self, kept: Option<&'a Reservation>) -> PoolView<'a> {
        PoolView {
            ledger: &self.ledger,
            policy: self.settings.policy,
            mix: &self.mix,
            kept,
            now: Moment::new(self.now),
        }
    }
}
