//! How the original of `packhorse csv` would run the same tasks.
//!
//! It runs batches one after another. Each task of a batch first runs alone for a few
//! epochs to measure its peak. Then the batch is started in order: a start waits until
//! the GPU's memory, less the peaks of those that run, suffices for its own peak and half
//! a GiB more. The next batch begins when the last task of this one has ended. It uses
//! one GPU.
//!
//! In its favour: it measures the true peak in a tenth of a task's time, and the second
//! that it sleeps between two checks is not counted.

use std::collections::BinaryHeap;
use std::{cmp::Reverse, time::Duration};

use packhorse_model::Bytes;

use super::load::{SyntheticLoad, SyntheticTask};

/// Its default for `--num`.
const BATCH: usize = 20;

const BUFFER: Bytes = Bytes(1 << 29);

/// Its probes take one part in so many of a task's time: 2 epochs of 20.
const PROBE: u32 = 10;

/// How long all tasks take on one GPU.
pub fn on_one_gpu(load: &SyntheticLoad) -> Duration {
    span(&load.tasks, load.capacity)
}

/// How long all tasks take if somebody starts one instance on each GPU and distributes the
/// tasks to them in turn.
pub fn on_each_gpu(load: &SyntheticLoad) -> Duration {
    let gpus = load.gpus.max(1) as usize;
    let spans = (0..gpus).map(|gpu| {
        let tasks = load.tasks.iter().skip(gpu).step_by(gpus);
        span(&tasks.copied().collect::<Vec<_>>(), load.capacity)
    });
    spans.max().unwrap_or_default()
}

fn span(tasks: &[SyntheticTask], capacity: Bytes) -> Duration {
    tasks.chunks(BATCH).map(|batch| batch_span(batch, capacity)).sum()
}

fn batch_span(batch: &[SyntheticTask], capacity: Bytes) -> Duration {
    let mut now: Duration = batch.iter().map(|task| task.lasts / PROBE).sum();
    let mut free = capacity.0;
    let mut running = BinaryHeap::new();
    for task in batch {
        // A task that leaves no room for the buffer would wait for ever: it runs alone.
        let needed = (task.peak.0 + BUFFER.0).min(capacity.0);
        while free < needed {
            let Some(Reverse((end, peak))) = running.pop() else {
                break;
            };
            now = now.max(end);
            free += peak;
        }
        free = free.saturating_sub(task.peak.0);
        running.push(Reverse((now + task.lasts, task.peak.0)));
    }
    let ends = running.into_iter().map(|Reverse((end, _))| end);
    ends.fold(now, Duration::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(peaks: &[u64], gpus: u32) -> SyntheticLoad {
        SyntheticLoad {
            gpus,
            capacity: Bytes(10 << 30),
            tasks: peaks
                .iter()
                .map(|&peak| SyntheticTask {
                    kind: 0,
                    peak: Bytes(peak << 30),
                    lasts: Duration::from_secs(100),
                })
                .collect(),
        }
    }

    #[test]
    fn probes_go_one_by_one_and_then_what_fits_with_the_buffer() {
        let seconds = |peaks: &[u64]| on_one_gpu(&load(peaks, 1)).as_secs();
        assert_eq!(seconds(&[4]), 110);
        assert_eq!(seconds(&[4, 4]), 120);
        assert_eq!(seconds(&[5, 5]), 220, "there is no room for the buffer");
        assert_eq!(seconds(&[10]), 110, "the largest still runs alone");
    }

    #[test]
    fn the_first_that_does_not_fit_delays_those_behind_it() {
        let waited = on_one_gpu(&load(&[8, 8, 1, 1], 1)).as_secs();
        assert_eq!(waited, 40 + 300, "both small ones fit beside the first");
    }

    #[test]
    fn batch_waits_for_the_one_before() {
        let one = on_one_gpu(&load(&[1; 20], 1)).as_secs();
        let two = on_one_gpu(&load(&[1; 21], 1)).as_secs();
        assert_eq!(two, one + 110);
    }

    #[test]
    fn one_on_each_gpu_shares_the_tasks() {
        let load = load(&[9; 4], 2);
        assert_eq!(on_one_gpu(&load).as_secs(), 440);
        assert_eq!(on_each_gpu(&load).as_secs(), 220);
    }
}
