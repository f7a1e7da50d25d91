//! How far a run on a cluster has come: what its elements tell becomes what is recorded and
//! shown, as if it had happened here.
//!
//! The same may be told twice, by a reader that reads again or by a node that was given up
//! too early: the first end of a task counts. What a node takes with it when it dies is never
//! told: it is closed when the task starts again, or when its element is known to be gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use packhorse_model::{
    AttemptMetrics, AttemptPlace, Bytes, Command, EndedAttempt, Event, EventKind, Exit,
    MetricSummary, Outcome, Record, RunId, RunSummary, StartedAttempt, TaskId, TaskResult,
    Timestamp,
};
use rustc_hash::FxHashMap;

/// What a task says whose job was cut off.
const CUT_OFF: &str = "its job was cut off";

/// How far a run has come. See the [module](self).
pub(crate) struct Progress {
    run: RunId,
    total: u32,
    /// A bit for each task that is over.
    settled: Vec<u64>,
    succeeded: u64,
    failed: u64,
    running: FxHashMap<u32, RunningTask>,
    /// Tasks that were cut off and have not started again, and their last attempts.
    cut_off: FxHashMap<u32, TaskResult>,
    /// What is to be written down.
    pub(crate) records: Vec<Record>,
    /// What is to be shown.
    pub(crate) events: Vec<Event>,
}

/// A task that runs on the cluster.
#[derive(Clone, Debug)]
pub(crate) struct RunningTask {
    attempt: u32,
    /// The element it belongs to, if that is known.
    element: Option<u32>,
    since: Timestamp,
    command: Arc<Command>,
    peak: Option<Bytes>,
    metrics: BTreeMap<String, MetricSummary>,
    has_new_metrics: bool,
}

impl Progress {
    /// A run of so many tasks, of which these are over.
    pub(crate) fn new(run: RunId, total: u32, outcomes: &[(u32, Outcome)]) -> Self {
        let mut progress = Self {
            run,
            total,
            settled: vec![0; (total as usize + 64) / 64],
            succeeded: 0,
            failed: 0,
            running: FxHashMap::default(),
            cut_off: FxHashMap::default(),
            records: Vec::new(),
            events: Vec::new(),
        };
        for &(number, outcome) in outcomes {
            progress.settle(number, outcome);
        }
        progress
    }

    /// A task that was running when somebody last looked.
    pub(crate) fn was_running(
        &mut self,
        number: u32,
        element: Option<u32>,
        (attempt, since): (u32, Timestamp),
        command: Arc<Command>,
        device: Option<&str>,
    ) {
        let place = device.map(AttemptPlace::parse).unwrap_or_default();
        let node: Option<Arc<str>> = place.node.map(Into::into);
        let gpus: Arc<[String]> = place.gpus.into();
        self.running.insert(
            number,
            RunningTask {
                attempt,
                element,
                since,
                command: Arc::clone(&command),
                peak: None,
                metrics: BTreeMap::new(),
                has_new_metrics: false,
            },
        );
        let task = TaskId::new(self.run, number);
        self.show(since, EventKind::Started { task, attempt, command, gpus, node });
    }

    /// The tasks that run, by number.
    pub(crate) fn running(&self) -> &FxHashMap<u32, RunningTask> {
        &self.running
    }

