use std::cell::RefCell;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_core::{self as core, Effect, Now, Refusal, State, Submission};
use packhorse_core::{Again, Cause};
use packhorse_hands::{self as hands, Ended, Hands, Happening, Job, Signal, Stop};
use packhorse_model::{Command, DeviceId, Exit, Outcome, Placement, RunId, TaskId};
use packhorse_store::{End, Reader, Record, Start, UnixMicros, Verdict, Writer};
use rustc_hash::FxHashMap;

use crate::Line;
use crate::ask::Ear;
use crate::backlog::Backlog;
use crate::devices::Devices;
use crate::feed::Feed;
use crate::memory::{Judgement, Needs, Wants, Watching};
use crate::mps::Service;
use crate::neighbours::Neighbours;
use crate::told::Told;
use crate::{
    Appetite, Beginning, Defaults, Event, Finished, Input, Parameters, Phase, Reporter, RunError,
    Settings, Summary,
};

/// How long a repeated SIGTERM or SIGHUP is taken for the same one.
const ONE_WISH: Duration = Duration::from_secs(1);

/// Watched descriptors.
pub(crate) const STORE: u32 = 0;
pub(crate) const INPUT: u32 = 1;
pub(crate) const ASK: u32 = 2;
pub(crate) const WATCH: u32 = 3;
pub(crate) const LEASES: u32 = 4;

/// Runs everything to its end, or to where the person stops it.
pub fn run(
    settings: Settings,
    input: Input,
    reporter: &mut dyn Reporter,
) -> Result<Summary, RunError> {
    let mut run = Run::start(settings, input, reporter)?;
    match run.go_on() {
        Ok(()) => run.end(),
        Err(error) => {
            // Nothing is left running without us.
            run.leave();
            Err(error)
        }
    }
}

/// A run while it goes on.
pub(crate) struct Run<'r> {
    pub(crate) id: RunId,
    pub(crate) settings: Settings,
    pub(crate) devices: Devices,
    pub(crate) state: State,
    pub(crate) hands: Hands,
    pub(crate) store: Writer,
    pub(crate) reader: Option<Reader>,
    pub(crate) feed: Feed,
    pub(crate) backlog: Backlog,
    /// The tasks that the core has, by number.
    pub(crate) tasks: FxHashMap<u32, Known>,
    /// What is seen of the devices, where a driver knows them.
    pub(crate) watching: Option<Watching>,
    /// What was learned of commands like these.
    pub(crate) needs: Needs,
    /// The folder we run in.
    pub(crate) folder: PathBuf,
    /// Other runs on this machine.
    pub(crate) neighbours: Neighbours,
    /// The daemons that tasks share devices through.
    pub(crate) service: Option<Rc<RefCell<Service>>>,
    /// Where questions of other processes arrive.
    pub(crate) ear: Option<Ear>,
    pub(crate) reporter: &'r mut dyn Reporter,
    pub(crate) told: Told,
    started: Instant,
    pub(crate) phase: Phase,
    signal: Option<Signal>,
    /// When the phase last changed.
    stepped: Instant,
    succeeded: u64,
    failed: u64,
    pub(crate) interrupted: u64,
    effects: Vec<Effect>,
    /// Whether the store's bell is listened to.
    bell: bool,
    /// The store's trouble that was told last.
    trouble: Option<String>,
}

/// A task that the core has.
pub(crate) struct Known {
    pub(crate) command: Arc<Command>,
    /// Attempts of earlier sessions.
    pub(crate) before: u32,
    pub(crate) retries: u32,
    /// The bytes it takes in the backlog, while it is one of the plain tasks that
    /// wait there.
    pub(crate) queued: Option<usize>,
    /// What to write and tell when an attempt starts that could not yet.
    later: Option<(Start, Event)>,
    /// How much GPU memory it asks for.
    pub(crate) appetite: Appetite,
    /// What it is remembered by, if somebody said.
    pub(crate) signature: Option<Arc<str>>,
    /// How it is measured, if nothing is known of it.
    pub(crate) probe: Option<Arc<Command>>,
    /// The folder it runs in, if it is not ours.
    pub(crate) folder: Option<Arc<Path>>,
    /// How its memory is come by, if it is counted.
    pub(crate) wants: Option<Box<Wants>>,
    /// The devices that its attempt runs on.
    pub(crate) devices: Vec<DeviceId>,
    /// Its attempt is ended because of its device, not because of itself.
    pub(crate) uprooted: bool,
}

