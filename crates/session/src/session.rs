//! The thin loop: what happens outside goes into the engine, what it decides is carried
//! out.
//!
//! ```text
//!             ┌───────────────────── epoll ──────────────────────┐
//!  signals ──▶│ executor  journal  source  sampler  leases  asks │
//!             └──────────────────────┬────────────────────────────┘
//!                                    ▼ Input
//!                      ┌──── Engine::handle ────┐
//!                      ▼ Action                 │ answers
//!        executor, journal, observers, … ───────┘
//! ```

mod input;
mod leases;

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use packhorse_engine::{
    Action, ClockReading, Engine, Input, LogTail, MpsAction, OutputMode, StoredTask,
};
use packhorse_gpu::mps::reports_server_failure;
use packhorse_gpu::{Sampler, SamplerReport};
use packhorse_leases::Leases;
use packhorse_model::{DeviceId, ProcessEvent, RunId, RunSummary, TaskId, Timestamp};
use rustix::event::epoll;

use crate::control::ControlSocket;
use crate::executor::Executor;
use crate::journal::Journal;
use crate::log_tail::read_tail;
use crate::mps::{MpsAnswer, MpsThread};
use crate::observer::{EmptyQueue, Observer};
use crate::sampling::Attributor;
use crate::signals::{ProgramSignal, Signals};
use crate::source::TaskSource;
use crate::{SessionError, system};

/// Input is not read while more than this waits to be written.
const MOST_UNWRITTEN: usize = 4 << 20;
/// How long somebody who wants to end waits for the rest of the input to be kept. Whoever
/// writes faster than we read would have us read for ever.
const KEEPING: Duration = Duration::from_secs(1);
/// After so long without a turn of the loop, the next may be far away.
const LULL: Duration = Duration::from_millis(5);

/// After so long without a turn, orphans that die are worth being woken up for: nothing
/// else may happen for long, and they would pile up.
const LONG_LULL: Duration = Duration::from_secs(1);

/// Watched descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Watched {
    Signals,
    Executor,
    Journal,
    Source,
    Control,
    Sampler,
    Leases,
    Mps,
}

impl Watched {
    const ALL: [Self; 8] = [
        Self::Signals,
        Self::Executor,
        Self::Journal,
        Self::Source,
        Self::Control,
        Self::Sampler,
        Self::Leases,
        Self::Mps,
    ];
}

/// The parts of a session.
pub(crate) struct SessionParts {
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) source: Box<dyn TaskSource>,
    pub(crate) signals: Signals,
    pub(crate) sampler: Option<Sampler>,
    pub(crate) leases: Option<Leases>,
    pub(crate) control: Option<ControlSocket>,
    pub(crate) mps: Option<MpsThread>,
    pub(crate) attributor: Attributor,
}

/// A run while it goes on.
pub(crate) struct Session<'o> {
    run: RunId,
    engine: Engine,
    parts: SessionParts,
    observer: &'o mut dyn Observer,
    origin: Instant,
    patience: Duration,
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    actions: Vec<Action>,
    /// Answers to actions, to be handled next.
    answers: VecDeque<Input>,
    processes: Vec<ProcessEvent>,
    source: SourceState,
    /// The source is a file, which is always readable.
    always_readable: bool,
    /// What the source's descriptor was when it was watched: a copy, so that it can still
    /// be taken off when the source is closed.
    watched_source: Option<OwnedFd>,
    /// Whether the journal's bell is listened to.
    bell: bool,
    /// When the loop last turned.
    turned: Instant,
    /// How much the journal had committed, and what troubled it, when the engine was told.
    committed: (u64, Option<String>),
    /// Pages that are not in the store yet.
    fetches: Vec<(RunId, u32, u32)>,
    /// Whether other runs are listened to.
    listening: bool,
    revision: u64,
    /// A run of which nothing is alive, and until when what is left of its input is kept.
    closing: Option<(RunId, Option<Instant>)>,
    over: Option<RunSummary>,
    error: Option<SessionError>,
}