    /// How many tasks succeeded, failed, and are left.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let left = u64::from(self.total).saturating_sub(self.succeeded + self.failed);
        (self.succeeded, self.failed, left)
    }

    /// Whether every task is over.
    pub(crate) fn is_done(&self) -> bool {
        self.counts().2 == 0
    }

    fn is_settled(&self, number: u32) -> bool {
        let bits = self.settled.get(number as usize / 64);
        bits.is_none_or(|bits| bits & (1 << (number % 64)) != 0)
    }

    fn settle(&mut self, number: u32, outcome: Outcome) {
        if self.is_settled(number) {
            return;
        }
        self.settled[number as usize / 64] |= 1 << (number % 64);
        match outcome {
            Outcome::Succeeded => self.succeeded += 1,
            _ => self.failed += 1,
        }
    }

    fn show(&mut self, time: Timestamp, kind: EventKind) {
        self.events.push(Event { time, kind });
    }

    /// Takes note of what an element has told.
    pub(crate) fn note(&mut self, element: u32, event: Event) {
        let Event { time, kind } = event;
        match kind {
            started @ EventKind::Started { .. } => self.started(element, time, started),
            EventKind::Retrying { task, attempt, outcome, note, left } => {
                if self.is_settled(task.number) {
                    return;
                }
                let ran = self.running.remove(&task.number);
                self.end(task, attempt, time, outcome, None, note.as_deref(), ran);
                self.show(time, EventKind::Retrying { task, attempt, outcome, note, left });
            }
            EventKind::Finished(result) => self.finished(time, result),
            EventKind::Measured(measurement) => {
                if let Some(running) = self.running.get_mut(&measurement.task.number) {
                    running.peak = Some(measurement.peak);
                }
                self.show(time, EventKind::Measured(measurement));
            }
            metrics @ EventKind::Metrics { .. } => self.metrics(time, metrics),
            kind @ (EventKind::Warning { .. } | EventKind::Output { .. }) => self.show(time, kind),
            // These are about an element: the run has its own.
            EventKind::RunStarted { .. }
            | EventKind::Known { .. }
            | EventKind::Stopping { .. }
            | EventKind::RunEnded(_) => {}
        }
    }

    fn started(&mut self, element: u32, time: Timestamp, kind: EventKind) {
        let EventKind::Started { task, attempt, command, gpus, node } = &kind else {
            return;
        };
        let (task, attempt) = (*task, *attempt);
        if self.is_settled(task.number) || task.run != self.run {
            return;
        }
        let device = device_text(node.as_deref(), gpus);
        let ran = RunningTask {
            attempt,
            element: Some(element),
            since: time,
            command: Arc::clone(command),
            peak: None,
            metrics: BTreeMap::new(),
            has_new_metrics: false,
        };
        self.goes_on(task, time);
        self.running.insert(task.number, ran);
        self.records.push(Record::Started(StartedAttempt { task, attempt, at: time, device }));
        self.show(time, kind);
    }

    fn metrics(&mut self, time: Timestamp, kind: EventKind) {
        if let EventKind::Metrics { task, attempt, values, .. } = &kind
            && let Some(running) = self.running.get_mut(&task.number)
            && running.attempt == *attempt
        {
            running.has_new_metrics = true;
            for (name, &value) in values {
                if let Some(summary) = running.metrics.get_mut(name) {
                    summary.add(value);
                } else {
                    let summary = MetricSummary::of(value);
                    running.metrics.insert(name.clone(), summary);
                }
            }
        }
        self.show(time, kind);
    }

    /// A task starts that was cut off before: that ends now, if nobody has said so.
    fn goes_on(&mut self, task: TaskId, now: Timestamp) {
        self.cut(task.number, now);
        self.cut_off.remove(&task.number);
    }

    fn show_cut_off(&mut self, task: TaskId, attempt: u32, now: Timestamp) {
        self.show(
            now,
            EventKind::Retrying {
                task,
                attempt,
                outcome: Outcome::Interrupted,
                note: Some(format!("{CUT_OFF}; no retry is used up")),
                left: 0,
            },
        );
    }

    fn finished(&mut self, time: Timestamp, result: TaskResult) {
        let (task, outcome) = (result.task, result.outcome);
        if self.is_settled(task.number) || task.run != self.run {
            return;
        }
        let ran = self.running.remove(&task.number);
        let message = result.message.as_deref();
        if !outcome.is_final() {
            self.end(task, result.attempts, time, outcome, message, None, ran);
            self.show_cut_off(task, result.attempts, time);
            // Whether it runs again is not known yet.
            self.cut_off.insert(task.number, result);
            return;
        }
        self.cut_off.remove(&task.number);
        if result.attempts == 0 {
            self.records.push(Record::TaskFinished { task, outcome });
        } else {
            if !result.metrics.is_empty() {
                self.records.push(Record::Metrics(Box::new(AttemptMetrics {
                    task,
                    attempt: result.attempts,
                    metrics: result.metrics.clone(),
                })));
            }
            self.records.push(Record::AttemptEnded(EndedAttempt {
                task,
                attempt: result.attempts,
                at: time,
                outcome,
                message: message.map(Into::into),
                peak: ran.and_then(|ran| ran.peak),
                note: None,
                is_final: true,
            }));
        }
        self.settle(task.number, outcome);
        self.show(time, EventKind::Finished(result));
    }

    /// Writes down the end of an attempt that is not the end of its task.
    #[expect(clippy::too_many_arguments, reason = "they are the columns of a row")]
    fn end(
        &mut self,
        task: TaskId,
        attempt: u32,
        at: Timestamp,
        outcome: Outcome,
        message: Option<&str>,
        note: Option<&str>,
        ran: Option<RunningTask>,
    ) {
        self.records.push(Record::AttemptEnded(EndedAttempt {
            task,
            attempt,
            at,
            outcome,
            message: message.map(Into::into),
            peak: ran.and_then(|ran| ran.peak),
            note: note.map(Into::into),
            is_final: false,
        }));
    }

    /// An element does not run any more, and has not said what became of its tasks.
    pub(crate) fn element_gone(&mut self, element: u32, now: Timestamp) {
        let gone = self.running.iter();
        let gone = gone.filter(|(_, ran)| ran.element == Some(element));
        let mut gone: Vec<u32> = gone.map(|(&number, _)| number).collect();
        gone.sort_unstable();
        for number in gone {
            self.cut(number, now);
        }
    }

    /// A running task was cut off.
    fn cut(&mut self, number: u32, now: Timestamp) {
        let Some(ran) = self.running.remove(&number) else {
            return;
        };
        let task = TaskId::new(self.run, number);
        let result = TaskResult {
            task,
            attempts: ran.attempt,
            outcome: Outcome::Interrupted,
            command: Arc::clone(&ran.command),
            message: Some(CUT_OFF.to_owned()),
            took: now.since(ran.since),
            log: None,
            metrics: ran.metrics.clone(),
        };
        let attempt = ran.attempt;
        self.end(task, attempt, now, Outcome::Interrupted, Some(CUT_OFF), None, Some(ran));
        self.show_cut_off(task, attempt, now);
        self.cut_off.insert(number, result);
    }

    /// Writes down what running tasks have printed as metrics since the last time.
    pub(crate) fn record_metrics(&mut self) {
        let (run, records) = (self.run, &mut self.records);
        let running = self.running.iter_mut();
        for (&number, ran) in running.filter(|(_, ran)| ran.has_new_metrics) {
            ran.has_new_metrics = false;
            records.push(Record::Metrics(Box::new(AttemptMetrics {
                task: TaskId::new(run, number),
                attempt: ran.attempt,
                metrics: ran.metrics.clone(),
            })));
        }
    }

    /// Nothing more will happen. `signal` is what has stopped it, if anything has.
    pub(crate) fn close(
        &mut self,
        now: Timestamp,
        took: Duration,
        signal: Option<u8>,
    ) -> RunSummary {
        let running: Vec<u32> = self.running.keys().copied().collect();
        for number in running {
            self.cut(number, now);
        }
        let mut left: Vec<TaskResult> = self.cut_off.drain().map(|(_, result)| result).collect();
        left.sort_by_key(|result| result.task);
        for result in left {
            let (task, outcome) = (result.task, Outcome::Interrupted);
            self.records.push(Record::TaskFinished { task, outcome });
            self.show(now, EventKind::Finished(result));
        }
        let (succeeded, failed, left) = self.counts();
        let exit = match signal {
            Some(signal) if left > 0 => Exit::Signal(signal),
            _ if failed + left > 0 => Exit::TasksFailed,
            _ => Exit::Success,
        };
        let run = self.run;
        self.records.push(Record::RunEnded { run, at: now, exit: exit.code() });
        RunSummary { run, succeeded, failed, left, rejected: 0, took, stored: true, exit }
    }
}

