//! An engine with nothing real around it: a clock that is moved by hand, pretended GPUs,
//! and a journal in memory. What the engine asks is answered at once, unless the test
//! wants the answer to be late.

mod gpus;
mod promises;
mod task;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use packhorse_core::{DeviceSpec, NodeSpec, Pool, SchedulerSettings};
use packhorse_engine::{
    Action, ClockReading, DeviceInfo, Engine, EngineSettings, Input, LeasedDevice, MpsAction,
    MpsInput, NewRunInput, OomSigns, StartAttempt, StopSignal, StoredTask, UseLimit,
};
use packhorse_model::{
    AttemptEnd, Bytes, DeviceId, EventKind, LearnedPeak, NodeId, Outcome, OutputMode, PeakOrigin,
    ProcessEvent, Record, RunId, RunSummary, StopMode, TaskId, TaskSpec, Timestamp,
};

pub(crate) use gpus::PretendedGpu;
use promises::Promises;
pub(crate) use task::{NewTask, task};
pub(crate) use words::{gib, id};

pub(crate) const OK: Outcome = Outcome::Succeeded;
pub(crate) const FAILED: Outcome = Outcome::Failed { code: 1 };
pub(crate) const INTERRUPTED: Outcome = Outcome::Interrupted;
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
pub(crate) const REST: Duration = Duration::from_secs(10);
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
pub(crate) const A_LOOK: Duration = Duration::from_millis(50);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What the lab does by itself.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a thing of its own that a test turns off by its name"
)]
pub(crate) struct Answers {
    /// Every record is committed at once.
    pub(crate) commits: bool,
    /// The driver answers at once.
    pub(crate) samples: bool,
    /// Learned peaks, outcomes, logs and pages of tasks are found at once.
    pub(crate) questions: bool,
    /// What is to start has started.
    pub(crate) starts: bool,
    /// A run of which nothing is alive is closed.
    pub(crate) closes: bool,
}

pub(crate) struct Lab {
    pub(crate) engine: Engine,
    pub(crate) now: Duration,
    pub(crate) answers: Answers,
    pub(crate) gpus: Vec<PretendedGpu>,
    /// Tasks whose first process has ended, though nobody has been told.
    pub(crate) ended: Vec<TaskId>,
    /// Whether other runs are told what we hold as a session would tell them.
    pub(crate) publishes: bool,
    /// What was learned on the GPUs' model, by signature.
    pub(crate) peaks: BTreeMap<String, Vec<LearnedPeak>>,
    /// The hashes of what is in files.
    pub(crate) files: BTreeMap<PathBuf, u64>,
    /// What attempts write last.
    pub(crate) logs: BTreeMap<TaskId, String>,
    /// Whose log says that the MPS server failed.
    pub(crate) mps_failures: Vec<TaskId>,
    /// How tasks of earlier sessions came out.
    pub(crate) outcomes: BTreeMap<TaskId, Outcome>,
    /// Answers that were asked for and not given yet.
    pub(crate) open: VecDeque<Input>,
    /// Everything that was to be done, since it was last asked for.
    pub(crate) actions: Vec<Action>,
    /// All records, in order, and when they were sent.
    pub(crate) records: Vec<(Duration, Record)>,
    pub(crate) committed: u64,
    pub(crate) running: BTreeMap<TaskId, StartAttempt>,
    /// Every start, in order.
    started: Vec<String>,
    told: Vec<EventKind>,
    promises: Promises,
    pub(crate) over: BTreeMap<RunId, RunSummary>,
    /// By how many microseconds somebody has set the time of day.
    pub(crate) clock_set: i64,
}

impl Lab {
    /// A machine with so many GPUs of 24 GiB that a driver knows.
    pub(crate) fn with_gpus(count: usize) -> Self {
        Self::with_memory(&vec![24; count])
    }

    /// The same with GPUs of these sizes in GiB.
    pub(crate) fn with_memory(sizes: &[u64]) -> Self {
        Self::built(sizes, None, |_| {})
    }

    /// A machine without GPUs on which so many tasks run at once.
    pub(crate) fn with_slots(slots: u32) -> Self {
        Self::built(&[], Some(slots), |settings| settings.sampled = false)
    }

