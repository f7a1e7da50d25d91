//! Tasks that come one after another, of a few sizes.

use fastrand::Rng;
use packhorse_model::{GpuRequest, Milli};

/// How many tasks a workload has.
pub const TASKS: u32 = 400;

/// How long a task takes on average if it is alone on its GPUs, in milliseconds.
const MEAN: u64 = 100_000;

/// Sizes in thousandths of a GPU, and how many of a hundred tasks have each.
const MIXES: [&[(u32, u32)]; 5] = [
    &[(500, 100)],
    &[(250, 60), (500, 40)],
    &[(500, 70), (1000, 30)],
    &[(250, 50), (500, 25), (1000, 25)],
    &[(300, 40), (600, 30), (1000, 20), (2000, 10)],
];

/// How much is asked for, in per cent of what all GPUs can do; with `None` all tasks are
/// there at the start.
pub const LOADS: [Option<u32>; 4] = [Some(50), Some(80), Some(110), None];

#[derive(Clone, Copy, Debug)]
pub struct ArrivingTask {
    /// When it comes, in milliseconds.
    pub at: u64,
    pub gpus: GpuRequest,
    /// How long it takes if it is alone on its GPUs, in milliseconds.
    pub alone: u64,
}

/// The same tasks every time, for each mix.
pub fn workloads(
    gpus: u32,
    load: Option<u32>,
    seed: u64,
) -> impl Iterator<Item = Vec<ArrivingTask>> {
    MIXES.iter().map(move |mix| workload(mix, gpus, load, seed))
}

fn workload(mix: &[(u32, u32)], gpus: u32, load: Option<u32>, seed: u64) -> Vec<ArrivingTask> {
    let mut random = Rng::with_seed(seed);
    // What nobody could ever run is left out.
    let mix: Vec<(u32, u32)> =
        mix.iter().copied().filter(|&(size, _)| size <= gpus * 1000).collect();
    let all: u32 = mix.iter().map(|&(_, many)| many).sum();
    let mean_size: u32 = mix.iter().map(|&(size, many)| size * many).sum::<u32>() / all.max(1);
    // The mean time between two arrivals.
    let apart = load.map_or(0.0, |load| {
        f64::from(mean_size) * milliseconds(MEAN) / (f64::from(gpus) * f64::from(load) * 10.0)
    });
    let mut at = 0;
    let tasks = (0..TASKS).map(|_| {
        let mut place = random.u32(..all.max(1));
        let size = mix.iter().find(|&&(_, many)| {
            let found = place < many;
            place = place.saturating_sub(many);
            found
        });
        let size = size.map_or(1000, |&(size, _)| size);
        at += whole(apart * -(1.0 - random.f64()).ln());
        // Most are short, some are long: between a tenth of the mean and five times of it.
        let length = (-(1.0 - random.f64()).ln()).clamp(0.1, 5.0);
        ArrivingTask {
            at,
            gpus: match size {
                1000.. => GpuRequest::Whole(size / 1000),
                _ => GpuRequest::Share(Milli(size)),
            },
            alone: whole(length * milliseconds(MEAN)),
        }
    });
    tasks.collect()
}

#[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
fn milliseconds(time: u64) -> f64 {
    time as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time in milliseconds"
)]
fn whole(time: f64) -> u64 {
    time.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_asked_for_as_was_said() {
        for gpus in [2, 8] {
            for tasks in workloads(gpus, Some(80), 7) {
                let asked = tasks.iter().map(|task| match task.gpus {
                    GpuRequest::Whole(count) => u64::from(count) * 1000 * task.alone,
                    GpuRequest::Share(share) => u64::from(share.0) * task.alone,
                    GpuRequest::None => 0,
                });
                let offered = tasks.last().unwrap().at * u64::from(gpus) * 1000;
                let load = asked.sum::<u64>() * 100 / offered;
                assert!((65..95).contains(&load), "{load} %");
            }
        }
    }

    #[test]
    fn nothing_is_larger_than_the_machine() {
        let mut tasks = workloads(1, None, 1).flatten();
        assert!(tasks.all(|task| task.gpus.devices() == 1 && task.at == 0));
    }
}
