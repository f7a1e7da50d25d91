use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use packhorse_core::{
    self as core, Effect, Now, Pool, PoolError, SchedulerEvent, SchedulerSettings, SchedulerState,
};
use packhorse_model::{
    Bytes, DeviceId, Event, EventKind, GpuRequest, Record, Request, RunId, StrangersOn, TaskId,
    TaskSpec, Timestamp,
};
use rustc_hash::FxHashMap;

use crate::action::Action;
use crate::input::Input;
use crate::lines::OutputLines;
use crate::memory::{FRESH, Judgement, Monitor, Needs, OomSigns};
use crate::metrics::MetricBook;
use crate::mps::MpsState;
use crate::other_runs::OtherRuns;
use crate::outbox::{Needed, Outbox, ReleaseLevel};
use crate::run::Run;
use crate::task::{Task, first_request};
use crate::time_budget::Times;

/// What both clocks show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// The time since some origin that never moves. Only differences mean anything.
    pub monotonic: Duration,
    /// The time of day.
    pub wall: Timestamp,
}

/// A device, or a group of devices that is only given out together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What people call it: `0`, `0+1`.
    pub label: String,
    /// What other runs know its members by: the driver's UUID, or the id that was typed.
    pub keys: Vec<String>,
    /// The memory that programs can have: of a group, of the one that has least. 0: nobody
    /// knows.
    pub memory: Bytes,
    /// The product's name.
    pub model: Arc<str>,
    /// What programs can do with it.
    pub use_limit: UseLimit,
}

/// What programs can do with a device at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UseLimit {
    #[default]
    None,
    /// One process at a time may compute on it.
    OneProcess,
    /// It is a MIG instance: a program that has it sees no other device.
    NothingBeside,
}

/// What an engine needs to know before the first input.
#[derive(Debug)]
pub struct EngineSettings {
    /// What the scheduler places tasks on. Devices are numbered by their place in
    /// `devices`.
    pub pool: Pool,
    /// How it places them.
    pub scheduler: SchedulerSettings,
    /// The devices, in the pool's order.
    pub devices: Vec<DeviceInfo>,
    /// Whether a driver can be asked how the devices are.
    pub sampled: bool,
    /// How long a driver may take to answer before its devices count as lost.
    pub silence: Duration,
    /// How long the memory of a task of an unknown kind has to rest before others may have
    /// what it does not hold.
    pub rest: Duration,
    /// Whether other runs on this machine are told what we hold, and listened to.
    pub leases: bool,
    /// At most so many attempts at a time, on whatever devices.
    pub at_most: Option<u32>,
    /// How devices are shared through MPS, if they are.
    pub mps: Option<MpsSettings>,
    /// How running out of memory is recognised, beyond what is known anyway.
    pub oom_signs: OomSigns,
    /// How long events wait for their records to be written before they are told anyway.
    pub patience: Duration,
}

/// How tasks share devices through MPS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MpsSettings {
    /// The part of a device's threads that each may use, in per cent; if it is not given,
    /// its share of the device.
    pub threads: Option<u8>,
}

/// Makes all decisions of a scheduler process. See the crate's documentation.
pub struct Engine {
    pub(crate) devices: Vec<DeviceInfo>,
    pub(crate) slots: Option<u32>,
    pub(crate) oom_signs: OomSigns,
    pub(crate) state: SchedulerState,
    pub(crate) runs: BTreeMap<RunId, Run>,
    /// Every task that has been admitted and is not over.
    pub(crate) tasks: FxHashMap<TaskId, Task>,
    /// What is seen of the devices, where a driver knows them.
    pub(crate) monitor: Monitor,
    /// Who was on the devices before anything was started, until the run tells.
    pub(crate) first_seen: Vec<StrangersOn>,
    /// What was learned of commands like these.
    pub(crate) needs: Needs,
    pub(crate) other_runs: OtherRuns,
    pub(crate) mps: MpsState,
    pub(crate) output: OutputLines,
    pub(crate) metrics: MetricBook,
    /// How long tasks took, where their time ends at a known moment.
    pub(crate) times: Option<Times>,
    pub(crate) outbox: Outbox,
    /// How many numbers have been given to tasks in the order of their arrival.
    pub(crate) arrivals: u64,
    /// How many records were sent so far.
    pub(crate) records: u64,
    /// The trouble of the journal that was told last.
    pub(crate) trouble: Option<String>,
    /// What the scheduler has yet to be told.
    steps: VecDeque<Step>,
    /// How many callers want nothing to be started at the moment.
    holds: u32,
    /// Whether another run is deciding. Questions wait until it is known what other runs hold.
    pub(crate) awaits_turn: bool,
    pub(crate) questions: Vec<(TaskId, u64)>,
    effects: Vec<Effect>,
    pub(crate) actions: Vec<Action>,
    pub(crate) now: ClockReading,
}

