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

mod actions;
mod held_ends;
mod input;
mod leases;
mod nesting;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use packhorse_engine::{Action, ClockReading, Engine, Input, StopSignal};
use packhorse_gpu::{Sampler, SamplerReport};
use packhorse_leases::Leases;
use packhorse_model::{DeviceId, ProcessEvent, RunId, RunSummary, TaskId, Timestamp};
use rustix::event::{Timespec, epoll};

use crate::control::{ControlRequest, ControlSocket};
use crate::executor::Executor;
use crate::file_contents::FileContents;
use crate::journal::Journal;
use crate::leaders::LeaderRecord;
use crate::markers::Markers;
use crate::mps::{MpsAnswer, MpsThread};
use crate::observer::{EmptyQueue, Observer};
use crate::sampling::Attributor;
use crate::signals::{ProgramSignal, Signals};
use crate::source::TaskSource;
use crate::{SessionError, system};
use held_ends::HeldEnds;
use input::SourceWatch;
use leases::OtherRunsWatch;

/// How many tasks are read back from the journal at once.
const PAGE: u32 = 2048;
/// Input is not read while more than this waits to be written.
const MOST_UNWRITTEN: usize = 4 << 20;
/// After so long without a turn of the loop, the next may be far away.
const LULL: Duration = Duration::from_millis(5);

// What epoll says of each descriptor that is watched.
const SIGNALS: u64 = 0;
const EXECUTOR: u64 = 1;
const JOURNAL: u64 = 2;
const SOURCE: u64 = 3;
const CONTROL: u64 = 4;
const SAMPLER: u64 = 5;
const LEASES: u64 = 6;
const MPS: u64 = 7;
const END_WITH: u64 = 8;
const TURN: u64 = 9;
const NAMES: u64 = 10;

pub(crate) struct SessionParts {
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) source: Box<dyn TaskSource>,
    pub(crate) signals: Signals,
    /// A handle of the process that the run ends with.
    pub(crate) end_with: Option<OwnedFd>,
    pub(crate) sampler: Option<Sampler>,
    pub(crate) leases: Option<Leases>,
    /// The folder in which questions are heard, until they are.
    pub(crate) control_folder: Option<PathBuf>,
    pub(crate) control: Option<ControlSocket>,
    pub(crate) mps: Option<MpsThread>,
    pub(crate) attributor: Attributor,
    pub(crate) file_contents: FileContents,
    pub(crate) leaders: LeaderRecord,
    /// The markers in the folders of results on this machine.
    pub(crate) markers: Option<Markers>,
    /// The id of the state folder.
    pub(crate) home: String,
    /// What other runs know the GPUs by that the environment limits us to.
    pub(crate) given: Vec<String>,
    /// Whether whoever ends us ends our tasks with us.
    pub(crate) holds_failures: bool,
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
    held: HeldEnds,
    /// Nothing more comes from the source.
    source_over: bool,
    source_watch: SourceWatch,
    /// Whether the journal's bell is listened to.
    bell: bool,
    /// When the loop last turned.
    turned: Instant,
    /// How much the journal had committed and kept, and what troubled it, when the engine
    /// was told.
    committed: (u64, u64, Option<String>),
    /// Pages that are not in the store yet.
    fetches: Vec<(RunId, u32, u32)>,
    others: OtherRunsWatch,
    /// A run of which nothing is alive, and until when what is left of its input is kept.
    closing: Option<(RunId, Option<Instant>)>,
    over: Option<RunSummary>,
    error: Option<SessionError>,
}

