//! One run: where its tasks come from, how far it has come, how it ends.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use packhorse_core::SchedulerEvent;
use packhorse_model::{
    EventKind, Exit, Outcome, OutputMode, Phase, Record, RunId, RunSummary, TaskId, TaskSpec,
};
use rustc_hash::FxHashMap;

use crate::action::Action;
use crate::arrivals::Arrival;
use crate::backlog::Backlog;
use crate::engine::{ClockReading, Engine};
use crate::held::HeldTasks;
use crate::input::{NewRunInput, StopSignal};
use crate::outbox::ReleaseLevel;
use crate::task::{Task, own_log, run_log};

/// A run while it goes on.
pub(crate) struct Run {
    pub(crate) setup: NewRunInput,
    started: ClockReading,
    pub(crate) phase: Phase,
    pub(crate) signal: Option<StopSignal>,
    /// When the phase last changed.
    pub(crate) stepped: Duration,
    /// How many tasks there are.
    pub(crate) known: u32,
    /// The place of the record that has the last of them.
    pub(crate) tasks_recorded: u64,
    /// How many of them earlier sessions settled.
    pub(crate) settled: u32,
    told: Option<(u64, bool)>,
    /// Whether no more tasks arrive, and that is written down.
    input_over: bool,
    /// Lines of the input that were no tasks.
    pub(crate) rejected: u64,
    pub(crate) backlog: Backlog,
    /// Tasks that wait for what has to be looked up before they are submitted, and those
    /// behind them.
    pub(crate) arriving: VecDeque<Arrival>,
    /// Tasks that wait for others of their group.
    pub(crate) held: HeldTasks,
    /// Whether nothing is handed out until all that arrived together is in line.
    pub(crate) holding: bool,
    /// Whether more of what arrived together follows.
    pub(crate) more_follow: bool,
    /// Outcomes of tasks that others may come after and that the scheduler never had.
    pub(crate) decided: FxHashMap<u32, Option<Outcome>>,
    /// How many of its tasks have been admitted and are not over.
    pub(crate) live: u64,
    /// How many of its attempts are alive, or about to be.
    pub(crate) alive: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) interrupted: u64,
    ending: RunEnding,
}

/// How far the end of a run has come.
enum RunEnding {
    /// It goes on.
    No,
    /// Nothing of it is alive, and that was said.
    Idle,
    /// It is over but for its last record.
    Closed(Box<RunSummary>),
}

impl Run {
    /// Whether tasks are still made or fetched for it.
    pub(crate) fn takes_tasks(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether no more tasks will come.
    pub(crate) fn is_input_over(&self) -> bool {
        self.input_over
    }

    /// Whether a plain task with this number waits in the store alone.
    pub(crate) fn is_in_store(&self, number: u32) -> bool {
        self.backlog.stored > 0 && number > self.backlog.fed && number <= self.known
    }

    /// The batch that a task belongs to. Tasks are counted from 1.
    pub(crate) fn batch_of(&self, task: TaskId) -> u32 {
        let size = self.setup.batch;
        size.map_or(0, |size| (task.number.max(1) - 1) / size)
    }

    /// Where the output of an attempt is, if it is kept: in the run's folder of logs, or
    /// where the task wants it.
    pub(crate) fn log_path(&self, spec: &TaskSpec, id: TaskId, attempt: u32) -> Option<PathBuf> {
        let setup = &self.setup;
        let kept = setup.output != OutputMode::Inherit;
        let log = || own_log(&setup.folder, spec, attempt);
        kept.then(|| log().unwrap_or_else(|| run_log(&setup.logs, id, attempt)))
    }

    /// Tasks that are known and not settled.
    fn left(&self) -> u64 {
        self.live + self.backlog.stored
    }
}

impl Engine {
    pub(crate) fn add_run(&mut self, new: NewRunInput) {
        self.records = self.records.max(new.record);
        let labels = self.devices.iter().map(|device| device.label.clone());
        let started = EventKind::RunStarted {
            run: new.run,
            gpus: labels.collect(),
            slots: self.slots,
            resumed: new.resumed.is_some(),
            jobs: Vec::new(),
            strangers: std::mem::take(&mut self.first_seen),
        };
        self.tell_after(new.record, started);
        self.runs.insert(
            new.run,
            Run {
                started: self.now,
                phase: Phase::Running,
                signal: None,
                stepped: self.now.monotonic,
                known: new.resumed.unwrap_or(0),
                tasks_recorded: 0,
                // Those that are not settled are told one by one.
                settled: new.resumed.unwrap_or(0),
                told: None,
                input_over: false,
                rejected: 0,
                backlog: Backlog::default(),
                arriving: VecDeque::new(),
                held: HeldTasks::default(),
                holding: false,
                more_follow: false,
                decided: FxHashMap::default(),
                live: 0,
                alive: 0,
                succeeded: new.succeeded_before,
                failed: new.failed_before,
                interrupted: 0,
                ending: RunEnding::No,
                setup: new,
            },
        );
        self.say_whether_more_come();
    }