impl Known {
    pub(crate) fn new(command: Arc<Command>, before: u32, retries: u32) -> Self {
        Self {
            command,
            before,
            retries,
            queued: None,
            later: None,
            appetite: Appetite::Uncounted,
            signature: None,
            probe: None,
            folder: None,
            wants: None,
            devices: Vec::new(),
            uprooted: false,
        }
    }
}

impl<'r> Run<'r> {
    fn start(
        mut settings: Settings,
        input: Input,
        reporter: &'r mut dyn Reporter,
    ) -> Result<Self, RunError> {
        let id = settings.lock.run();
        let devices = Devices::new(&settings.places);
        let state = settings.places.scheduler()?;
        let mut environment = devices.fixed();
        environment.push(("PACKHORSE_RUN".into(), id.to_string().into()));
        // Before the store's thread starts, which inherits the signal mask.
        let hands = Hands::new(hands::Settings {
            log_folder: settings.home.log_dir(id),
            output: settings.output,
            grace: settings.grace,
            environment,
            hidden: devices.hidden(settings.sharing.mps),
            home_mark: settings.home.path().to_string_lossy().into_owned(),
        })
        .map_err(system("take over signals and child processes"))?;
        let store = Writer::start(&settings.home, id)?;
        let mut told = Told::default();
        let beginning = std::mem::replace(
            &mut settings.beginning,
            Beginning::Again {
                reopened: Vec::new(),
                tasks: 0,
            },
        );
        // Both kinds begin with a record that makes the run known.
        let resumed = matches!(beginning, Beginning::Again { .. });
        told.tell_after(
            1,
            Event::RunStarted {
                run: id,
                devices: devices.labels(),
                slots: settings.places.slots,
                resumed,
            },
        );
        let mut run = Self {
            id,
            devices,
            state,
            hands,
            store,
            reader: None,
            feed: Feed::new(input),
            backlog: Backlog::default(),
            tasks: FxHashMap::default(),
            watching: None,
            needs: Needs::default(),
            folder: std::env::current_dir().unwrap_or_default(),
            neighbours: Neighbours::default(),
            service: None,
            ear: None,
            reporter,
            told,
            started: Instant::now(),
            phase: Phase::Running,
            signal: None,
            stepped: Instant::now(),
            succeeded: 0,
            failed: 0,
            interrupted: 0,
            effects: Vec::new(),
            bell: false,
            trouble: None,
            settings,
        };
        run.listen();
        run.prepare_mps();
        run.meet_neighbours();
        run.watch_devices()?;
        run.leave_out_drained()?;
        run.begin(beginning)?;
        Ok(run)
    }

    /// Listens to questions. Nothing depends on it.
    fn listen(&mut self) {
        let ear = Ear::open(&self.settings.home.run_dir(self.id)).ok();
        self.ear = ear.filter(|ear| self.hands.watch(ear.as_fd(), ASK).is_ok());
    }

    /// Leaves out devices that an earlier run found broken.
    fn leave_out_drained(&mut self) -> Result<(), RunError> {
        if self.watching.is_none() {
            return Ok(());
        }
        let drained = self.reader()?.drained()?;
        for index in 0..self.settings.places.devices.len() {
            let keys = self.devices.keys(index);
            let broken = drained
                .iter()
                .find(|drained| keys.contains(&drained.device));
            if let Some(broken) = broken {
                self.leave_out(index, &broken.reason);
            }
        }
        Ok(())
    }

    /// Turns until everything is done, or stopped.
    fn go_on(&mut self) -> Result<(), RunError> {
        let mut happenings = Vec::new();
        self.feed_on()?;
        while !self.is_over() {
            self.judge_pending();
            self.give_up_leases();
            self.mind_neighbours()?;
            self.show();
            self.mind_the_bell()?;
            self.hands
                .wait(&mut happenings)
                .map_err(system("wait for events"))?;
            for happening in happenings.drain(..) {
                self.handle(happening)?;
            }
            self.feed_on()?;
        }
        if self.phase > Phase::Running && self.phase < Phase::Killing {
            self.keep_rest_of_input()?;
        }
        Ok(())
    }

