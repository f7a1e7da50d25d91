//! What tasks print as metrics: told line by line, written down in summaries.
//!
//! A task may print a million lines. The journal gets one record of each attempt a
//! second at most, and one at its end, with the last, lowest and highest value of each
//! name and how many there were.

use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_model::{AttemptMetrics, EventKind, MetricLine, MetricSummary, Record, TaskId};
use rustc_hash::FxHashMap;

use crate::engine::Engine;

/// How long values may be in memory alone.
const UNRECORDED: Duration = Duration::from_secs(1);

/// How many names are kept of each attempt. Whoever has more puts something into the name
/// that belongs into `step`.
const MOST_NAMES: usize = 1000;

/// The metrics of tasks that are not over.
#[derive(Debug, Default)]
pub(crate) struct MetricBook {
    tasks: FxHashMap<TaskId, TaskMetrics>,
    /// When to write down what is not recorded yet.
    record_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct TaskMetrics {
    /// Which attempt printed them.
    attempt: u32,
    summaries: BTreeMap<String, MetricSummary>,
    /// Whether the journal does not have all of it.
    is_unrecorded: bool,
    /// Whether it was said that a line is not right.
    told_wrong: bool,
    /// Whether it was said that there are too many names.
    told_many: bool,
}

impl TaskMetrics {
    /// Counts the values of a line. Whether there was no room for a name.
    fn add(&mut self, line: &MetricLine) -> bool {
        let mut many = false;
        for (name, &value) in &line.values {
            if let Some(summary) = self.summaries.get_mut(name) {
                summary.add(value);
            } else if self.summaries.len() < MOST_NAMES {
                self.summaries.insert(name.clone(), MetricSummary::of(value));
            } else {
                many = true;
            }
        }
        many
    }

    /// The record of what the journal does not have yet.
    fn record(&mut self, task: TaskId) -> Option<Record> {
        std::mem::take(&mut self.is_unrecorded).then(|| {
            Record::Metrics(Box::new(AttemptMetrics {
                task,
                attempt: self.attempt,
                metrics: self.summaries.clone(),
            }))
        })
    }
}

impl MetricBook {
    /// When something has to be written down though nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.record_at
    }

    /// What is known of an attempt.
    pub(crate) fn of(&self, task: TaskId, attempt: u32) -> BTreeMap<String, MetricSummary> {
        let metrics = self.tasks.get(&task);
        let metrics = metrics.filter(|metrics| metrics.attempt == attempt);
        metrics.map_or_else(BTreeMap::new, |metrics| metrics.summaries.clone())
    }

    /// Forgets a task that is over.
    pub(crate) fn forget(&mut self, task: TaskId) {
        self.tasks.remove(&task);
    }
}

impl Engine {
    pub(crate) fn metrics_printed(&mut self, id: TaskId, attempt: u32, lines: Vec<MetricLine>) {
        let alive = self.tasks.get(&id).and_then(|task| task.attempt.as_ref());
        if alive.is_none_or(|alive| alive.number != attempt) {
            return;
        }
        let metrics = self.metrics.tasks.entry(id).or_default();
        if metrics.attempt != attempt {
            // Those of the attempt that counts.
            metrics.attempt = attempt;
            metrics.summaries.clear();
        }
        metrics.is_unrecorded = true;
        let mut many = false;
        for line in &lines {
            many |= metrics.add(line);
        }
        many &= !metrics.told_many;
        metrics.told_many |= many;
        let due = self.now.monotonic.saturating_add(UNRECORDED);
        self.metrics.record_at.get_or_insert(due);
        for MetricLine { values, step } in lines {
            self.tell(EventKind::Metrics { task: id, attempt, values, step });
        }
        if many {
            let message = format!(
                "it printed metrics of more than {MOST_NAMES} names: others are told, but not kept"
            );
            self.warn(Some(id), message);
        }
    }

    pub(crate) fn wrong_metrics(&mut self, id: TaskId, message: String) {
        if !self.tasks.contains_key(&id) {
            return;
        }
        let metrics = self.metrics.tasks.entry(id).or_default();
        if !std::mem::replace(&mut metrics.told_wrong, true) {
            self.warn(Some(id), message);
        }
    }

    /// Writes down the metrics of a task, if the journal does not have them.
    pub(crate) fn record_metrics_of(&mut self, id: TaskId) {
        let metrics = self.metrics.tasks.get_mut(&id);
        if let Some(record) = metrics.and_then(|metrics| metrics.record(id)) {
            self.record(record);
        }
    }

    /// Writes down what has not been for long enough.
    pub(crate) fn record_metrics_due(&mut self) {
        let now = self.now.monotonic;
        if self.metrics.record_at.is_none_or(|at| at > now) {
            return;
        }
        self.metrics.record_at = None;
        let tasks = self.metrics.tasks.iter();
        let unrecorded = tasks.filter(|(_, metrics)| metrics.is_unrecorded);
        let mut unrecorded: Vec<TaskId> = unrecorded.map(|(&id, _)| id).collect();
        unrecorded.sort_unstable();
        for id in unrecorded {
            self.record_metrics_of(id);
        }
    }
}
