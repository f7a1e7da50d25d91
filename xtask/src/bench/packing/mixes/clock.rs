//! A virtual clock, and GPUs whose tasks slow each other down.

use super::policy::{SchedulingPolicy, Start};
use super::workload::ArrivingTask;

/// How many parts of its work a task does in a moment if it is alone on its GPU. Each
/// neighbour makes a part take one moment more: with one, it takes a quarter longer.
const ALONE: u64 = 4;

/// What became of a workload, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MixOutcome {
    /// From arrival to start, of all tasks together.
    pub waited: u64,
    /// From arrival to end, of all tasks together.
    pub took: u64,
    /// When the last one ended.
    pub makespan: u64,
}

/// A task of the mix that runs.
struct MixTask {
    task: usize,
    gpus: Vec<usize>,
    /// What has yet to be done.
    left: u64,
}

/// What a task does in a millisecond if it is alone: it can be divided by what it takes
/// with up to three neighbours.
const WORK: u64 = 5 * 6 * 7;

/// What a task does in a millisecond with so many on its GPU.
fn speed(tenants: usize) -> u64 {
    WORK * ALONE / (ALONE + (tenants as u64).saturating_sub(1))
}

/// Runs `tasks`, which are in the order of arrival.
pub fn run(tasks: &[ArrivingTask], gpus: u32, policy: &mut dyn SchedulingPolicy) -> MixOutcome {
    let mut outcome = MixOutcome::default();
    let mut tenants = vec![0_usize; gpus as usize];
    let mut running: Vec<MixTask> = Vec::new();
    let (mut now, mut next) = (0, 0);
    loop {
        let speed_of = |it: &MixTask, tenants: &[usize]| {
            let most = it.gpus.iter().map(|&gpu| tenants[gpu]).max();
            speed(most.unwrap_or(1))
        };
        let ends = running.iter().enumerate();
        let ends = ends.map(|(place, it)| (now + it.left.div_ceil(speed_of(it, &tenants)), place));
        let end = ends.min();
        let arrival = tasks.get(next).map(|task| task.at);
        // At the same time, what ends makes room for what comes.
        let (at, ended) = match (end, arrival) {
            (Some((end, place)), arrival) if arrival.is_none_or(|at| end <= at) => {
                (end, Some(place))
            }
            (_, Some(at)) => (at, None),
            _ => return outcome,
        };
        for it in &mut running {
            let done = (at - now) * speed_of(it, &tenants);
            it.left = it.left.saturating_sub(done);
        }
        now = at;
        let started: Vec<Start> = if let Some(place) = ended {
            let it = running.remove(place);
            for &gpu in &it.gpus {
                tenants[gpu] -= 1;
            }
            outcome.took += now - tasks[it.task].at;
            outcome.makespan = now;
            policy.end(it.task, now)
        } else {
            let first = next;
            while tasks.get(next).is_some_and(|task| task.at == now) {
                next += 1;
            }
            let came: Vec<_> = (first..next).map(|task| (task, tasks[task])).collect();
            policy.arrive(&came, now)
        };
        for (task, gpus) in started {
            for &gpu in &gpus {
                tenants[gpu] += 1;
            }
            outcome.waited += now - tasks[task].at;
            let left = tasks[task].alone * WORK;
            running.push(MixTask { task, gpus, left });
        }
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::{GpuRequest, Milli};

    use super::super::policy::{Choice, SimplePolicy};
    use super::*;

    fn half(at: u64, alone: u64) -> ArrivingTask {
        let gpus = GpuRequest::Share(Milli(500));
        ArrivingTask { at, gpus, alone }
    }

    fn outcome(tasks: &[ArrivingTask], gpus: u32, choice: Choice) -> MixOutcome {
        run(tasks, gpus, &mut SimplePolicy::new(choice, gpus))
    }

    #[test]
    fn neighbours_make_each_other_a_quarter_slower_while_both_run() {
        let tasks = [half(0, 1000), half(0, 2000)];
        let together = outcome(&tasks, 2, Choice::First);
        // Both for 1250, then the rest of the longer one alone.
        assert_eq!((together.took, together.makespan), (1250 + 2250, 2250));
        let apart = outcome(&tasks, 2, Choice::Spread);
        assert_eq!((apart.took, apart.makespan), (3000, 2000));
    }

    #[test]
    fn what_finds_no_room_waits_for_an_end() {
        let tasks = [half(0, 1000), half(0, 1000), half(250, 1000)];
        let one = outcome(&tasks, 1, Choice::First);
        assert_eq!((one.waited, one.makespan), (1000, 2250));
    }
}