/// Something the scheduler is to be told, and the end of the attempt that it is about.
struct Step {
    event: SchedulerEvent,
    ended: Option<Box<Judgement>>,
}

impl Engine {
    /// An engine with no runs.
    pub fn new(settings: EngineSettings) -> Result<Self, PoolError> {
        let mut pool = settings.pool;
        let slots = pool.slots;
        pool.slots = [slots, settings.at_most].into_iter().flatten().min();
        let watched = if settings.sampled { settings.devices.len() } else { 0 };
        let look_lasts = settings.sampled.then_some(FRESH);
        let scheduler = SchedulerSettings { look_lasts, ..settings.scheduler };
        let state = SchedulerState::new(&pool, scheduler)?;
        Ok(Self {
            slots,
            state,
            oom_signs: settings.oom_signs,
            runs: BTreeMap::new(),
            tasks: FxHashMap::default(),
            monitor: Monitor::new(watched, settings.silence, settings.rest),
            first_seen: Vec::new(),
            needs: Needs::default(),
            other_runs: OtherRuns::new(settings.devices.len(), settings.leases),
            mps: MpsState::new(settings.mps),
            output: OutputLines::default(),
            metrics: MetricBook::default(),
            times: None,
            outbox: Outbox::new(settings.patience),
            arrivals: 0,
            records: 0,
            trouble: None,
            steps: VecDeque::new(),
            holds: 0,
            awaits_turn: false,
            questions: Vec::new(),
            effects: Vec::new(),
            actions: Vec::new(),
            now: ClockReading::default(),
            devices: settings.devices,
        })
    }

    /// Takes note of `input`, which happened at `now`, and appends what is to be done
    /// about it to `actions`.
    pub fn handle(&mut self, input: Input, now: ClockReading, actions: &mut Vec<Action>) {
        self.now = now;
        std::mem::swap(&mut self.actions, actions);
        self.take_note(input);
        self.end_in_time();
        self.settle();
        self.answer_questions();
        std::mem::swap(&mut self.actions, actions);
    }

    fn take_note(&mut self, input: Input) {
        match input {
            Input::AddRun(new) => self.add_run(*new),
            Input::Tasks { run, tasks, more } => self.tasks_arrived(run, tasks, more),
            Input::Rejected { run, tasks, message } => self.rejected(run, tasks, message),
            Input::InputEnded(run) => self.input_ended(run),
            Input::Fetched { run, tasks } => self.fetched(run, tasks),
            Input::Resumed { run, tasks, more } => self.resumed(run, tasks, more),
            Input::Peaks { signature, peaks } => self.peaks_found(&signature, peaks),
            Input::Files(found) => self.files_found(found),
            Input::Outcome { task, outcome } => self.outcome_found(task, outcome),
            Input::Log { task, attempt, tail, mps_failed } => {
                self.log_read(task, attempt, tail, mps_failed);
            }
            Input::Process(event) => self.process_event(event),
            Input::Committed { records, kept, trouble } => {
                self.outbox.set_kept(kept, self.records);
                self.committed(records, trouble);
            }
            Input::FirstLook(views) => self.first_look(&views),
            Input::Sampled(view) => self.sampled(&view),
            Input::DeviceFailed { device, reason } => {
                self.drain_device(device.0 as usize, &reason, &[]);
            }
            Input::ProgramFault { device, error } => self.program_faulted(device, error),
            Input::LeaveOut { device, reason } => self.leave_out(device, &reason),
            Input::OtherRuns(others) => self.other_runs_changed(others),
            Input::OtherRunsTrouble(message) => self.other_runs_trouble(message),
            Input::AwaitTurn => {
                self.awaits_turn = true;
                self.hold();
            }
            Input::OurTurn => {
                self.awaits_turn = false;
                self.unhold();
            }
            Input::Mps(input) => self.mps_event(input),
            Input::Stop { run, signal } => self.stop_run(run, signal),
            Input::AskWhy { task, reply_to } => self.asked_why(task, reply_to),
            Input::TimeBudget(budget) => self.time_budget(*budget),
            Input::Warning { task, message } => self.warn(task, message),
            Input::Stalled(message) => {
                self.release(ReleaseLevel::Recoverable);
                // Told before what it is about.
                let event = self.event(EventKind::Warning { task: None, message });
                self.act(Action::Tell(event));
            }
            Input::Close { run, unread } => self.close_run(run, unread),
            Input::Stored { run, lost } => self.run_stored(run, lost.as_deref()),
            Input::Wake => {}
        }
    }