    /// Ends what runs, after something went wrong that nothing works without.
    fn leave(mut self) {
        self.step(core::Event::Hold);
        self.hands.stop_all(Stop::Terminate);
        for ended in self.take_pending() {
            self.attempt_ended(&ended, &Judgement::default());
        }
        let mut happenings = Vec::new();
        while !self.hands.is_idle() && self.hands.wait(&mut happenings).is_ok() {
            for happening in happenings.drain(..) {
                if let Happening::Ended(ended) = happening {
                    self.attempt_ended(&ended, &Judgement::default());
                }
            }
        }
        self.end_mps();
        self.hands.finish();
        // The error that led here is told; this would be its consequence.
        let _ = self.store.finish();
        self.told.release(u64::MAX, self.reporter);
        self.reporter.show(Instant::now(), &Nobody);
    }

    pub(crate) fn now(&self) -> Now {
        Now(self.started.elapsed())
    }

    fn is_over(&self) -> bool {
        if !self.hands.is_idle() || self.has_pending() {
            return false;
        }
        if self.feed.is_over() && self.state.is_stuck() {
            return true;
        }
        self.phase > Phase::Running || (self.feed.is_over() && self.left() == 0)
    }

    /// Tasks that are known and not settled.
    fn left(&self) -> u64 {
        self.tasks.len() as u64 + self.backlog.stored()
    }

    fn show(&mut self) {
        let line = Waiting {
            state: &self.state,
            devices: &self.devices,
            now: self.now(),
        };
        let now = Instant::now();
        let safe = if self.trouble.is_some() || self.told.is_overdue(now) {
            u64::MAX
        } else {
            self.store.committed()
        };
        self.told.release(safe, self.reporter);
        let again = self.reporter.show(now, &line);
        let wake = [
            again,
            self.told.deadline(self.bell),
            self.look_around(),
            self.pending_until(),
        ];
        self.hands.wake_at(wake.into_iter().flatten().min());
    }

    /// Listens to the store's bell while there is something to hear. While tasks
    /// come and go there is a turn of the loop every moment anyway, and being
    /// woken for each commit would cost more than the commit.
    fn mind_the_bell(&mut self) -> Result<(), RunError> {
        let wanted =
            self.backlog.is_due() || self.is_input_paused() || self.told.has_waited(Instant::now());
        if wanted == self.bell {
            return Ok(());
        }
        self.bell = wanted;
        let bell = self.store.as_fd();
        if wanted {
            self.hands.watch(bell, STORE)
        } else {
            self.hands.unwatch(bell, STORE)
        }
        .map_err(system("watch the store"))
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.told.tell(self.reporter, event);
    }

    pub(crate) fn warn(&mut self, task: Option<TaskId>, message: String) {
        self.tell(Event::Warning { task, message });
    }

    fn handle(&mut self, happening: Happening) -> Result<(), RunError> {
        match happening {
            Happening::Started(task) => {
                let known = self.tasks.get_mut(&task.number);
                if let Some((mut record, told)) = known.and_then(|known| known.later.take()) {
                    record.at = UnixMicros::now();
                    self.attempt_started(record, told);
                }
            }
            Happening::Ended(ended) => self.attempt_over(ended),
            Happening::Output {
                task,
                stream,
                bytes,
            } => self.tell(Event::Output {
                task,
                stream,
                bytes,
            }),
            Happening::Trouble { task, message } => self.warn(Some(task), message),
            Happening::Signal(Signal::Resize) => self.tell(Event::Resized),
            Happening::Signal(signal) => self.signalled(signal),
            Happening::Readable(STORE) => self.store_rang(),
            Happening::Readable(ASK) => self.answer(),
            Happening::Readable(WATCH) => self.devices_seen(),
            Happening::Readable(LEASES) => self.neighbours_changed(),
            Happening::Readable(_) => self.read_input()?,
            Happening::Alarm => {}
        }
        Ok(())
    }

    fn signalled(&mut self, signal: Signal) {
        // `timeout` and service managers send the same signal to us and to our
        // group: that is one wish, not two.
        let again = self.phase >= Phase::Terminating && signal != Signal::Interrupt;
        if again && self.stepped.elapsed() < ONE_WISH {
            return;
        }
        self.stepped = Instant::now();
        let phase = self.phase.after(signal);
        self.signal = Some(signal);
        if self.phase == Phase::Killing {
            // They were killed before, and are still there.
            self.hands.abandon_all();
            return;
        }
        self.phase = phase;
        self.step(core::Event::Hold);
        match phase {
            Phase::Running | Phase::Draining => {}
            Phase::Terminating => self.hands.stop_all(Stop::Terminate),
            Phase::Killing => self.hands.stop_all(Stop::Kill),
        }
        let running = self.hands.running();
        self.tell(Event::Stopping { phase, running });
    }