    pub(crate) fn built(
        sizes: &[u64],
        slots: Option<u32>,
        change: impl FnOnce(&mut EngineSettings),
    ) -> Self {
        let device = |(index, &size): (usize, &u64)| DeviceInfo {
            label: index.to_string(),
            keys: vec![format!("GPU-{index}")],
            memory: gib(size),
            model: "Pretended".into(),
            use_limit: UseLimit::None,
        };
        let devices: Vec<DeviceInfo> = sizes.iter().enumerate().map(device).collect();
        let spec = |(info, index): (&DeviceInfo, u32)| DeviceSpec {
            id: DeviceId(index),
            near_cores: Vec::new(),
            memory: info.memory,
            model: 0,
            one_process: false,
        };
        let node = NodeSpec {
            id: NodeId(0),
            devices: devices.iter().zip(0..).map(spec).collect(),
            cores: Vec::new(),
            cpu: None,
            ram: None,
        };
        let mut settings = EngineSettings {
            pool: Pool { nodes: vec![node], slots },
            scheduler: SchedulerSettings::default(),
            devices,
            sampled: true,
            silence: SILENCE,
            rest: REST,
            leases: false,
            at_most: None,
            mps: None,
            oom_signs: OomSigns::default(),
            patience: PATIENCE,
        };
        change(&mut settings);
        let gpus = settings.devices.iter();
        Self {
            gpus: gpus.map(|info| PretendedGpu::new(info.memory)).collect(),
            engine: Engine::new(settings).unwrap(),
            now: Duration::from_secs(1000),
            answers: Answers {
                commits: true,
                samples: true,
                questions: true,
                starts: true,
                closes: true,
            },
            ended: Vec::new(),
            publishes: false,
            peaks: BTreeMap::new(),
            files: BTreeMap::new(),
            logs: BTreeMap::new(),
            mps_failures: Vec::new(),
            outcomes: BTreeMap::new(),
            open: VecDeque::new(),
            actions: Vec::new(),
            records: Vec::new(),
            committed: 0,
            running: BTreeMap::new(),
            started: Vec::new(),
            told: Vec::new(),
            promises: Promises::default(),
            over: BTreeMap::new(),
            clock_set: 0,
        }
    }

    pub(crate) fn clock(&self) -> ClockReading {
        let micros = i64::try_from(self.now.as_micros()).unwrap();
        ClockReading {
            monotonic: self.now,
            wall: Timestamp(1_700_000_000_000_000 + self.clock_set + micros),
        }
    }