/// Where an attempt runs, as it is recorded.
fn device_text(node: Option<&str>, gpus: &[String]) -> Option<Arc<str>> {
    let place = AttemptPlace { node: node.map(str::to_owned), gpus: gpus.to_vec() };
    let text = place.to_string();
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId(3);

    fn at(seconds: i64, kind: EventKind) -> Event {
        let time = Timestamp(seconds * 1_000_000);
        Event { time, kind }
    }

    fn started(task: u32, attempt: u32) -> EventKind {
        EventKind::Started {
            task: TaskId::new(RUN, task),
            attempt,
            command: Arc::new(Command::Line(b"a".to_vec())),
            gpus: Arc::from(["2".to_owned()]),
            node: Some("n1".into()),
        }
    }

    fn finished(task: u32, attempts: u32, outcome: Outcome) -> EventKind {
        EventKind::Finished(TaskResult {
            task: TaskId::new(RUN, task),
            attempts,
            outcome,
            command: Arc::new(Command::Line(b"a".to_vec())),
            message: None,
            took: Duration::from_secs(1),
            log: None,
            metrics: BTreeMap::new(),
        })
    }

    /// What was shown, in short.
    fn shown(progress: &mut Progress) -> Vec<String> {
        let word = |event: Event| match event.kind {
            EventKind::Started { task, attempt, .. } => format!("{task} starts {attempt}"),
            EventKind::Retrying { task, attempt, outcome, .. } => {
                format!("{task} again after {attempt}: {outcome}")
            }
            EventKind::Finished(result) => format!("{} ends: {}", result.task, result.outcome),
            other => format!("{other:?}"),
        };
        progress.events.drain(..).map(word).collect()
    }

    fn ends(progress: &mut Progress) -> Vec<(u32, u32, &'static str, bool)> {
        let ends = progress.records.drain(..).filter_map(|record| match record {
            Record::AttemptEnded(end) => {
                Some((end.task.number, end.attempt, end.outcome.word(), end.is_final))
            }
            _ => None,
        });
        ends.collect()
    }

    #[test]
    fn what_elements_tell_is_recorded_and_shown() {
        let mut progress = Progress::new(RUN, 2, &[]);
        progress.note(0, at(1, started(1, 1)));
        let start = progress.records.pop();
        assert!(
            matches!(&start, Some(Record::Started(it)) if it.device.as_deref() == Some("2@n1")),
            "{start:?}"
        );
        progress.note(0, at(2, finished(1, 1, Outcome::Succeeded)));
        progress.note(1, at(3, finished(2, 0, Outcome::Skipped)));
        assert!(progress.is_done());
        assert_eq!(progress.counts(), (1, 1, 0));
        assert_eq!(ends(&mut progress), [(1, 1, "succeeded", true)]);
        let summary = progress.close(Timestamp(4), Duration::ZERO, None);
        assert_eq!(summary.exit, Exit::TasksFailed);
    }

    #[test]
    fn what_is_told_twice_counts_once() {
        let mut progress = Progress::new(RUN, 2, &[(1, Outcome::Succeeded)]);
        progress.note(0, at(1, started(1, 1)));
        progress.note(0, at(2, finished(1, 1, Outcome::Failed { code: 1 })));
        assert!(shown(&mut progress).is_empty() && progress.records.is_empty());
        assert_eq!(progress.counts(), (1, 0, 1));
    }

    #[test]
    fn a_task_whose_node_died_is_closed_when_it_starts_again() {
        let mut progress = Progress::new(RUN, 1, &[]);
        progress.note(0, at(1, started(1, 1)));
        progress.note(0, at(9, started(1, 2)));
        progress.note(0, at(10, finished(1, 2, Outcome::Succeeded)));
        assert_eq!(
            shown(&mut progress),
            [
                "3.1 starts 1",
                "3.1 again after 1: interrupted",
                "3.1 starts 2",
                "3.1 ends: succeeded"
            ]
        );
        assert_eq!(ends(&mut progress), [(1, 1, "interrupted", false), (1, 2, "succeeded", true)]);
    }

    #[test]
    fn a_task_that_was_cut_off_is_interrupted_when_it_does_not_run_again() {
        let mut progress = Progress::new(RUN, 3, &[]);
        for task in [1, 2, 3] {
            progress.note(task, at(1, started(task, 1)));
        }
        progress.note(1, at(2, finished(1, 1, Outcome::Interrupted)));
        progress.note(2, at(2, finished(2, 1, Outcome::Interrupted)));
        progress.element_gone(3, Timestamp(3_000_000));
        assert!(progress.running().is_empty());
        let cut_off = shown(&mut progress).split_off(3);
        assert_eq!(cut_off, [1, 2, 3].map(|task| format!("3.{task} again after 1: interrupted")));
        progress.note(1, at(4, started(1, 2)));
        assert_eq!(shown(&mut progress), ["3.1 starts 2"]);
        let summary = progress.close(Timestamp(5_000_000), Duration::ZERO, Some(2));
        assert_eq!((summary.left, summary.exit), (3, Exit::Signal(2)));
        assert_eq!(
            shown(&mut progress),
            [
                "3.1 again after 2: interrupted",
                "3.1 ends: interrupted",
                "3.2 ends: interrupted",
                "3.3 ends: interrupted"
            ]
        );
    }
}
