//! How the program that the third door comes from runs the same tasks.
//!
//! It takes batches, one after another. Each task of a batch is first run
//! alone for a few epochs to see its peak; then the batch is started in order,
//! and a start waits until the GPU's memory less the peaks of those that run
//! suffices for its own peak and half a GiB more. The next batch begins when
//! the last task of this one is over. It uses one GPU.
//!
//! In its favour: it sees the true peak in a tenth of a task's time, and the
//! second that it sleeps between two looks is not counted.

use std::collections::BinaryHeap;
use std::{cmp::Reverse, time::Duration};

use packhorse_model::Bytes;

use crate::crowd::{Crowd, Member};

/// Its default for `--num`.
pub const BATCH: usize = 20;

const BUFFER: Bytes = Bytes(1 << 29);

/// Its probes take so much of a task's time: 2 epochs of 20.
const PROBE: u32 = 10;

/// How long it takes for all tasks of `crowd` on one GPU.
pub fn on_one_gpu(crowd: &Crowd) -> Duration {
    span(&crowd.members, crowd.capacity)
}

/// How long it takes if a person starts one of it on each GPU, and deals the
/// tasks out to them in turn.
pub fn on_each_gpu(crowd: &Crowd) -> Duration {
    let gpus = crowd.gpus.max(1) as usize;
    let hands = (0..gpus).map(|gpu| {
        let members = crowd.members.iter().skip(gpu).step_by(gpus);
        span(&members.copied().collect::<Vec<_>>(), crowd.capacity)
    });
    hands.max().unwrap_or_default()
}

fn span(members: &[Member], capacity: Bytes) -> Duration {
    members
        .chunks(BATCH)
        .map(|batch| batch_span(batch, capacity))
        .sum()
}

fn batch_span(batch: &[Member], capacity: Bytes) -> Duration {
    let mut now: Duration = batch.iter().map(|member| member.lasts / PROBE).sum();
    let mut free = capacity.0;
    let mut running = BinaryHeap::new();
    for member in batch {
        // One that needs the buffer as well would wait for ever: it goes alone.
        let needed = (member.peak.0 + BUFFER.0).min(capacity.0);
        while free < needed {
            let Some(Reverse((end, peak))) = running.pop() else {
                break;
            };
            now = now.max(end);
            free += peak;
        }
        free = free.saturating_sub(member.peak.0);
        running.push(Reverse((now + member.lasts, member.peak.0)));
    }
    let ends = running.into_iter().map(|Reverse((end, _))| end);
    ends.fold(now, Duration::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(peaks: &[u64], gpus: u32) -> Crowd {
        Crowd {
            gpus,
            capacity: Bytes(10 << 30),
            members: peaks
                .iter()
                .map(|&peak| Member {
                    kind: 0,
                    peak: Bytes(peak << 30),
                    lasts: Duration::from_secs(100),
                })
                .collect(),
        }
    }

    #[test]
    fn probes_go_one_by_one_and_then_what_fits_with_the_buffer() {
        let seconds = |peaks: &[u64]| on_one_gpu(&crowd(peaks, 1)).as_secs();
        assert_eq!(seconds(&[4]), 110);
        assert_eq!(seconds(&[4, 4]), 120);
        assert_eq!(seconds(&[5, 5]), 220, "there is no room for the buffer");
        assert_eq!(seconds(&[10]), 110, "the largest still runs alone");
    }

    #[test]
    fn first_that_does_not_fit_holds_up_those_behind_it() {
        let waited = on_one_gpu(&crowd(&[8, 8, 1, 1], 1)).as_secs();
        assert_eq!(waited, 40 + 300, "both small ones fit beside the first");
    }

    #[test]
    fn batch_waits_for_the_one_before() {
        let one = on_one_gpu(&crowd(&[1; 20], 1)).as_secs();
        let two = on_one_gpu(&crowd(&[1; 21], 1)).as_secs();
        assert_eq!(two, one + 110);
    }

    #[test]
    fn one_on_each_gpu_shares_the_tasks() {
        let crowd = crowd(&[9; 4], 2);
        assert_eq!(on_one_gpu(&crowd).as_secs(), 440);
        assert_eq!(on_each_gpu(&crowd).as_secs(), 220);
    }
}