    /// Brings everything to rest: what one step leads to is a step of its own.
    fn settle(&mut self) {
        loop {
            self.run_scheduler();
            self.judge_pending();
            if !self.submit_released() && self.steps.is_empty() {
                break;
            }
        }
        self.fetch_due();
        self.look_around();
        self.run_scheduler();
        self.update_claims();
        self.record_metrics_due();
        self.tell_known();
        self.release_due();
        self.find_idle_runs();
    }

    pub(crate) fn run_scheduler(&mut self) {
        while let Some(step) = self.steps.pop_front() {
            let mut effects = std::mem::take(&mut self.effects);
            let now = Now(self.now.monotonic);
            core::step(&mut self.state, step.event, now, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(effect, step.ended.as_deref());
            }
            self.effects = effects;
        }
    }

    /// Tells the scheduler something, after what it has yet to be told.
    pub(crate) fn step(&mut self, event: SchedulerEvent) {
        self.steps.push_back(Step { event, ended: None });
    }

    /// Tells the scheduler something before what it has yet to be told.
    pub(crate) fn step_next(&mut self, event: SchedulerEvent) {
        self.steps.push_front(Step { event, ended: None });
    }

    /// Tells the scheduler of the end of an attempt, after what it has yet to be told.
    pub(crate) fn step_ended(&mut self, event: SchedulerEvent, ended: Judgement) {
        let ended = Some(Box::new(ended));
        self.steps.push_back(Step { event, ended });
    }

    /// Starts nothing until [`Engine::unhold`] has been called as often as this.
    pub(crate) fn hold(&mut self) {
        self.holds += 1;
        if self.holds == 1 {
            self.step(SchedulerEvent::Hold);
        }
    }

    pub(crate) fn unhold(&mut self) {
        self.holds = self.holds.saturating_sub(1);
        if self.holds == 0 {
            self.step(SchedulerEvent::Unhold);
        }
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Writes something down. Returns its place in the journal.
    pub(crate) fn record(&mut self, record: Record) -> u64 {
        self.records += 1;
        self.act(Action::Record(record));
        self.records
    }

    pub(crate) fn event(&self, kind: EventKind) -> Event {
        Event { time: self.now.wall, kind }
    }

    /// Tells something that needs no record.
    pub(crate) fn tell(&mut self, kind: EventKind) {
        self.tell_after(0, kind);
    }

    /// Tells something once the record at `place` is safe.
    pub(crate) fn tell_after(&mut self, place: u64, kind: EventKind) {
        let ended = match &kind {
            EventKind::Finished(result) => Some(result.task),
            EventKind::Retrying { task, .. } => Some(*task),
            _ => None,
        };
        // How an attempt of a task ended that the journal does not know is lost in a crash.
        let run = ended.and_then(|task| self.runs.get(&task.run));
        let needs = run.map_or_else(Needed::default, |run| {
            if run.setup.recoverable {
                Needed { committed: run.tasks_recorded, kept: place }
            } else {
                Needed { committed: place, kept: 0 }
            }
        });
        let event = self.event(kind);
        let now = self.now.monotonic;
        if let Some(event) = self.outbox.push(place, needs, event, now) {
            self.act(Action::Tell(event));
        }
    }

    pub(crate) fn warn(&mut self, task: Option<TaskId>, message: String) {
        self.tell(EventKind::Warning { task, message });
    }

    /// One device by the name people know.
    pub(crate) fn device_name(&self, device: DeviceId) -> String {
        let info = self.devices.get(device.0 as usize);
        info.map_or_else(String::new, |info| format!("GPU {}", info.label))
    }

    fn committed(&mut self, records: u64, trouble: Option<String>) {
        self.outbox.committed = self.outbox.committed.max(records);
        if let Some(message) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            // Told at once: it may be what keeps the others waiting.
            let message = format!(
                "{message}; it is tried again; tasks go on, and what a crash could lose is told \
                 later"
            );
            let event = self.event(EventKind::Warning { task: None, message });
            self.act(Action::Tell(event));
        }
        self.trouble = trouble;
    }

    /// Tells what may be told by now.
    fn release_due(&mut self) {
        let now = self.now.monotonic;
        let due = match self.outbox.due(now) {
            // Who knows how long that takes.
            ReleaseLevel::Safe if self.trouble.is_some() => ReleaseLevel::Recoverable,
            due => due,
        };
        self.release(due);
    }

