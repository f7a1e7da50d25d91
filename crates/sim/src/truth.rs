use std::time::Duration;

use packhorse_core::Submission;
use packhorse_model::{Bytes, Outcome, Priority, Request, RunId, TaskId};

/// A task: what the scheduler is told of it, and what it will really do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// What the scheduler is told.
    pub submission: Submission,
    /// What is true.
    pub truth: Truth,
}

/// What an attempt does if nothing stops it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    /// How long it runs.
    pub lasts: Duration,
    /// How much memory it holds on each of its devices, in the order of time.
    pub memory: Vec<Hold>,
    /// How it comes out.
    pub outcome: Outcome,
}

/// From some time after its start on, an attempt holds so much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How long after its start.
    pub after: Duration,
    /// How much on each of its devices.
    pub memory: Bytes,
}

/// Task `number`, which asks for `request` and wants nothing else.
pub(crate) fn plain(number: u32, request: Request) -> Submission {
    Submission {
        id: TaskId::new(RunId(1), number),
        request,
        batch: 0,
        priority: Priority(0),
        retries: 0,
        time_limit: None,
        expected: None,
        probe: packhorse_core::ProbePlan::None,
        after: Vec::new(),
    }
}

impl Truth {
    /// Succeeds after so long, and uses no memory.
    pub fn lasting(lasts: Duration) -> Self {
        Self {
            lasts,
            memory: Vec::new(),
            outcome: Outcome::Succeeded,
        }
    }

    /// Succeeds after so long; its memory grows in `steps` equal steps, the
    /// first at its start, until it reaches `peak` after `grown`.
    pub fn growing(lasts: Duration, peak: Bytes, steps: u32, grown: Duration) -> Self {
        let steps = steps.max(1);
        let part = |step: u32| {
            let bytes = u128::from(peak.0) * u128::from(step + 1) / u128::from(steps);
            Bytes(u64::try_from(bytes).unwrap_or(peak.0))
        };
        let memory = (0..steps).map(|step| Hold {
            after: grown * step / (steps - 1).max(1),
            memory: part(step),
        });
        Self {
            memory: memory.collect(),
            ..Self::lasting(lasts)
        }
    }

    /// The most memory that it ever holds on a device.
    pub fn peak(&self) -> Bytes {
        let held = self.memory.iter().map(|hold| hold.memory);
        held.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_ends_at_the_peak() {
        let second = Duration::from_secs(1);
        let truth = Truth::growing(second * 10, Bytes(900), 3, second * 4);
        let held: Vec<_> = truth
            .memory
            .iter()
            .map(|hold| (hold.after.as_secs(), hold.memory.0))
            .collect();
        assert_eq!(held, [(0, 300), (2, 600), (4, 900)]);
        assert_eq!(truth.peak(), Bytes(900));
        assert_eq!(Truth::lasting(second).peak(), Bytes(0));
    }

    #[test]
    fn one_step_is_there_at_once() {
        let second = Duration::from_secs(1);
        for steps in [0, 1] {
            let truth = Truth::growing(second, Bytes(900), steps, second);
            assert_eq!(
                truth.memory,
                [Hold {
                    after: Duration::ZERO,
                    memory: Bytes(900)
                }]
            );
        }
    }
}