    pub(crate) fn rejected(&mut self, run: RunId, tasks: u64, message: Option<String>) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.rejected += tasks;
        }
        if let Some(message) = message {
            self.warn(None, message);
        }
    }

    pub(crate) fn input_ended(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        run.more_follow = false;
        if !std::mem::replace(&mut run.input_over, true) {
            self.record(Record::InputComplete { run: id });
        }
        self.say_whether_more_come();
        self.end_arrival_if_all_here(id);
    }

    /// Tells the scheduler whether it knows all tasks there will be.
    fn say_whether_more_come(&mut self) {
        let more = self.runs.values().any(|run| !run.input_over);
        self.step(SchedulerEvent::MoreToCome(more));
    }

    /// Tells how many tasks there are, if that has changed.
    pub(crate) fn tell_known(&mut self) {
        let mut news = Vec::new();
        for (&id, run) in &mut self.runs {
            if run.holding {
                continue;
            }
            let total = run.setup.total;
            let tasks = total.unwrap_or(run.known).saturating_sub(run.settled);
            let known = (tasks.into(), total.is_some() || run.input_over);
            if run.told != Some(known) {
                run.told = Some(known);
                news.push((id, known));
            }
        }
        for (run, (tasks, complete)) in news {
            self.tell(EventKind::Known { run, tasks, complete });
        }
    }

    /// Says of runs that have come to their end that nothing of them is alive.
    pub(crate) fn find_idle_runs(&mut self) {
        for (&id, run) in &mut self.runs {
            let mut pending = self.monitor.pending.iter();
            let pending = pending.any(|pending| pending.end.task.run == id);
            if !matches!(run.ending, RunEnding::No) || run.alive > 0 || pending {
                continue;
            }
            let done = run.input_over && run.left() == 0;
            let expects_tasks = !run.input_over || !run.arriving.is_empty() || run.backlog.fetching;
            let stuck = !expects_tasks && self.state.is_stuck();
            if done || stuck || run.phase > Phase::Running {
                run.ending = RunEnding::Idle;
                self.actions.push(Action::RunIdle {
                    run: id,
                    keep_input: matches!(run.phase, Phase::Draining | Phase::Terminating),
                });
            }
        }
    }

    /// Closes a run of which nothing is alive.
    pub(crate) fn close_run(&mut self, id: RunId, unread: u64) {
        let Some(run) = self.runs.get(&id) else {
            return;
        };
        let waiting = run.left();
        if run.phase == Phase::Running && waiting > 0 {
            let left = match waiting {
                1 => "a task waits".to_owned(),
                many => format!("{many} tasks wait"),
            };
            let message = format!(
                "{left} for GPUs that were taken out, and nothing else can be done\n\
                 hint: put the GPUs back with `packhorse gpus --restore ID`, then `packhorse resume {id}`"
            );
            self.warn(None, message);
        }
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let left = waiting.saturating_add(run.interrupted).saturating_add(unread);
        let stopped = left > 0 || !run.input_over;
        let signal = run.signal.filter(|_| stopped && run.phase > Phase::Running);
        let exit = match signal {
            Some(StopSignal::Terminate) => Exit::Signal(15),
            Some(StopSignal::Hangup) => Exit::Signal(1),
            Some(StopSignal::Quit) => Exit::Signal(3),
            Some(StopSignal::Interrupt) => Exit::Signal(2),
            // What is left is left to a later session.
            Some(StopSignal::TimeOver) => Exit::TasksFailed,
            None if run.failed + run.rejected > 0 || left > 0 => Exit::TasksFailed,
            None => Exit::Success,
        };
        let took = self.now.monotonic.saturating_sub(run.started.monotonic);
        // Not the time of day, which may have been set meanwhile.
        let at = run.started.wall + took;
        run.ending = RunEnding::Closed(Box::new(RunSummary {
            run: id,
            succeeded: run.succeeded,
            failed: run.failed,
            left,
            rejected: run.rejected,
            took,
            stored: true,
            exit,
        }));
        // An answer that is still to come finds nobody to submit.
        run.arriving.clear();
        self.end_arrival(id);
        self.withdraw(id);
        self.record(Record::RunEnded { run: id, at, exit: exit.code() });
        self.act(Action::Closed(id));
    }

    /// Tasks of a run that were admitted and are not over, in order.
    pub(crate) fn tasks_of(&self, run: RunId, wanted: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        let tasks = self.tasks.iter();
        let of_run = tasks.filter(|(id, task)| id.run == run && wanted(task));
        let mut of_run: Vec<TaskId> = of_run.map(|(&id, _)| id).collect();
        of_run.sort_unstable();
        of_run
    }

    /// Forgets the tasks of a run that will not run any more.
    fn withdraw(&mut self, id: RunId) {
        // Until all of them are gone, none may start: nobody would know it here.
        self.step(SchedulerEvent::HoldRun(id));
        self.hand_over_probes(id);
        for task in self.tasks_of(id, |_| true) {
            self.forget_need(task);
            // Tasks of other runs may wait for what it was to measure.
            self.probe_over(task);
            self.metrics.forget(task);
            self.tasks.remove(&task);
            // What comes of it is about a task that nobody knows any more.
            self.step(SchedulerEvent::Cancel(task));
        }
        self.step(SchedulerEvent::UnholdRun(id));
    }

    /// The last record of a run is safe, or lost.
    pub(crate) fn run_stored(&mut self, id: RunId, lost: Option<&str>) {
        if let Some(error) = lost {
            self.release(ReleaseLevel::Recoverable);
            // Before what nobody was told of yet: that may be told here only.
            let message = format!(
                "{error}\nhint: what is told here has happened all the same; \
                 `packhorse show {id}` may know less of it"
            );
            let event = self.event(EventKind::Warning { task: None, message });
            self.act(Action::Tell(event));
        }
        self.release(ReleaseLevel::All);
        let run = self.runs.remove(&id);
        self.say_whether_more_come();
        if let Some(run) = run
            && let RunEnding::Closed(mut summary) = run.ending
        {
            if lost.is_some() {
                summary.stored = false;
                if summary.exit == Exit::Success {
                    summary.exit = Exit::TasksFailed;
                }
            }
            let event = self.event(EventKind::RunEnded((*summary).clone()));
            self.act(Action::Tell(event));
            self.act(Action::RunOver(summary));
        }
    }
}
