use std::time::Duration;

use packhorse_core::Submission;
use packhorse_model::{Bytes, Outcome, Request, RunId, TaskId};

/// A task: what the scheduler is told about it, and what it will really do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedTask {
    /// What the scheduler is told.
    pub submission: Submission,
    /// What it will really do.
    pub behaviour: TaskBehaviour,
}

/// What an attempt does if nothing stops it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskBehaviour {
    /// How long it runs.
    pub lasts: Duration,
    /// The memory that it holds on each of its devices, in the order of time.
    pub memory: Vec<MemoryStep>,
    /// How it ends.
    pub outcome: Outcome,
}

/// An attempt holds this much memory from this time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStep {
    /// The time since its start.
    pub after: Duration,
    /// The amount on each of its devices.
    pub memory: Bytes,
}

/// Task `number`, which asks for `request` and nothing else.
pub fn plain_submission(number: u32, request: Request) -> Submission {
    Submission::new(TaskId::new(RunId(1), number), request)
}

impl TaskBehaviour {
    /// Succeeds after this time, and uses no memory.
    pub fn lasting(lasts: Duration) -> Self {
        Self { lasts, memory: Vec::new(), outcome: Outcome::Succeeded }
    }

    /// Succeeds after this time. Its memory grows in `steps` equal steps, the first at
    /// its start, until it reaches `peak` after `grown`.
    pub fn growing(lasts: Duration, peak: Bytes, steps: u32, grown: Duration) -> Self {
        let steps = steps.max(1);
        let part = |step: u32| {
            let bytes = u128::from(peak.0) * u128::from(step + 1) / u128::from(steps);
            Bytes(u64::try_from(bytes).unwrap_or(peak.0))
        };
        let memory = (0..steps).map(|step| MemoryStep {
            after: grown * step / (steps - 1).max(1),
            memory: part(step),
        });
        Self { memory: memory.collect(), ..Self::lasting(lasts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_ends_at_the_peak() {
        let second = Duration::from_secs(1);
        let behaviour = TaskBehaviour::growing(second * 10, Bytes(900), 3, second * 4);
        let held: Vec<_> =
            behaviour.memory.iter().map(|step| (step.after.as_secs(), step.memory.0)).collect();
        assert_eq!(held, [(0, 300), (2, 600), (4, 900)]);
    }

    #[test]
    fn one_step_happens_at_the_start() {
        let second = Duration::from_secs(1);
        for steps in [0, 1] {
            let behaviour = TaskBehaviour::growing(second, Bytes(900), steps, second);
            assert_eq!(
                behaviour.memory,
                [MemoryStep { after: Duration::ZERO, memory: Bytes(900) }]
            );
        }
    }
}