    fn store_rang(&mut self) {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.store, &mut counter);
        let trouble = self.store.trouble();
        if trouble.is_some() {
            if trouble != self.trouble {
                let message = trouble.clone().unwrap_or_default();
                // Told at once: it may be what keeps the others waiting.
                self.reporter.event(&Event::Warning {
                    task: None,
                    message: format!("{message}; it is tried again, and tasks go on"),
                });
            }
            self.told.release(u64::MAX, self.reporter);
        } else {
            self.told.release(self.store.committed(), self.reporter);
        }
        self.trouble = trouble;
    }

    /// Gives the core a task, whose record is on its way to the store.
    pub(crate) fn submit(
        &mut self,
        mut submission: Submission,
        mut known: Known,
    ) -> Result<(), RunError> {
        self.settle_needs(&mut submission, &mut known)?;
        self.tasks.insert(submission.id.number, known);
        self.step(core::Event::Submit(submission));
        Ok(())
    }

    /// Lets the core decide, and does what it says.
    pub(crate) fn step(&mut self, event: core::Event) {
        self.step_with(event, None);
    }

    fn step_with(&mut self, event: core::Event, ended: Option<(&Ended, &Judgement)>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.decide(event, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect, ended);
        }
        self.effects = effects;
    }

    /// Which attempt the core takes one for: it counts those of this session.
    pub(crate) fn core_attempt(&self, task: TaskId, attempt: u32) -> u32 {
        let before = self.tasks.get(&task.number).map_or(0, |task| task.before);
        attempt.saturating_sub(before)
    }

    pub(crate) fn attempt_ended(&mut self, ended: &Ended, judgement: &Judgement) {
        let event = core::Event::Ended {
            task: ended.task,
            attempt: self.core_attempt(ended.task, ended.attempt),
            outcome: ended.outcome,
            cause: judgement.cause.unwrap_or(Cause::Own),
        };
        self.step_with(event, Some((ended, judgement)));
    }

    fn carry_out(&mut self, effect: Effect, ended: Option<(&Ended, &Judgement)>) {
        // The end that caused the step, if the effect is about the same task.
        let of = |task: TaskId| ended.filter(|(ended, _)| ended.task == task);
        match effect {
            Effect::Start {
                task,
                attempt,
                placement,
                time_limit,
            } => self.start_attempt(task, attempt, &placement, time_limit),
            Effect::Stop { task, .. } => self.hands.stop(task, Stop::Terminate),
            Effect::Retrying {
                task,
                outcome,
                next_attempt,
                why,
                left,
            } => {
                if !matches!(why, Again::Retry | Again::Collateral | Again::Probed) {
                    // Whatever it asked for before, from now on it asks for memory.
                    self.count_memory();
                }
                let note = of(task).and_then(|(_, judgement)| again(why, judgement));
                let place = of(task).map_or(0, |(ended, judgement)| {
                    self.record_end(ended, judgement, note.as_deref(), Verdict::Again)
                });
                let attempt =
                    of(task).map_or(next_attempt.saturating_sub(1), |(ended, _)| ended.attempt);
                self.told.tell_after(
                    place,
                    Event::Retrying {
                        task,
                        attempt,
                        outcome,
                        note,
                        left,
                    },
                );
            }
            Effect::Finished { task, outcome, .. } => {
                let place = match of(task) {
                    Some((ended, judgement)) => {
                        let note = judgement.note.as_deref();
                        self.record_end(ended, judgement, note, Verdict::Final)
                    }
                    None => self.store.send(Record::TaskFinished {
                        task: task.number,
                        outcome,
                    }),
                };
                let of = of(task);
                let note = of.and_then(|(_, judgement)| judgement.note.clone());
                self.finished(task, outcome, of.map(|(ended, _)| ended), note, place);
            }
            Effect::Refused { task, reason } => self.refuse(task, &reason),
        }
    }

    fn start_attempt(
        &mut self,
        task: TaskId,
        attempt: u32,
        placement: &Placement,
        time_limit: Option<Duration>,
    ) {
        let Some(known) = self.tasks.get_mut(&task.number) else {
            return;
        };
        if let Some(bytes) = known.queued.take() {
            self.backlog.exit(bytes);
        }
        // A probe is attempt 0 in every session.
        let attempt = match attempt {
            0 => 0,
            attempt => attempt + known.before,
        };
        let probe = known.wants.as_ref().and_then(|wants| wants.probe());
        let command = match probe.filter(|_| attempt == 0) {
            Some(probe) => Arc::clone(probe),
            None => Arc::clone(&known.command),
        };
        let folder = known.folder.clone();
        known.devices = placement
            .devices
            .iter()
            .map(|granted| granted.device)
            .collect();
        self.track(task, attempt, placement);
        let given = self.devices.given(placement);
        let told = Event::Started {
            task,
            attempt,
            command: Arc::clone(&command),
            devices: Arc::clone(&given.labels),
            at: Instant::now(),
        };
        if self.settings.output == hands::Output::Inherit {
            // What it writes goes where we write: we say first what it is.
            self.reporter.event(&told);
            self.show();
        }
        let mut environment = Vec::with_capacity(8);
        self.devices.variables(&given, placement, &mut environment);
        if let Some(Parameters(tell)) = &self.settings.parameters {
            environment.push(("PACKHORSE_PARAMS", tell(task.number)));
        }
        self.serve(placement, &mut environment);
        let started = self.hands.start(Job {
            task,
            attempt,
            command: &command,
            folder: folder.as_deref(),
            environment: &environment,
            cores: &placement.cores,
            time_limit,
        });
        let record = Start {
            task: task.number,
            attempt,
            at: UnixMicros::now(),
            device: given.joined.clone(),
        };
        match started {
            hands::Start::Running => {
                self.attempt_started(record, told);
                self.mind_drained(task);
            }
            hands::Start::Later => {
                if let Some(known) = self.tasks.get_mut(&task.number) {
                    known.later = Some((record, told));
                }
            }
            hands::Start::Failed => {}
        }
    }

    fn attempt_started(&mut self, record: Start, told: Event) {
        let place = self.store.send(Record::Started(record));
        if self.settings.output != hands::Output::Inherit {
            self.told.tell_after(place, told);
        }
    }

    fn record_end(
        &mut self,
        ended: &Ended,
        judgement: &Judgement,
        note: Option<&str>,
        verdict: Verdict,
    ) -> u64 {
        self.store.send(Record::AttemptEnded(End {
            task: ended.task.number,
            attempt: ended.attempt,
            at: UnixMicros::now(),
            outcome: ended.outcome,
            message: ended.message.as_deref().map(Into::into),
            peak: judgement.peak,
            note: note.map(Into::into),
            verdict,
        }))
    }

    fn refuse(&mut self, task: TaskId, reason: &Refusal) {
        let before = self.tasks.get(&task.number).map_or(0, |known| known.before);
        self.feed.decided.insert(task.number, Outcome::NotStarted);
        let ended = Ended {
            task,
            attempt: before + 1,
            outcome: Outcome::NotStarted,
            message: Some(reason.to_string()),
            took: Duration::ZERO,
        };
        let place = self.record_end(&ended, &Judgement::default(), None, Verdict::Final);
        self.finished(task, Outcome::NotStarted, Some(&ended), None, place);
    }

    pub(crate) fn finished(
        &mut self,
        task: TaskId,
        outcome: Outcome,
        ended: Option<&Ended>,
        note: Option<String>,
        place: u64,
    ) {
        self.forget_wish(task.number);
        match outcome {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Interrupted => self.interrupted += 1,
            _ => self.failed += 1,
        }
        let Some(known) = self.tasks.remove(&task.number) else {
            return;
        };
        if let Some(bytes) = known.queued {
            self.backlog.exit(bytes);
        }
        let started = ended.is_some_and(|ended| ended.outcome != Outcome::NotStarted);
        let log = ended
            .filter(|_| started && self.settings.output != hands::Output::Inherit)
            .map(|ended| self.log_of(ended));
        self.told.tell_after(
            place,
            Event::Finished(Finished {
                task,
                attempts: ended.map_or(0, |ended| ended.attempt),
                outcome,
                command: known.command,
                message: note.or_else(|| ended.and_then(|ended| ended.message.clone())),
                took: ended.map_or(Duration::ZERO, |ended| ended.took),
                log,
            }),
        );
    }

    fn end(mut self) -> Result<Summary, RunError> {
        if self.phase == Phase::Running && self.left() > 0 {
            let left = match self.left() {
                1 => "a task waits".to_owned(),
                many => format!("{many} tasks wait"),
            };
            self.warn(
                None,
                format!(
                    "{left} for GPUs that were taken out, and nothing else can be done\n\
                     hint: put the GPUs back with `packhorse gpus --restore ID`, then `packhorse resume {}`",
                    self.id
                ),
            );
        }
        self.end_mps();
        self.hands.finish();
        let unread = self.feed.unread();
        let left = u128::from(self.left()) + u128::from(self.interrupted) + unread;
        let stopped = left > 0 || !self.feed.is_over();
        let exit = match self
            .signal
            .filter(|_| stopped && self.phase > Phase::Running)
        {
            Some(Signal::Terminate) => Exit::Signal(15),
            Some(Signal::Hangup) => Exit::Signal(1),
            Some(_) => Exit::Signal(2),
            None if self.failed + self.feed.rejected > 0 || left > 0 => Exit::TasksFailed,
            None => Exit::Success,
        };
        self.store.send(Record::RunEnded {
            at: UnixMicros::now(),
            exit: exit.code(),
        });
        let summary = Summary {
            run: self.id,
            succeeded: self.succeeded,
            failed: self.failed,
            left,
            rejected: self.feed.rejected,
            took: self.started.elapsed(),
            exit,
        };
        let written = self.store.finish();
        self.told.release(u64::MAX, self.reporter);
        self.reporter.event(&Event::RunEnded(summary.clone()));
        self.reporter.show(Instant::now(), &Nobody);
        written?;
        Ok(summary)
    }
}