/// How far the source has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceState {
    Open,
    Over,
}

impl<'o> Session<'o> {
    pub(crate) fn new(
        run: RunId,
        engine: Engine,
        parts: SessionParts,
        observer: &'o mut dyn Observer,
        origin: Instant,
        patience: Duration,
    ) -> Result<Self, SessionError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| system("wait for events")(error.into()))?;
        let session = Self {
            run,
            engine,
            parts,
            observer,
            origin,
            patience,
            epoll,
            ready: Vec::with_capacity(16),
            actions: Vec::new(),
            answers: VecDeque::new(),
            processes: Vec::new(),
            source: SourceState::Open,
            always_readable: false,
            watched_source: None,
            bell: false,
            turned: Instant::now(),
            committed: (0, None),
            fetches: Vec::new(),
            listening: false,
            revision: 0,
            closing: None,
            over: None,
            error: None,
        };
        session.watch(session.parts.signals.as_fd(), Watched::Signals)?;
        session.watch(session.parts.executor.as_fd(), Watched::Executor)?;
        if let Some(sampler) = &session.parts.sampler {
            session.watch(sampler.as_fd(), Watched::Sampler)?;
        }
        if let Some(control) = &session.parts.control {
            session.watch(control.as_fd(), Watched::Control)?;
        }
        if let Some(mps) = &session.parts.mps {
            session.watch(mps.as_fd(), Watched::Mps)?;
        }
        Ok(session)
    }

    fn watch(&self, source: BorrowedFd<'_>, what: Watched) -> Result<(), SessionError> {
        let data = epoll::EventData::new_u64(what as u64);
        epoll::add(&self.epoll, source, data, epoll::EventFlags::IN)
            .map_err(|error| system("watch what happens")(error.into()))
    }

    fn unwatch(&self, source: BorrowedFd<'_>) -> Result<(), SessionError> {
        epoll::delete(&self.epoll, source).map_err(|error| system("stop watching")(error.into()))
    }

    fn now(&self) -> ClockReading {
        ClockReading {
            monotonic: self.origin.elapsed(),
            wall: Timestamp::now(),
        }
    }

    /// No tasks come but those of earlier sessions.
    pub(crate) fn end_source(&mut self) {
        self.source = SourceState::Over;
        self.feed(Input::InputEnded(self.run));
    }

    /// Takes over what an earlier session left, page by page.
    pub(crate) fn resume(&mut self, first: Vec<StoredTask>, page: u32) -> Result<(), SessionError> {
        let run = self.run;
        let mut tasks = first;
        loop {
            let next = match tasks.last() {
                Some(last) => self.parts.journal.unfinished(run, last.id.number, page)?,
                None => Vec::new(),
            };
            let more = !next.is_empty();
            self.feed(Input::Resumed { run, tasks, more });
            if !more {
                return Ok(());
            }
            tasks = next;
        }
    }

    /// Tells the engine something, and does what it says.
    pub(crate) fn feed(&mut self, input: Input) {
        if self.over.is_none() {
            self.answers.push_back(input);
            self.feed_answers();
        }
    }

    /// Tells the engine what is to be handled next.
    fn feed_answers(&mut self) {
        loop {
            while self.over.is_none()
                && let Some(input) = self.answers.pop_front()
            {
                self.handle(input);
                let mut actions = std::mem::take(&mut self.actions);
                for action in actions.drain(..) {
                    self.carry_out(action);
                }
                self.actions = actions;
            }
            if !self.go_on_closing() {
                break;
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Tell(event) => self.observer.event(&event),
            Action::Record(entry) => {
                self.parts.journal.send(entry);
            }
            Action::Start(start) => {
                if start.output == OutputMode::Inherit {
                    // What it writes goes where we write.
                    self.observer.show(Instant::now(), &self.engine);
                }
                let share = start.mps.map(|share| share.device);
                let daemon = share.and_then(|device| self.parts.mps.as_ref()?.daemon(device));
                let known = self.parts.executor.start(&start, daemon);
                self.answers.extend(known.map(Input::Process));
            }
            Action::Stop { task, mode } => self.parts.executor.stop(task, mode),
            Action::Proceed(task) => self.parts.executor.proceed(task),
            Action::Abandon(task) => self.parts.executor.abandon(task),
            Action::Sample => {
                if let Some(sampler) = &self.parts.sampler {
                    sampler.request_all();
                }
            }
            Action::Fetch { run, after, limit } => self.fetch(run, after, limit),
            Action::LookUpPeaks(signature) => {
                let peaks = self.parts.journal.peaks(&signature);
                let peaks = self.or_fail(peaks);
                self.answers.push_back(Input::Peaks { signature, peaks });
            }
            Action::LookUpOutcome(task) => {
                let outcome = self.parts.journal.outcome(task);
                let outcome = self.or_fail(outcome);
                self.answers.push_back(Input::Outcome { task, outcome });
            }
            Action::ReadLog(LogTail {
                task,
                attempt,
                path,
            }) => {
                let tail = read_tail(&path);
                let text = tail.as_deref().map(String::from_utf8_lossy);
                let mps = self.parts.mps.is_some();
                let mps_failed = mps && text.is_some_and(|text| reports_server_failure(&text));
                self.answers.push_back(Input::Log {
                    task,
                    attempt,
                    tail,
                    mps_failed,
                });
            }
            Action::RefreshOtherRuns => self.refresh_other_runs(),
            Action::Mps(action) => self.ask_mps(&action),
            Action::Reply { to, text } => {
                if let Some(control) = &mut self.parts.control {
                    control.answer(to, &text);
                }
            }
            Action::RunIdle { run, keep_input } => {
                let keep_until = keep_input.then(|| Instant::now() + KEEPING);
                self.closing = Some((run, keep_until));
            }
            Action::Closed(run) => self.finish_journal(run),
            Action::RunOver(summary) => self.over = Some(*summary),
        }
    }

    /// The answer, or what stands for it after an error that nothing works without.
    fn or_fail<T: Default>(&mut self, answer: Result<T, SessionError>) -> T {
        answer.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            T::default()
        })
    }

    fn fetch(&mut self, run: RunId, after: u32, limit: u32) {
        match self.parts.journal.fetch(run, after, limit) {
            Ok(Some(tasks)) => self.answers.push_back(Input::Fetched { run, tasks }),
            // They will be there with the next commit.
            Ok(None) => self.fetches.push((run, after, limit)),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    fn ask_mps(&mut self, action: &MpsAction) {
        if let Some(mps) = &self.parts.mps {
            mps.ask(action);
        }
    }

    /// Turns until everything is done, or stopped.
    pub(crate) fn run(mut self) -> Result<RunSummary, SessionError> {
        loop {
            if let Err(error) = self.turn() {
                self.error.get_or_insert(error);
            }
            if let Some(error) = self.error.take() {
                self.leave();
                return Err(error);
            }
            if let Some(summary) = self.over.take() {
                self.observer.show(Instant::now(), &EmptyQueue);
                return Ok(summary);
            }
        }
    }

    /// One turn of the loop: waits until something happens, and handles all that has.
    fn turn(&mut self) -> Result<(), SessionError> {
        self.read_made_tasks();
        self.watch_source()?;
        self.note_commits();
        if self.over.is_some() || self.error.is_some() {
            return Ok(());
        }
        self.lower_lease();
        self.watch_other_runs()?;
        let now = Instant::now();
        let again = self.observer.show(now, &self.engine);
        self.watch_journal(now)?;
        self.wait(now, again)?;
        for index in 0..self.ready.len() {
            let token = usize::try_from(self.ready[index].data.u64()).unwrap_or(usize::MAX);
            if let Some(&what) = Watched::ALL.get(token) {
                self.happened(what)?;
            }
            if self.over.is_some() {
                // What was ready before may not be any more.
                return Ok(());
            }
        }
        if self.always_readable {
            self.read_source();
        }
        let now = self.origin.elapsed();
        if self.engine.wake_at().is_some_and(|at| at <= now) {
            self.feed(Input::Wake);
        }
        Ok(())
    }

    fn wait(&mut self, now: Instant, again: Option<Instant>) -> Result<(), SessionError> {
        let waits = self.engine.waits_for_journal() && !self.bell;
        let wake = [
            again,
            self.engine.wake_at().map(|at| self.origin + at),
            waits.then(|| now + LULL),
        ];
        let wake = wake.into_iter().flatten().min();
        let timeout = match wake {
            _ if self.always_readable || self.has_room() => Some(Duration::ZERO),
            wake => wake.map(|at| at.saturating_duration_since(now)),
        };
        let timeout = timeout.map(|time| rustix::event::Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        self.ready.clear();
        let buffer = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(system("wait for events")(error.into())),
        }
    }

    fn happened(&mut self, what: Watched) -> Result<(), SessionError> {
        match what {
            Watched::Signals => self.read_signals(),
            Watched::Executor => self.drain_executor()?,
            Watched::Journal => self.parts.journal.heard(),
            Watched::Source => self.read_source(),
            Watched::Control => self.read_questions(),
            Watched::Sampler => self.read_samples(),
            Watched::Leases => self.refresh_other_runs_now(),
            Watched::Mps => self.read_mps_answers(),
        }
        Ok(())
    }

    fn read_signals(&mut self) {
        let mut signals = Vec::new();
        self.parts.signals.read(|signal| signals.push(signal));
        for signal in signals {
            match signal {
                ProgramSignal::Stop(signal) => self.feed(Input::Stop {
                    run: self.run,
                    signal,
                }),
                ProgramSignal::Resize => self.observer.resized(),
                ProgramSignal::Child => self.parts.executor.child_ended(),
            }
        }
    }

    fn drain_executor(&mut self) -> Result<(), SessionError> {
        let mut events = std::mem::take(&mut self.processes);
        self.parts
            .executor
            .drain(&mut events)
            .map_err(system("watch processes"))?;
        // What was seen of an attempt while it ran is told before its end.
        if events
            .iter()
            .any(|event| matches!(event, ProcessEvent::Ended(_)))
        {
            self.read_samples();
        }
        for event in events.drain(..) {
            self.feed(Input::Process(event));
        }
        self.processes = events;
        Ok(())
    }

    /// Tells the engine what the journal has written.
    fn note_commits(&mut self) {
        let committed = self.parts.journal.committed();
        if committed == self.committed.0 && !self.bell {
            return;
        }
        let trouble = self.parts.journal.trouble();
        if (committed, &trouble) == (self.committed.0, &self.committed.1) {
            return;
        }
        self.committed = (committed, trouble.clone());
        self.feed(Input::Committed {
            records: committed,
            trouble,
        });
        for (run, after, limit) in std::mem::take(&mut self.fetches) {
            self.fetch(run, after, limit);
        }
        self.feed_answers();
    }

    /// Listens to the journal's bell while there is something to hear. While tasks come and
    /// go there is a turn of the loop every moment anyway, and being woken for each commit
    /// would cost more than the commit.
    fn watch_journal(&mut self, now: Instant) -> Result<(), SessionError> {
        let turned = std::mem::replace(&mut self.turned, now);
        let gap = now.duration_since(turned);
        let still = gap >= LULL;
        self.parts.signals.watch_children(gap >= LONG_LULL);
        let wanted = !self.fetches.is_empty()
            || self.is_source_paused()
            || (self.engine.waits_for_journal() && still);
        if wanted == self.bell {
            return Ok(());
        }
        self.bell = wanted;
        let journal = self.parts.journal.as_fd();
        if wanted {
            self.watch(journal, Watched::Journal)
        } else {
            self.unwatch(journal)
        }
    }

    fn read_questions(&mut self) {
        while let Some((number, reply_to)) =
            self.parts.control.as_mut().and_then(ControlSocket::receive)
        {
            let task = TaskId::new(self.run, number);
            self.feed(Input::AskWhy { task, reply_to });
        }
    }

    fn read_samples(&mut self) {
        let Some(sampler) = &self.parts.sampler else {
            return;
        };
        for report in sampler.fetch() {
            match report {
                SamplerReport::Sample(sample) => {
                    let SessionParts {
                        attributor,
                        executor,
                        ..
                    } = &self.parts;
                    let view = attributor.view(sample, &self.engine, &**executor);
                    self.feed(Input::Sampled(view));
                }
                SamplerReport::Xid { unit, xid } => {
                    if let Some(reason) = xid.hardware() {
                        let device = DeviceId(u32::try_from(unit).unwrap_or(u32::MAX));
                        let reason = format!("{xid}: {reason}");
                        self.feed(Input::DeviceFailed { device, reason });
                    }
                }
            }
        }
    }

    fn read_mps_answers(&mut self) {
        while let Some(answer) = self.parts.mps.as_mut().and_then(MpsThread::answer) {
            match answer {
                MpsAnswer::Input(input) => self.feed(Input::Mps(input)),
                MpsAnswer::Daemon { pid, .. } => {
                    if let Some(pid) = pid {
                        self.parts.executor.spare(pid);
                    }
                }
            }
        }
    }

    /// Goes on with a run of which nothing is alive any more: keeps what is left of its
    /// input, and closes it. Whether there was one.
    fn go_on_closing(&mut self) -> bool {
        let Some((run, keep_until)) = self.closing else {
            return false;
        };
        if keep_until.is_some_and(|end| self.keep_some_input(end)) {
            return true;
        }
        self.closing = None;
        if let Some(mps) = self.parts.mps.take() {
            let _ = self.unwatch(mps.as_fd());
            for message in mps.finish() {
                let task = None;
                self.answers.push_back(Input::Warning { task, message });
            }
        }
        self.parts.executor.finish();
        let unread = match self.source {
            SourceState::Over => 0,
            SourceState::Open => self.parts.source.unread(),
        };
        self.answers.push_back(Input::Close { run, unread });
        true
    }

    /// Waits until the last record is written, or cannot be.
    fn finish_journal(&mut self, run: RunId) {
        if std::mem::take(&mut self.bell) {
            let _ = self.unwatch(self.parts.journal.as_fd());
        }
        if !self.parts.journal.ends_within(self.patience) {
            let why = self.parts.journal.trouble();
            let why = why.map_or_else(String::new, |trouble| format!(": {trouble}"));
            let message = format!("the last results are not written yet{why}; waiting for that");
            let (now, mut actions) = (self.now(), Vec::new());
            self.engine
                .handle(Input::Stalled(message), now, &mut actions);
            for action in actions {
                if let Action::Tell(event) = action {
                    self.observer.event(&event);
                }
            }
            self.observer.show(Instant::now(), &EmptyQueue);
        }
        let lost = self.parts.journal.finish().err();
        self.answers.push_back(Input::Stored { run, lost });
    }

    /// Ends what runs, after something went wrong that nothing works without.
    fn leave(&mut self) {
        let run = self.run;
        let signal = packhorse_engine::StopSignal::Terminate;
        self.unwatch_source();
        self.source = SourceState::Over;
        self.feed(Input::Stop { run, signal });
        // What else goes wrong is a consequence.
        while self.over.is_none() && self.turn().is_ok() {
            self.error = None;
        }
        self.observer.show(Instant::now(), &EmptyQueue);
    }
}
