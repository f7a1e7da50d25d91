//! A part of a run that is in a store elsewhere, as that of a job on a cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_engine::TimeBudget;
use packhorse_model::{Command, RunId, TaskSpec};
use packhorse_store::{Home, Uuid};

use crate::journal::Journal;

/// A part of a run that is in a store elsewhere.
///
/// Its tasks are those that its journal has left over, with the numbers that they have
/// there. Whoever observes it tells the store what becomes of them.
pub struct RunPart {
    /// A folder of its own on this machine.
    pub home: Home,
    /// The number that the run has in its store.
    pub run: RunId,
    pub uuid: Uuid,
    /// The folder of the tasks' logs.
    pub logs: PathBuf,
    /// The highest number of a task in it.
    pub last: u32,
    /// Knows its tasks.
    pub journal: Box<dyn Journal>,
    /// When its time is over, if that is known.
    pub time: Option<PartTime>,
}

/// When the time of a part is over.
#[derive(Clone, Debug)]
pub struct PartTime {
    /// When tasks that still run are ended.
    pub ends: Instant,
    /// How long a later part would have.
    pub whole: Duration,
    /// How long tasks took before.
    pub seen: Vec<(Arc<Command>, Arc<TaskSpec>, Duration)>,
}

impl PartTime {
    /// The same as the engine sees it, whose clock began at `origin`.
    pub(crate) fn budget(self, run: RunId, origin: Instant) -> TimeBudget {
        let seen = self.seen.into_iter();
        TimeBudget {
            ends: self.ends.saturating_duration_since(origin),
            whole: self.whole,
            seen: seen.map(|(command, spec, took)| (run, command, spec, took)).collect(),
        }
    }
}
