use std::time::Duration;

use packhorse_core::{
    DeviceSpec, Outside, Pool, PoolError, ProbePlan, RefusalReason, SchedulerEvent,
    SchedulerSettings, Submission,
};
use packhorse_model::{DeviceId, TaskId};
use rustc_hash::FxHashSet;

use crate::simulation::Simulation;
use crate::truth::{Truth, Work};

/// A task to plan for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What the scheduler is told.
    pub submission: Submission,
    /// How long it will probably take, if anybody knows.
    pub lasts: Option<Duration>,
}

/// What would run where, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The devices, in the pool's order.
    pub devices: Vec<DeviceId>,
    /// What runs, in the order of its starts.
    pub bars: Vec<Bar>,
    /// What was assumed where a duration is not known.
    pub guess: Guess,
    /// How many durations are not known.
    pub unknown: usize,
    /// The tasks that could never run on this pool.
    pub refused: Vec<(TaskId, RefusalReason)>,
    /// The tasks that would not run while what strangers hold stays held.
    pub waiting: Vec<TaskId>,
}

/// From when until when a task runs, and on which devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The task.
    pub task: TaskId,
    /// Its devices, in the pool's order; none if it needs none.
    pub devices: Vec<DeviceId>,
    /// When it starts.
    pub start: Duration,
    /// When it ends.
    pub end: Duration,
    /// Whether its duration is known.
    pub known: bool,
}

/// What stands for a duration that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// Nothing: all are known.
    AllKnown,
    /// The median of those that are known.
    Median(Duration),
    /// None is known, so all are taken to be equally long. A second of the plan
    /// is one round, and nothing is said about real time.
    Rounds,
}

impl Plan {
    /// Runs `jobs` in their order as if now were the beginning and everything
    /// went well, beside what `outside` holds all the while. An attempt takes no
    /// longer than its time limit; nobody is probed first.
    pub fn new(
        pool: &Pool,
        settings: SchedulerSettings,
        outside: &[(DeviceId, Outside)],
        jobs: Vec<Job>,
    ) -> Result<Self, PoolError> {
        let guess = Guess::of(&jobs);
        let unknown = jobs.iter().filter(|job| job.lasts.is_none());
        let unknown: FxHashSet<TaskId> = unknown.map(|job| job.submission.id).collect();
        let mut simulation = Simulation::new(pool, settings)?;
        for &(device, held) in outside {
            simulation.tell(Duration::ZERO, SchedulerEvent::Outside { device, held });
        }
        // All are there before the first starts, as they are in a real run that
        // has read its input: priorities count from the beginning.
        simulation.tell(Duration::ZERO, SchedulerEvent::Hold);
        for job in jobs {
            simulation.submit(Duration::ZERO, guess.work(job));
        }
        simulation.tell(Duration::ZERO, SchedulerEvent::Unhold);
        let history = simulation.run();
        let bars = history.ran.into_iter().map(|ran| Bar {
            task: ran.task,
            devices: ran.placement.devices.iter().map(|on| on.device).collect(),
            start: ran.start,
            end: ran.end,
            known: !unknown.contains(&ran.task),
        });
        let specs = pool.nodes.iter().flat_map(|node| &node.devices);
        Ok(Self {
            devices: specs.map(|spec: &DeviceSpec| spec.id).collect(),
            bars: bars.collect(),
            guess,
            unknown: unknown.len(),
            refused: history.refused,
            waiting: history.waiting,
        })
    }

    /// When the last one ends, in the plan's own time.
    pub fn length(&self) -> Duration {
        let ends = self.bars.iter().map(|bar| bar.end);
        ends.max().unwrap_or_default()
    }

    /// How long all of it will take; nothing if no duration is known.
    pub fn expected_end(&self) -> Option<Duration> {
        (self.guess != Guess::Rounds).then(|| self.length())
    }
}

impl Guess {
    fn of(jobs: &[Job]) -> Self {
        let mut known: Vec<Duration> = jobs.iter().filter_map(|job| job.lasts).collect();
        if known.len() == jobs.len() {
            return Self::AllKnown;
        }
        known.sort_unstable();
        match known.get(known.len() / 2) {
            Some(&median) => Self::Median(median),
            None => Self::Rounds,
        }
    }

