//! How long a task will take, as far as anybody knows.

use std::path::Path;
use std::time::Duration;

use packhorse_engine::draft_of;
use packhorse_model::{TaskSpec, TimeLimit};
use packhorse_store::Reader;
use rustc_hash::FxHashMap;

use crate::planning::ASSUMED_TASK;

/// What was learned is looked up for so many tasks: after that, tasks are like those.
const LOOKED_UP: u32 = 1000;

/// Tells how long tasks will take.
pub(crate) struct TimeEstimate<'a> {
    /// What the person says of all of them.
    said: Option<Duration>,
    reader: Option<&'a Reader>,
    folder: &'a Path,
    looks: u32,
    /// By what a task is remembered by.
    known: FxHashMap<String, Option<Duration>>,
    /// The sum of what was found, and how often.
    found: (Duration, u32),
}

impl<'a> TimeEstimate<'a> {
    /// For tasks that are started in `folder`.
    pub(crate) fn new(said: Option<Duration>, reader: &'a Reader, folder: &'a Path) -> Self {
        let has_learned = reader.signatures().is_ok_and(|known| !known.is_empty());
        Self {
            said,
            reader: has_learned.then_some(reader),
            folder,
            looks: 0,
            known: FxHashMap::default(),
            found: (Duration::ZERO, 0),
        }
    }

    /// What is expected of a task: what the person says, what was learned of tasks like it,
    /// its time limit, or else the usual.
    pub(crate) fn of(&mut self, task: &TaskSpec) -> Duration {
        let limit = task.timeout.and_then(TimeLimit::get);
        let said = self.said;
        said.or_else(|| self.learned(task)).or(limit).unwrap_or(ASSUMED_TASK)
    }

    fn learned(&mut self, task: &TaskSpec) -> Option<Duration> {
        let reader = self.reader?;
        if self.looks >= LOOKED_UP {
            return (self.found.1 > 0).then(|| self.found.0 / self.found.1);
        }
        self.looks += 1;
        let signature = draft_of(&task.command, task, self.folder).finish(&[]);
        let kind = signature.family.unwrap_or(signature.name);
        let time = *self.known.entry(kind).or_insert_with_key(|kind| {
            let peaks = reader.family_peaks(kind).ok()?;
            let peaks = peaks.values().flat_map(|models| models.values().flatten());
            let times: Vec<Duration> = peaks.filter_map(|peak| peak.duration).collect();
            let count = u32::try_from(times.len()).ok().filter(|count| *count > 0)?;
            Some(times.iter().sum::<Duration>() / count)
        });
        if let Some(time) = time {
            self.found = (self.found.0 + time, self.found.1 + 1);
        }
        time
    }
}
