use std::time::Duration;

use packhorse_core::{DeviceSpec, NodeSpec, Pool};
use packhorse_model::{Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, Request};

use crate::random::Random;
use crate::truth::{Truth, Work, plain};

const MIB: u64 = 1 << 20;

/// How many steps a member's memory grows in.
const STEPS: u32 = 4;

/// Reserved amounts are multiples of this, as learned ones are.
const STEP: u64 = 64 * MIB;

/// Many tasks of few kinds with random peaks and durations, on one machine of
/// equal GPUs.
///
/// Tasks of one kind are alike, not equal: their peaks are within 4 % of the
/// kind's own, which is anything from a 24th of a GPU to half of one, small ones
/// being more common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// How many GPUs there are.
    pub gpus: u32,
    /// How much memory each of them has.
    pub capacity: Bytes,
    /// The tasks, in the order in which they come.
    pub members: Vec<Member>,
}

/// One task of a crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which kind of task it is.
    pub kind: u32,
    /// The most memory that it will hold.
    pub peak: Bytes,
    /// How long it will run.
    pub lasts: Duration,
}

impl Member {
    /// When its memory has grown to the peak: a quarter of the way.
    pub fn grown(&self) -> Duration {
        self.lasts / 4
    }
}

impl Crowd {
    /// `tasks` tasks of `kinds` kinds that last `mean` on average, from half of
    /// that to one and a half times. The same `seed` gives the same crowd.
    pub fn new(
        (gpus, capacity): (u32, Bytes),
        (tasks, kinds): (usize, u32),
        mean: Duration,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        let all = f64::from(u32::try_from(capacity.0 / MIB).unwrap_or(u32::MAX));
        // From 1/24 to 12/24, evenly by ratio.
        let own = (0..kinds.max(1)).map(|_| all / 24.0 * 12_f64.powf(random.part()));
        let own: Vec<f64> = own.collect();
        let members = (0..tasks).map(|_| {
            let kind = random.below(own.len());
            let peak = own[kind] * (0.96 + 0.08 * random.part());
            Member {
                kind: u32::try_from(kind).unwrap_or(0),
                peak: mebibytes(peak),
                lasts: mean.mul_f64(0.5 + random.part()),
            }
        });
        Self {
            gpus,
            capacity,
            members: members.collect(),
        }
    }

    /// No schedule is shorter: all memory in use all the time, or the longest
    /// task.
    pub fn lower_bound(&self) -> Duration {
        let area = |member: &Member| u128::from(member.peak.0) * member.lasts.as_nanos();
        let area: u128 = self.members.iter().map(area).sum();
        let all = u128::from(self.capacity.0) * u128::from(self.gpus);
        let packed = area.checked_div(all).unwrap_or(0);
        let packed = Duration::from_nanos(u64::try_from(packed).unwrap_or(u64::MAX));
        let longest = self.members.iter().map(|member| member.lasts).max();
        packed.max(longest.unwrap_or_default())
    }

    /// The machine.
    pub fn pool(&self) -> Pool {
        let device = |id: u32| DeviceSpec {
            id: DeviceId(id),
            near_cores: Vec::new(),
            memory: self.capacity,
            model: 0,
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

    /// The tasks, each of which asks for its own peak rounded up to 64 MiB.
    pub fn work(&self) -> impl Iterator<Item = Work> {
        self.members.iter().zip(1..).map(|(member, number)| {
            let request = Request {
                gpus: GpuRequest::Share(Milli(0)),
                memory: MemoryRequest::Bytes(Bytes(member.peak.0.next_multiple_of(STEP))),
                ..Request::default()
            };
            Work {
                submission: plain(number, request),
                truth: Truth::growing(member.lasts, member.peak, STEPS, member.grown()),
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

    use super::*;
    use crate::Simulation;

    fn crowd(tasks: usize) -> Crowd {
        let second = Duration::from_secs(1);
        Crowd::new((8, Bytes(24 << 30)), (tasks, 20), second * 10, 7)
    }

    #[test]
    fn peaks_stay_within_half_a_gpu_and_alike_within_a_kind() {
        let crowd = crowd(2000);
        for kind in 0..20 {
            let members = crowd.members.iter().filter(|member| member.kind == kind);
            let peaks: Vec<u64> = members.map(|member| member.peak.0 / MIB).collect();
            let (least, most) = (*peaks.iter().min().unwrap(), *peaks.iter().max().unwrap());
            assert!(most * 100 <= least * 109, "{least} {most}");
            assert!(least >= 980 && most <= 12800, "{least} {most}");
        }
    }

    #[test]
    fn with_needs_known_nobody_dies_and_no_gpu_is_left_idle() {
        let crowd = crowd(2000);
        let mut simulation = Simulation::new(&crowd.pool(), SchedulerSettings::default()).unwrap();
        for work in crowd.work() {
            simulation.submit(Duration::ZERO, work);
        }
        let history = simulation.run();
        assert_eq!(history.finished.len(), 2000);
        assert_eq!(history.ended_by(|cause| cause != EndCause::Own), 0);
        let ratio = history.makespan().as_secs_f64() / crowd.lower_bound().as_secs_f64();
        assert!((1.0..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn bound_is_the_longest_task_when_there_is_room_for_all() {
        let crowd = crowd(3);
        let longest = crowd.members.iter().map(|member| member.lasts).max();
        assert_eq!(Some(crowd.lower_bound()), longest);
    }
}