    fn work(self, mut job: Job) -> Work {
        job.submission.probe = ProbePlan::None;
        let lasts = match self {
            Self::Rounds => {
                // In rounds, seconds mean nothing.
                job.submission.time_limit = None;
                job.submission.expected = None;
                Duration::from_secs(1)
            }
            Self::Median(median) => job.lasts.unwrap_or(median),
            Self::AllKnown => job.lasts.unwrap_or_default(),
        };
        let limit = job.submission.time_limit.unwrap_or(lasts);
        Work {
            submission: job.submission,
            truth: Truth::lasting(lasts.min(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::{
        Bytes, GpuRequest, MemoryRequest, Milli, NodeId, Priority, Request, RunId,
    };

    use super::*;
    use crate::truth::plain;
    use packhorse_core::NodeSpec;

    fn pool(gpus: u32) -> Pool {
        let device = |id| DeviceSpec {
            id: DeviceId(id),
            near_cores: vec![],
            memory: Bytes(24),
            model: 0,
        };
        Pool {
            nodes: vec![NodeSpec {
                id: NodeId(0),
                devices: (0..gpus).map(device).collect(),
                cores: vec![],
                cpu: None,
                ram: None,
            }],
            slots: None,
        }
    }

    fn job(number: u32, lasts: Option<u64>) -> Job {
        Job {
            submission: plain(number, Request::default()),
            lasts: lasts.map(Duration::from_secs),
        }
    }

    fn plan(gpus: u32, jobs: Vec<Job>) -> Plan {
        Plan::new(&pool(gpus), SchedulerSettings::default(), &[], jobs).unwrap()
    }

    fn bars(plan: &Plan) -> Vec<(u32, u32, u64, u64)> {
        let bars = plan.bars.iter();
        bars.map(|bar| {
            let device = bar.devices.first().map_or(99, |device| device.0);
            let seconds = |time: Duration| time.as_secs();
            (
                bar.task.number,
                device,
                seconds(bar.start),
                seconds(bar.end),
            )
        })
        .collect()
    }

    #[test]
    fn longer_ones_are_followed_by_what_waits() {
        let plan = plan(2, vec![job(1, Some(10)), job(2, Some(4)), job(3, Some(3))]);
        assert_eq!(bars(&plan), [(1, 0, 0, 10), (2, 1, 0, 4), (3, 1, 4, 7)]);
        assert_eq!(plan.expected_end(), Some(Duration::from_secs(10)));
        assert_eq!((plan.guess, plan.unknown), (Guess::AllKnown, 0));
    }

    #[test]
    fn urgent_ones_go_first_wherever_they_stand_in_the_input() {
        let mut urgent = job(2, Some(1));
        urgent.submission.priority = Priority(-1);
        let plan = plan(1, vec![job(1, Some(1)), urgent]);
        assert_eq!(bars(&plan), [(2, 0, 0, 1), (1, 0, 1, 2)]);
    }

    #[test]
    fn unknown_durations_are_taken_to_be_the_median() {
        let known = [2, 4, 60].map(Some);
        let jobs = known.into_iter().chain([None]).zip(1..);
        let plan = plan(4, jobs.map(|(lasts, number)| job(number, lasts)).collect());
        assert_eq!(plan.guess, Guess::Median(Duration::from_secs(4)));
        assert_eq!(bars(&plan)[3], (4, 3, 0, 4));
        assert_eq!(plan.unknown, 1);
        let known: Vec<bool> = plan.bars.iter().map(|bar| bar.known).collect();
        assert_eq!(known, [true, true, true, false]);
    }

    #[test]
    fn nothing_known_is_planned_in_rounds_and_promises_no_end() {
        let mut limited = job(1, None);
        limited.submission.time_limit = Some(Duration::from_millis(5));
        let plan = plan(1, vec![limited, job(2, None)]);
        assert_eq!(plan.guess, Guess::Rounds);
        assert_eq!(bars(&plan), [(1, 0, 0, 1), (2, 0, 1, 2)]);
        assert_eq!(plan.expected_end(), None);
    }

    #[test]
    fn time_limit_ends_what_takes_longer() {
        let mut limited = job(1, Some(50));
        limited.submission.time_limit = Some(Duration::from_secs(5));
        limited.submission.retries = 3;
        assert_eq!(bars(&plan(1, vec![limited])), [(1, 0, 0, 5)]);
    }

    #[test]
    fn strangers_and_impossible_requests_are_told() {
        let mut large = job(1, Some(1));
        large.submission.request.gpus = GpuRequest::Share(Milli(0));
        large.submission.request.memory = MemoryRequest::Bytes(Bytes(20));
        let mut many = job(2, Some(1));
        many.submission.request.gpus = GpuRequest::Whole(9);
        let stranger = Outside {
            memory: Bytes(10),
            ..Outside::default()
        };
        let outside = [(DeviceId(0), stranger)];
        let plan = Plan::new(
            &pool(1),
            SchedulerSettings::default(),
            &outside,
            vec![large, many],
        );
        let plan = plan.unwrap();
        assert_eq!(plan.waiting, [TaskId::new(RunId(1), 1)]);
        assert_eq!(plan.refused.len(), 1);
        assert_eq!(plan.refused[0].0, TaskId::new(RunId(1), 2));
        assert_eq!(plan.bars, []);
    }
}