impl<'o> Session<'o> {
    pub(crate) fn new(
        run: RunId,
        engine: Engine,
        mut parts: SessionParts,
        observer: &'o mut dyn Observer,
        origin: Instant,
        patience: Duration,
    ) -> Result<Self, SessionError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("wait for events"))?;
        let (home, given) = (&mut parts.home, &mut parts.given);
        let others = OtherRunsWatch::new(std::mem::take(home), std::mem::take(given));
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
            held: HeldEnds::default(),
            source_over: false,
            source_watch: SourceWatch::Off,
            bell: false,
            turned: Instant::now(),
            committed: (0, 0, None),
            fetches: Vec::new(),
            others,
            closing: None,
            over: None,
            error: None,
        };
        let (epoll, parts) = (&session.epoll, &session.parts);
        watch(epoll, &parts.signals, SIGNALS)?;
        watch(epoll, &parts.executor, EXECUTOR)?;
        if let Some(process) = &parts.end_with {
            watch(epoll, process, END_WITH)?;
        }
        if let Some(sampler) = &parts.sampler {
            watch(epoll, sampler, SAMPLER)?;
        }
        if let Some(mps) = &parts.mps {
            watch(epoll, mps, MPS)?;
        }
        Ok(session)
    }

    fn now(&self) -> ClockReading {
        ClockReading { monotonic: self.origin.elapsed(), wall: Timestamp::now() }
    }

    /// No tasks come but those of earlier sessions.
    pub(crate) fn end_source(&mut self) {
        self.source_over = true;
        self.dispatch(Input::InputEnded(self.run));
    }

    /// Takes over what an earlier session left, page by page.
    pub(crate) fn resume(&mut self) -> Result<(), SessionError> {
        let run = self.run;
        let mut tasks = self.parts.journal.unfinished(run, 0, PAGE)?;
        loop {
            let next = match tasks.last() {
                Some(last) => self.parts.journal.unfinished(run, last.id.number, PAGE)?,
                None => Vec::new(),
            };
            let more = !next.is_empty();
            self.dispatch(Input::Resumed { run, tasks, more });
            if !more {
                return Ok(());
            }
            tasks = next;
        }
    }

    /// Tells the engine something, and does what it says.
    pub(crate) fn dispatch(&mut self, input: Input) {
        if self.over.is_none() {
            self.answers.push_back(input);
            self.dispatch_answers();
        }
    }

    /// Tells the engine what is to be handled next.
    fn dispatch_answers(&mut self) {
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
        let now = Instant::now();
        self.listen_to_other_runs(now);
        self.record_leaders(now);
        self.watch_leases()?;
        let again = self.observer.show(now, &self.engine);
        self.watch_journal(now)?;
        self.wait(now, again)?;
        for index in 0..self.ready.len() {
            self.happened(self.ready[index].data.u64())?;
            if self.over.is_some() {
                // What was ready before may not be any more.
                return Ok(());
            }
        }
        if let SourceWatch::AlwaysReadable = self.source_watch {
            self.read_source();
        }
        self.tell_held(Instant::now());
        if self.others.awaits_turn.is_some_and(|at| at <= Instant::now()) {
            self.refresh_other_runs_now();
        }
        let now = self.origin.elapsed();
        if self.engine.wake_at().is_some_and(|at| at <= now) {
            self.dispatch(Input::Wake);
        }
        Ok(())
    }

    fn wait(&mut self, now: Instant, again: Option<Instant>) -> Result<(), SessionError> {
        let waits = self.engine.waits_for_journal() && !self.bell;
        let wake = [
            again,
            self.engine.wake_at().map(|at| self.origin + at),
            self.parts.leaders.due(),
            self.others.look_again,
            self.others.awaits_turn,
            self.held.due(),
            waits.then(|| now + LULL),
        ];
        let wake = wake.into_iter().flatten().min();
        let timeout = match wake {
            _ if self.has_room() || matches!(self.source_watch, SourceWatch::AlwaysReadable) => {
                Some(Duration::ZERO)
            }
            wake => wake.map(|at| at.saturating_duration_since(now)),
        };
        if timeout != Some(Duration::ZERO) {
            self.hear_questions()?;
        }
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        self.ready.clear();
        let buffer = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(system("wait for events")(error)),
        }
    }

    fn happened(&mut self, what: u64) -> Result<(), SessionError> {
        match what {
            SIGNALS => self.read_signals()?,
            EXECUTOR => self.drain_executor()?,
            JOURNAL => self.parts.journal.heard(),
            SOURCE => self.read_source(),
            CONTROL => self.read_questions(),
            SAMPLER => self.read_samples(),
            LEASES => self.hear_other_runs(),
            TURN => self.hear_bell(),
            NAMES => self.hear_names(),
            MPS => self.read_mps_answers(),
            END_WITH => self.end_with_process(),
            _ => {}
        }
        Ok(())
    }

    fn read_signals(&mut self) -> Result<(), SessionError> {
        for signal in self.parts.signals.read() {
            match signal {
                ProgramSignal::Stop(signal) => {
                    let run = self.run;
                    self.dispatch(Input::Stop { run, signal });
                    if signal != StopSignal::Interrupt {
                        self.blame_others();
                    }
                }
                ProgramSignal::Resize => self.observer.resized(),
                ProgramSignal::Suspend => {
                    self.observer.suspended();
                    Signals::suspend();
                    // That we go on has been signalled: it is heard before anything is shown.
                    self.read_signals()?;
                }
                ProgramSignal::Continue => {
                    self.observer.continued();
                    self.hold_all_ends(Instant::now());
                }
                ProgramSignal::Child => self.drain_executor()?,
            }
        }
        Ok(())
    }

    /// The process has ended that the run ends with: nobody is left who could want it.
    fn end_with_process(&mut self) {
        if let Some(process) = self.parts.end_with.take() {
            let _ = unwatch(&self.epoll, &process);
            self.dispatch(Input::Stop { run: self.run, signal: StopSignal::Terminate });
        }
    }

    fn drain_executor(&mut self) -> Result<(), SessionError> {
        if self.parts.holds_failures {
            // Whether we are about to be ended matters for what the end of a task means.
            self.read_signals()?;
        }
        let mut events = std::mem::take(&mut self.processes);
        self.parts.executor.drain(&mut events).map_err(system("watch processes"))?;
        // What was seen of an attempt while it ran is told before its end.
        let is_end = |event: &ProcessEvent| matches!(event, ProcessEvent::Ended(_));
        if events.iter().any(is_end) {
            self.read_samples();
        }
        if !events.is_empty() {
            self.parts.leaders.changed(Instant::now());
        }
        let now = Instant::now();
        for event in events.drain(..) {
            if let Some(event) = self.hold_back(event, now) {
                self.dispatch(Input::Process(event));
            }
        }
        self.processes = events;
        Ok(())
    }

    /// Tells the engine what the journal has written.
    fn note_commits(&mut self) {
        let records = self.parts.journal.committed();
        let (before, _, trouble) = &self.committed;
        if records == *before && trouble.is_none() && !self.bell {
            return;
        }
        let committed = (records, self.parts.journal.kept(), self.parts.journal.trouble());
        if committed == self.committed {
            return;
        }
        self.committed = committed;
        self.dispatch(self.committed_input());
        for (run, after, limit) in std::mem::take(&mut self.fetches) {
            self.fetch(run, after, limit);
        }
        self.dispatch_answers();
    }

    fn committed_input(&self) -> Input {
        let (records, kept, trouble) = self.committed.clone();
        Input::Committed { records, kept, trouble }
    }

    /// Listens to the journal's bell while there is something to hear. While tasks come and
    /// go there is a turn of the loop every moment anyway, and being woken for each commit
    /// would cost more than the commit.
    fn watch_journal(&mut self, now: Instant) -> Result<(), SessionError> {
        let gap = now.duration_since(std::mem::replace(&mut self.turned, now));
        let wanted = !self.fetches.is_empty()
            || self.is_source_paused()
            || (self.engine.waits_for_journal() && gap >= LULL);
        if wanted == self.bell {
            return Ok(());
        }
        self.bell = wanted;
        if wanted {
            watch(&self.epoll, &self.parts.journal, JOURNAL)
        } else {
            unwatch(&self.epoll, &self.parts.journal)
        }
    }

    /// Listens to questions before we first wait for anything: the first task need not wait
    /// for the socket.
    fn hear_questions(&mut self) -> Result<(), SessionError> {
        let Some(folder) = self.parts.control_folder.take() else {
            return Ok(());
        };
        self.parts.control = ControlSocket::open(&folder).ok();
        match &self.parts.control {
            Some(control) => watch(&self.epoll, control, CONTROL),
            None => Ok(()),
        }
    }

    fn read_questions(&mut self) {
        let run = self.run;
        while let Some((request, reply_to)) =
            self.parts.control.as_mut().and_then(ControlSocket::receive)
        {
            match request {
                ControlRequest::Why(number) => {
                    let task = TaskId::new(run, number);
                    // The answer counts what was sent before the question, and tells who
                    // holds what now.
                    self.read_what_arrived();
                    self.refresh_other_runs_now();
                    self.dispatch(Input::AskWhy { task, reply_to });
                }
                ControlRequest::Stop(signal) => {
                    if let Some(control) = &mut self.parts.control {
                        control.answer(reply_to, "stopping");
                    }
                    self.dispatch(Input::Stop { run, signal });
                }
            }
        }
    }

    fn read_samples(&mut self) {
        let Some(sampler) = &self.parts.sampler else {
            return;
        };
        for report in sampler.fetch() {
            match report {
                SamplerReport::Sample(sample) => {
                    let executor = &*self.parts.executor;
                    let view = self.parts.attributor.view(sample, &self.engine, executor);
                    self.dispatch(Input::Sampled(view));
                }
                SamplerReport::Xid { unit, xid } => {
                    let device = DeviceId(u32::try_from(unit).unwrap_or(u32::MAX));
                    if let Some(reason) = xid.hardware() {
                        let reason = format!("{xid}: {reason}");
                        self.dispatch(Input::DeviceFailed { device, reason });
                    } else if xid.is_program_fault() {
                        self.dispatch(Input::ProgramFault { device, error: xid.to_string() });
                    }
                }
            }
        }
    }

    fn read_mps_answers(&mut self) {
        while let Some(answer) = self.parts.mps.as_mut().and_then(MpsThread::answer) {
            match answer {
                MpsAnswer::Input(input, daemon) => {
                    if let Some(pid) = daemon {
                        self.parts.executor.spare(pid);
                    }
                    self.dispatch(Input::Mps(input));
                }
                MpsAnswer::Warning(message) => {
                    self.dispatch(Input::Warning { task: None, message });
                }
                MpsAnswer::Over(trouble) => {
                    if let Some(mps) = self.parts.mps.take() {
                        let _ = unwatch(&self.epoll, &mps);
                    }
                    let task = None;
                    let trouble = trouble.into_iter();
                    self.answers.extend(trouble.map(|message| Input::Warning { task, message }));
                    self.dispatch_answers();
                }
            }
        }
    }

    /// Ends what runs, after something went wrong that nothing works without.
    fn leave(&mut self) {
        let run = self.run;
        let signal = StopSignal::Terminate;
        self.unwatch_source();
        self.source_over = true;
        self.dispatch(Input::Stop { run, signal });
        // What else goes wrong is a consequence.
        while self.over.is_none() && self.turn().is_ok() {
            self.error = None;
        }
        self.observer.show(Instant::now(), &EmptyQueue);
    }
}

fn watch(epoll: &OwnedFd, source: impl AsFd, what: u64) -> Result<(), SessionError> {
    let data = epoll::EventData::new_u64(what);
    epoll::add(epoll, source, data, epoll::EventFlags::IN).map_err(system("watch what happens"))
}

fn unwatch(epoll: &OwnedFd, source: impl AsFd) -> Result<(), SessionError> {
    epoll::delete(epoll, source).map_err(system("stop watching"))
}
