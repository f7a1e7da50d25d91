use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::{EndCause, RefusalReason};
use packhorse_model::{Bytes, DeviceId, Outcome, Placement, TaskId};

/// One attempt, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The task.
    pub task: TaskId,
    /// Which attempt of it; 0 is a probe.
    pub attempt: u32,
    /// What it was given.
    pub placement: Placement,
    /// When it started.
    pub start: Duration,
    /// When it ended. As `start` until then.
    pub end: Duration,
    /// The most memory that it held on a device.
    pub peak: Bytes,
    /// How it came out; nothing while it runs.
    pub outcome: Option<(Outcome, EndCause)>,
}

/// What happened in a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Every attempt, in the order of their starts.
    pub ran: Vec<Ran>,
    /// How every task that is over came out.
    pub finished: BTreeMap<TaskId, Outcome>,
    /// The tasks that were not taken.
    pub refused: Vec<(TaskId, RefusalReason)>,
    /// The tasks that still wait although nothing more will happen.
    pub waiting: Vec<TaskId>,
}

impl History {
    /// When the last attempt ended.
    pub fn makespan(&self) -> Duration {
        let ends = self.ran.iter().map(|ran| ran.end);
        ends.max().unwrap_or_default()
    }

    /// How many attempts ended because of `cause`.
    pub fn ended_by(&self, cause: impl Fn(EndCause) -> bool) -> usize {
        let causes = self.ran.iter().filter_map(|ran| Some(ran.outcome?.1));
        causes.filter(|&ended| cause(ended)).count()
    }

    /// For how long somebody was on `device`.
    pub fn busy(&self, device: DeviceId) -> Duration {
        let (mut total, mut until) = (Duration::ZERO, Duration::ZERO);
        for ran in &self.ran {
            if ran.placement.devices.iter().any(|on| on.device == device) {
                total += ran.end.saturating_sub(ran.start.max(until));
                until = until.max(ran.end);
            }
        }
        total
    }

    /// The part of the time until the last end, over `devices` alike, that
    /// somebody was on them; 0 to 1.
    pub fn utilisation(&self, devices: &[DeviceId]) -> f64 {
        let busy: Duration = devices.iter().map(|&device| self.busy(device)).sum();
        let all = devices.iter().map(|_| self.makespan()).sum::<Duration>();
        if all.is_zero() {
            0.0
        } else {
            busy.div_duration_f64(all)
        }
    }
}
