use std::time::Duration;

use packhorse_core::{DeviceSpec, NodeSpec, Pool};
use packhorse_model::{Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, Request};

use fastrand::Rng;

use super::simulation::{SimulatedTask, TaskBehaviour, plain_submission};

const MIB: u64 = 1 << 20;

const GPUS: u32 = 8;
const CAPACITY: Bytes = Bytes(24 << 30);
/// How many kinds of tasks.
pub const KINDS: u32 = 20;
/// How long a task takes on average.
const MEAN: Duration = Duration::from_secs(1);
const SEED: u64 = 1;

/// In how many steps a task's memory grows.
pub const STEPS: u32 = 4;

/// Requested amounts are multiples of this, as learned ones are.
const STEP: u64 = 64 * MIB;

/// Many tasks of a few kinds, with random peaks and durations, on one machine of equal
/// GPUs.
///
/// Tasks of one kind are similar: their peaks are within 4 % of the kind's own, which is
/// between a 24th and half of a GPU; small ones are more common.
pub struct SyntheticLoad {
    /// How many GPUs there are.
    pub gpus: u32,
    /// How much memory each of them has.
    pub capacity: Bytes,
    /// The tasks, in the order in which they are submitted.
    pub tasks: Vec<SyntheticTask>,
}

/// One task of a load.
#[derive(Clone, Copy)]
pub struct SyntheticTask {
    /// Which kind of task it is.
    pub kind: usize,
    /// The most memory that it will hold.
    pub peak: Bytes,
    /// How long it will run.
    pub lasts: Duration,
}

impl SyntheticTask {
    /// When its memory has reached the peak: after a quarter of its time.
    pub fn grown(&self) -> Duration {
        self.lasts / 4
    }
}

impl SyntheticLoad {
    /// `tasks` tasks, each of which takes between half of the mean and one and a half times
    /// of it. They are the same every time.
    pub fn new(tasks: usize) -> Self {
        let mut random = Rng::with_seed(SEED);
        let all = f64::from(u32::try_from(CAPACITY.0 / MIB).unwrap_or(u32::MAX));
        // From 1/24 to 12/24, evenly by ratio.
        let own = (0..KINDS).map(|_| all / 24.0 * 12_f64.powf(random.f64()));
        let own: Vec<f64> = own.collect();
        let tasks = (0..tasks).map(|_| {
            let kind = random.usize(..own.len());
            let peak = own[kind] * (0.96 + 0.08 * random.f64());
            SyntheticTask { kind, peak: mebibytes(peak), lasts: MEAN.mul_f64(0.5 + random.f64()) }
        });
        Self { gpus: GPUS, capacity: CAPACITY, tasks: tasks.collect() }
    }

    /// No schedule is shorter: all memory in use all the time, or the longest task.
    pub fn lower_bound(&self) -> Duration {
        let area = |task: &SyntheticTask| u128::from(task.peak.0) * task.lasts.as_nanos();
        let area: u128 = self.tasks.iter().map(area).sum();
        let all = u128::from(self.capacity.0) * u128::from(self.gpus);
        let packed = area.checked_div(all).unwrap_or(0);
        let packed = Duration::from_nanos(u64::try_from(packed).unwrap_or(u64::MAX));
        let longest = self.tasks.iter().map(|task| task.lasts).max();
        packed.max(longest.unwrap_or_default())
    }

    /// The machine.
    pub fn pool(&self) -> Pool {
        let device = |id: u32| DeviceSpec {
            id: DeviceId(id),
            near_cores: Vec::new(),
            memory: self.capacity,
            model: 0,
            one_process: false,
        };
        Pool {
            nodes: vec![NodeSpec {
                id: NodeId(0),
                devices: (0..self.gpus).map(device).collect(),
                cores: Vec::new(),
                cpu: None,
                ram: None,
            }],
            slots: None,
        }
    }

    /// The tasks for a simulation. Each asks for its own peak, rounded up to 64 MiB.
    pub fn simulated_tasks(&self) -> impl Iterator<Item = SimulatedTask> {
        self.tasks.iter().zip(1..).map(|(task, number)| {
            let request = Request {
                gpus: GpuRequest::Share(Milli(0)),
                memory: MemoryRequest::Bytes(Bytes(task.peak.0.next_multiple_of(STEP))),
                ..Request::default()
            };
            SimulatedTask {
                submission: plain_submission(number, request),
                behaviour: TaskBehaviour::growing(task.lasts, task.peak, STEPS, task.grown()),
            }
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a GPU's memory, which is a u64 of bytes"
)]
fn mebibytes(amount: f64) -> Bytes {
    Bytes(amount.ceil() as u64 * MIB)
}

#[cfg(test)]
mod tests {
    use packhorse_core::{EndCause, SchedulerSettings};

    use super::super::simulation::Simulation;
    use super::*;

    #[test]
    fn peaks_are_at_most_half_a_gpu_and_similar_within_a_kind() {
        let load = SyntheticLoad::new(2000);
        for kind in 0..KINDS as usize {
            let tasks = load.tasks.iter().filter(|task| task.kind == kind);
            let peaks: Vec<u64> = tasks.map(|task| task.peak.0 / MIB).collect();
            let (least, most) = (*peaks.iter().min().unwrap(), *peaks.iter().max().unwrap());
            assert!(most * 100 <= least * 109, "{least} {most}");
            assert!(least >= 980 && most <= 12800, "{least} {most}");
        }
    }

    #[test]
    fn with_known_peaks_no_task_dies_and_no_gpu_is_idle() {
        let load = SyntheticLoad::new(2000);
        let mut simulation = Simulation::new(&load.pool(), SchedulerSettings::default()).unwrap();
        for task in load.simulated_tasks() {
            simulation.submit(Duration::ZERO, task);
        }
        let history = simulation.run();
        assert_eq!(history.finished.len(), 2000);
        let is_own = |cause| cause == Some(EndCause::Own);
        let mut causes = history.attempts.iter().map(|ran| ran.outcome.map(|it| it.1));
        assert!(causes.all(is_own));
        let ratio = history.makespan().as_secs_f64() / load.lower_bound().as_secs_f64();
        assert!((1.0..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn bound_is_the_longest_task_when_there_is_room_for_all() {
        let load = SyntheticLoad::new(3);
        let longest = load.tasks.iter().map(|task| task.lasts).max();
        assert_eq!(Some(load.lower_bound()), longest);
    }
}
