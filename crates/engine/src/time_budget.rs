//! A time that is over at a known moment, as that of a job on a cluster: what is known not
//! to finish before is left to a later session, and what still runs then is ended.

use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::{AttemptEnd, Command, Outcome, Phase, RunId, TaskId, TaskSpec, TimeLimit};
use rustc_hash::FxHashMap;

use crate::engine::Engine;
use crate::input::{StopSignal, TimeBudget};
use crate::memory::draft_of;

/// Tasks that took less time are started whenever there is time left at all.
const SHORT: Duration = Duration::from_secs(1);

/// How long tasks took, and when their time is over.
#[derive(Debug)]
pub(crate) struct Times {
    ends: Duration,
    whole: Duration,
    /// How many tasks of each kind succeeded, and how long they took together.
    seen: FxHashMap<String, (u32, Duration)>,
    /// No kind takes longer, on average, and no task either of which nothing but its time
    /// limit is known.
    longest: Duration,
    is_over: bool,
}

impl Times {
    fn new(budget: &TimeBudget) -> Self {
        Self {
            ends: budget.ends,
            whole: budget.whole,
            seen: FxHashMap::default(),
            longest: Duration::ZERO,
            is_over: false,
        }
    }

    fn saw(&mut self, kind: String, took: Duration) {
        let (count, total) = self.seen.entry(kind).or_default();
        *count = count.saturating_add(1);
        *total = total.saturating_add(took);
        self.longest = self.longest.max(took);
    }

    /// When the time is over, if that is still to come.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        (!self.is_over).then_some(self.ends)
    }
}

impl Engine {
    pub(crate) fn time_budget(&mut self, budget: TimeBudget) {
        self.times = Some(Times::new(&budget));
        for (run, command, spec, took) in budget.seen {
            self.saw_time(run, &command, &spec, took);
        }
    }

    /// Whether a task is known to take longer than the time that is left. If a later
    /// session had no more, it may as well try now.
    pub(crate) fn is_too_long(&self, id: TaskId) -> bool {
        let (Some(times), Some(task)) = (&self.times, self.tasks.get(&id)) else {
            return false;
        };
        let left = times.ends.saturating_sub(self.now.monotonic);
        let limit = task.spec.timeout.and_then(TimeLimit::get);
        if left > times.longest.max(limit.unwrap_or_default()) {
            return false;
        }
        let kind = self.kind_of_time(id.run, &task.command, &task.spec);
        let seen = kind.and_then(|kind| times.seen.get(&kind));
        let seen = seen.map(|(count, total)| *total / (*count).max(1));
        // The limit says how long it may take, which is more than it does take.
        let takes = seen.or(limit);
        let is_fresh = left >= times.whole.mul_f64(0.9);
        takes.is_some_and(|takes| takes > left) && !is_fresh
    }

    /// Leaves a task to a later session that was about to start.
    pub(crate) fn set_aside(&mut self, task: TaskId, attempt: u32) {
        self.step(SchedulerEvent::Ended {
            task,
            attempt,
            outcome: Outcome::Interrupted,
            cause: packhorse_core::EndCause::Own,
        });
    }

    /// Takes note of how long a task took that succeeded.
    pub(crate) fn note_time(&mut self, id: TaskId, end: &AttemptEnd) {
        if self.times.is_none() || !end.outcome.is_success() || end.took < SHORT {
            return;
        }
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let (command, spec) = (task.command.clone(), task.spec.clone());
        self.saw_time(id.run, &command, &spec, end.took);
    }

    fn saw_time(&mut self, run: RunId, command: &Command, spec: &TaskSpec, took: Duration) {
        let kind = self.kind_of_time(run, command, spec);
        if let (Some(kind), Some(times)) = (kind, &mut self.times) {
            times.saw(kind, took);
        }
    }

    /// What the time of a task is remembered by: the shape of its command.
    fn kind_of_time(&self, run: RunId, command: &Command, spec: &TaskSpec) -> Option<String> {
        let run = self.runs.get(&run)?;
        let signature = draft_of(command, spec, &run.setup.folder).finish(&[]);
        Some(signature.family.unwrap_or(signature.name))
    }

    /// Ends what runs when the time is over.
    pub(crate) fn end_in_time(&mut self) {
        let now = self.now.monotonic;
        let times = self.times.as_mut();
        let Some(times) = times.filter(|times| !times.is_over && times.ends <= now) else {
            return;
        };
        times.is_over = true;
        let running = self.runs.iter().filter(|(_, run)| run.phase < Phase::Terminating);
        let running: Vec<RunId> = running.map(|(&run, _)| run).collect();
        for run in running {
            self.stop_run(run, StopSignal::TimeOver);
        }
    }
}