    /// Tells so much of what waits.
    pub(crate) fn release(&mut self, what: ReleaseLevel) {
        let safe = self.outbox.release(what, self.now.monotonic);
        self.actions.extend(safe.map(Action::Tell));
    }

    /// When [`Input::Wake`] is wanted though nothing happens, on the monotonic clock.
    pub fn wake_at(&self) -> Option<Duration> {
        let wake = [
            self.outbox.deadline(),
            self.monitor.wake_at(),
            self.other_runs.again,
            self.claims_wake_at(),
            self.metrics.wake_at(),
            self.times.as_ref().and_then(Times::wake_at),
        ];
        wake.into_iter().flatten().min()
    }

    /// Whether something waits to be told until the journal has committed more.
    pub fn waits_for_journal(&self) -> bool {
        self.outbox.is_waiting() || self.runs.values().any(|run| run.backlog.fetching)
    }

    /// Whether any task waits for room on a device.
    pub fn has_waiting(&self) -> bool {
        self.state.counts().waiting > 0
    }

    /// How many more tasks a source that makes them when they are needed should make.
    pub fn room(&self, run: RunId) -> usize {
        let run = self.runs.get(&run).filter(|run| run.takes_tasks());
        run.map_or(0, |run| run.backlog.room(run.live))
    }

    /// Whether the input may lead to an attempt being started on what other runs could
    /// take as well: then it has to be handled under the lock of all runs, after they
    /// were looked at.
    pub fn may_take(&self, input: &Input, now: ClockReading) -> bool {
        if !self.other_runs.enabled {
            return false;
        }
        if self.other_runs.all_is_ours() {
            // Nobody else can take anything, but somebody may have waited for it.
            let frees = matches!(input, Input::Process(crate::ProcessEvent::Ended(_)));
            return frees && self.has_waiting() && self.other_runs.is_look_due(now.monotonic);
        }
        match input {
            Input::Tasks { more: false, .. }
            | Input::Fetched { .. }
            | Input::Resumed { .. }
            | Input::Peaks { .. }
            | Input::Files(_)
            | Input::Outcome { .. }
            | Input::Log { .. }
            // Others may have waited for what it was to measure.
            | Input::Close { .. }
            | Input::Process(crate::ProcessEvent::Ended(_)) => true,
            // Nothing starts until all that arrives together is here.
            Input::Tasks { more: true, .. }
            | Input::InputEnded(_)
            | Input::Sampled(_)
            | Input::Wake
            | Input::OtherRuns(_)
            | Input::DeviceFailed { .. }
            | Input::LeaveOut { .. }
            | Input::Stop { .. }
            | Input::AddRun(_) => self.has_more_to_start(),
            // Whatever the input is, what was to be done by now is done with it.
            _ => {
                let due = self.wake_at().is_some_and(|at| at <= now.monotonic);
                due && self.has_more_to_start()
            }
        }
    }

    /// Whether some task is in line, or may be again before long.
    fn has_more_to_start(&self) -> bool {
        self.has_waiting() || !self.monitor.pending.is_empty() || !self.mps.waiting.is_empty()
    }

    /// What a task with these options asks for, but for memory.
    pub(crate) fn request(&self, spec: &TaskSpec) -> Request {
        crate::task::request(spec, &self.devices, self.slots)
    }

    /// The most that a task with these options asks for at first: to tell before
    /// anything is started whether it could ever run.
    pub fn refusal(&self, spec: &TaskSpec) -> Option<core::RefusalReason> {
        let request = first_request(spec, &self.devices, self.slots);
        let refusal = self.state.refusal(&request)?;
        let wanted = request.gpus.devices();
        let mut devices = self.devices.iter();
        if wanted > 1 && devices.any(|device| device.use_limit == UseLimit::NothingBeside) {
            return Some(core::RefusalReason::NothingBesideMig { wanted });
        }
        Some(refusal)
    }

    /// How many tasks with these options fit at a time where nothing else runs, before
    /// anything is learned of them. `u64::MAX`: nothing that is counted limits them.
    pub fn at_a_time(&self, spec: &TaskSpec) -> u64 {
        let request = first_request(spec, &self.devices, self.slots);
        self.state.at_a_time(&request)
    }

    /// Whether tasks with these options use a GPU at all.
    pub fn uses_gpus(&self, spec: &TaskSpec) -> bool {
        self.request(spec).gpus != GpuRequest::None
    }
}