/// Why a task is in line again, in words; nothing if that is a plain retry.
fn again(why: Again, judgement: &Judgement) -> Option<String> {
    let what = judgement.note.as_deref().unwrap_or("it did not succeed");
    Some(match why {
        Again::Retry => return judgement.note.clone(),
        Again::Collateral => format!("{what}; it runs again, and no retry is used up"),
        Again::MoreMemory { memory } => format!("{what}; it runs again with {memory}"),
        Again::Alone => format!("{what}; it runs again with a GPU to itself"),
        Again::LargerDevice { above } => {
            format!("{what}; it runs again on a GPU with more than {above}")
        }
        Again::Probed => match judgement.peak {
            Some(peak) => format!("measured: {peak} of GPU memory"),
            None => "it ended before its memory could be measured".to_owned(),
        },
    })
}

/// Who waits, and why.
struct Waiting<'a> {
    state: &'a State,
    devices: &'a Devices,
    now: Now,
}

impl Line for Waiting<'_> {
    fn why(&self) -> Option<String> {
        let first = self.state.first_in_line()?;
        let explanation = core::explain(self.state, first, self.now)?;
        let name = |device| self.devices.label(device);
        Some(explanation.words(&name).to_string())
    }
}

/// Nobody waits any more.
struct Nobody;

impl Line for Nobody {
    fn why(&self) -> Option<String> {
        None
    }
}

pub(crate) fn weight(command: &Command) -> usize {
    match command {
        Command::Line(line) => line.len(),
        Command::Words(words) => words.iter().map(|word| word.len() + 24).sum(),
    }
}

pub(crate) fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> RunError {
    move |source| RunError::System { doing, source }
}

impl Defaults {
    /// What the core needs to know of a task that asks for nothing itself.
    pub(crate) fn submission(&self, id: TaskId) -> Submission {
        Submission {
            id,
            request: self.request.clone(),
            // Tasks are counted from 1.
            batch: self.batch.map_or(0, |size| (id.number.max(1) - 1) / size),
            priority: self.priority,
            retries: self.retries,
            time_limit: self.time_limit,
            expected: None,
            probe: false,
            after: Vec::new(),
        }
    }

    /// What the loop needs to know of such a task.
    pub(crate) fn known(&self, command: Arc<Command>, before: u32) -> Known {
        let probe = self.probe.as_ref().and_then(|probe| probe.of(&command));
        Known {
            appetite: self.appetite.clone(),
            signature: self.signature.clone(),
            probe: probe.map(Arc::new),
            ..Known::new(command, before, self.retries)
        }
    }
}