    /// Tells the engine something, and does what it says.
    pub(crate) fn feed(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut actions = Vec::new();
            let now = self.clock();
            let may_take = self.engine.may_take(&input, now);
            self.promises.note(&input);
            self.engine.handle(input, now, &mut actions);
            if self.publishes {
                let raised = self.engine.lease_to_raise();
                if let Some(lease) = raised {
                    self.promises.raised(&lease.held, may_take);
                    self.engine.lease_told(true);
                }
            }
            for action in actions {
                self.promises.check(&action, self.now, self.committed);
                self.carry_out(&action, &mut inputs);
                self.actions.push(action);
            }
            let sent = self.records.len() as u64;
            if self.answers.commits && self.committed < sent {
                self.committed = sent;
                inputs.push_back(self.committed_input(None));
            }
        }
        if self.publishes
            && let Some(lease) = self.engine.lease_to_lower()
        {
            self.promises.lowered(&lease.held);
            self.engine.lease_told(true);
        }
    }

    fn carry_out(&mut self, action: &Action, inputs: &mut VecDeque<Input>) {
        match action {
            Action::Tell(event) => self.told.push(event.kind.clone()),
            Action::Record(entry) => self.records.push((self.now, entry.clone())),
            Action::Start(start) => {
                self.started.push(words::start(start));
                self.running.insert(start.task, (**start).clone());
                if self.answers.starts {
                    inputs.push_back(Input::Process(ProcessEvent::Started {
                        task: start.task,
                        attempt: start.attempt,
                    }));
                }
            }
            Action::Sample if self.answers.samples => inputs.extend(self.views()),
            Action::RunOver(summary) => {
                self.over.insert(summary.run, (**summary).clone());
            }
            _ => {
                let open = self.answer(action);
                let at_once = match action {
                    Action::RunIdle { .. } | Action::Closed(_) => self.answers.closes,
                    _ => self.answers.questions,
                };
                if at_once {
                    inputs.extend(open);
                } else {
                    self.open.extend(open);
                }
            }
        }
    }

    /// The answer to a question.
    fn answer(&self, action: &Action) -> Option<Input> {
        Some(match action {
            Action::LookUpFiles { task, files } => {
                let contents = files.iter().map(|file| self.files.get(file).copied());
                Input::Files(vec![(*task, contents.collect())])
            }
            Action::LookUpPeaks(signature) => {
                let all = self.peaks.iter();
                let found = all.filter(|(name, _)| name.starts_with(&**signature));
                let on_model = |peaks: &Vec<LearnedPeak>| {
                    BTreeMap::from([("Pretended".to_owned(), peaks.clone())])
                };
                let found = found.map(|(name, peaks)| (name.clone(), on_model(peaks)));
                Input::Peaks { signature: signature.clone(), peaks: found.collect() }
            }
            &Action::LookUpOutcome(task) => {
                Input::Outcome { task, outcome: self.outcomes.get(&task).copied() }
            }
            Action::ReadLog(log) => Input::Log {
                task: log.task,
                attempt: log.attempt,
                tail: self.logs.get(&log.task).map(|text| text.clone().into_bytes()),
                mps_failed: self.mps_failures.contains(&log.task),
            },
            &Action::Fetch { run, after, limit } => {
                Input::Fetched { run, tasks: self.stored(run, after, limit) }
            }
            &Action::Mps(MpsAction::Check(device)) => Input::Mps(MpsInput::Ready(device)),
            &Action::RunIdle { run, .. } => Input::Close { run, unread: 0 },
            &Action::Closed(run) => Input::Stored { run, lost: None },
            _ => return None,
        })
    }

    /// Plain tasks in the journal.
    fn stored(&self, run: RunId, after: u32, limit: u32) -> Vec<StoredTask> {
        let batches = self.records.iter().filter_map(|(_, entry)| match entry {
            Record::Tasks(tasks) => Some(tasks),
            _ => None,
        });
        let plain = |it: &&packhorse_model::NewTask| {
            it.id.run == run && it.id.number > after && it.after.is_empty() && it.spec.is_none()
        };
        let tasks = batches.flatten().filter(plain).take(limit as usize);
        let stored = tasks.map(|it| StoredTask {
            id: it.id,
            spec: TaskSpec::new(it.command.clone()),
            after: Vec::new(),
            outcome: None,
            attempts: 0,
        });
        stored.collect()
    }

    pub(crate) fn committed_input(&self, trouble: Option<&str>) -> Input {
        Input::Committed {
            records: self.committed,
            kept: self.records.len() as u64,
            trouble: trouble.map(str::to_owned),
        }
    }

    /// The journal has written everything.
    pub(crate) fn commit_all(&mut self) {
        self.committed = self.records.len() as u64;
        self.feed(self.committed_input(None));
    }

    /// The journal cannot write.
    pub(crate) fn trouble(&mut self, message: &str) {
        self.feed(self.committed_input(Some(message)));
    }

    /// From now on things may be told before they are written.
    pub(crate) fn expect_early(&mut self) {
        self.promises.impatient = true;
    }

    /// Gives the answer that was asked for first.
    pub(crate) fn answer_next(&mut self) {
        let answer = self.open.pop_front().expect("nothing was asked");
        self.feed(answer);
    }

    /// Time passes, and the engine is woken when it wants to be.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.engine.wake_at().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.feed(Input::Wake);
            let next = self.engine.wake_at();
            assert!(next.is_none_or(|next| next > self.now), "it would spin");
        }
        self.now = end;
    }

    /// Time passes while we are stopped, and nobody wakes the engine until it is over.
    pub(crate) fn sleep(&mut self, time: Duration) {
        self.now += time;
        self.feed(Input::Wake);
    }

    pub(crate) fn run(&mut self, run: u32) {
        self.run_with(run, |_| {});
    }

    pub(crate) fn run_with(&mut self, run: u32, change: impl FnOnce(&mut NewRunInput)) {
        let mut new = NewRunInput {
            run: RunId(run),
            defaults: TaskSpec::default().into(),
            batch: None,
            output: OutputMode::Log,
            folder: "/work".into(),
            logs: std::path::Path::new("/logs").into(),
            total: None,
            resumed: None,
            succeeded_before: 0,
            failed_before: 0,
            record: 0,
            recoverable: true,
        };
        change(&mut new);
        self.feed(Input::AddRun(Box::new(new)));
    }

    /// Tasks arrive together.
    pub(crate) fn add(&mut self, run: u32, tasks: impl IntoIterator<Item = NewTask>) {
        self.add_some(run, tasks, false);
    }

    /// Tasks arrive, and more of them if `more`.
    pub(crate) fn add_some(
        &mut self,
        run: u32,
        tasks: impl IntoIterator<Item = NewTask>,
        more: bool,
    ) {
        let tasks = tasks.into_iter().map(NewTask::parts).collect();
        let run = RunId(run);
        self.feed(Input::Tasks { run, tasks, more });
    }

    pub(crate) fn end_input(&mut self, run: u32) {
        self.feed(Input::InputEnded(RunId(run)));
    }

    pub(crate) fn stop(&mut self, run: u32, signal: StopSignal) {
        let run = RunId(run);
        self.feed(Input::Stop { run, signal });
    }

    /// The running attempt of a task is over, and so is what it held.
    pub(crate) fn ends(&mut self, task: &str, outcome: Outcome) {
        let message = None;
        self.ends_saying(task, outcome, message);
    }

    pub(crate) fn ends_saying(&mut self, task: &str, outcome: Outcome, message: Option<&str>) {
        self.ends_after(task, outcome, message, SECOND);
    }

    /// The same after some time.
    pub(crate) fn ends_after(
        &mut self,
        task: &str,
        outcome: Outcome,
        message: Option<&str>,
        took: Duration,
    ) {
        let task = id(task);
        let start = self.running.remove(&task).expect("it does not run");
        for gpu in &mut self.gpus {
            gpu.leave(task);
        }
        self.feed(Input::Process(ProcessEvent::Ended(AttemptEnd {
            task,
            attempt: start.attempt,
            outcome,
            message: message.map(str::to_owned),
            took,
        })));
    }

    /// It was learned that commands of this shape need so much.
    pub(crate) fn learned(&mut self, signature: &str, memory: u64) {
        let peak = LearnedPeak {
            at: Timestamp(0),
            peak: gib(memory),
            error: Bytes(0),
            duration: None,
            origin: PeakOrigin::Run,
        };
        self.peaks.entry(signature.to_owned()).or_default().push(peak);
    }

    /// One of this shape was last seen growing to so much, when it was so old.
    pub(crate) fn grew_late(&mut self, signature: &str, memory: u64, age: Duration) {
        self.learned(signature, memory);
        let peak = self.peaks.get_mut(signature).and_then(|peaks| peaks.last_mut());
        if let Some(peak) = peak {
            (peak.duration, peak.origin) = (Some(age), PeakOrigin::Growing);
        }
    }

    /// Which tasks run and where, such as `1.2@0`.
    pub(crate) fn running(&self) -> Vec<String> {
        self.running.values().map(words::place).collect()
    }

    /// What was started since this was last asked, in order, such as `1.2#1@0`.
    pub(crate) fn started(&mut self) -> Vec<String> {
        std::mem::take(&mut self.started)
    }

    /// What was told since this was last asked, in short.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let told = std::mem::take(&mut self.told);
        told.iter().map(words::event).collect()
    }

    /// The same as it is.
    pub(crate) fn told_events(&mut self) -> Vec<EventKind> {
        std::mem::take(&mut self.told)
    }

    /// Fails unless something with these words was told, and forgets what was told.
    #[track_caller]
    pub(crate) fn assert_told(&mut self, text: &str) {
        let told = self.told();
        let found = told.iter().any(|line| line.contains(text));
        assert!(found, "no `{text}` in {told:#?}");
    }

    /// The actions of a kind since actions were last asked for. Others are forgotten.
    pub(crate) fn take_actions<T>(&mut self, pick: impl Fn(Action) -> Option<T>) -> Vec<T> {
        std::mem::take(&mut self.actions).into_iter().filter_map(pick).collect()
    }

    /// Whom to stop, since actions were last asked for.
    pub(crate) fn stops(&mut self) -> Vec<(String, StopMode)> {
        self.take_actions(|action| match action {
            Action::Stop { task, mode } => Some((task.to_string(), mode)),
            _ => None,
        })
    }

    /// How many samples were asked for, since actions were last asked for.
    pub(crate) fn samples(&mut self) -> usize {
        let samples = self.take_actions(|action| matches!(action, Action::Sample).then_some(()));
        samples.len()
    }

    /// How much memory the running attempt of a task was promised, in GiB.
    pub(crate) fn promised(&self, task: &str) -> f64 {
        words::in_gib(self.running[&id(task)].placement.devices[0].memory)
    }

    pub(crate) fn summary(&self, run: u32) -> &RunSummary {
        &self.over[&RunId(run)]
    }

    pub(crate) fn is_over(&self, run: u32) -> bool {
        self.over.contains_key(&RunId(run))
    }

    /// Why a task is where it is.
    pub(crate) fn why(&mut self, task: &str) -> String {
        self.actions.clear();
        self.feed(Input::AskWhy { task: id(task), reply_to: 7 });
        self.replies()
    }

    /// What was answered.
    pub(crate) fn replies(&mut self) -> String {
        let replies = self.take_actions(|action| match action {
            Action::Reply { to: 7, text } => Some(text),
            _ => None,
        });
        replies.concat()
    }

    /// What others have to be told under the lock, and are.
    pub(crate) fn raised(&mut self) -> Option<Vec<LeasedDevice>> {
        let lease = self.engine.lease_to_raise();
        if lease.is_some() {
            self.engine.lease_told(true);
        }
        lease.map(|lease| lease.held)
    }
}
