//! Reading input: into the store, and on to the core.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_core::{self as core, Submission};
use packhorse_intake::Colour;
use packhorse_intake::lines::{Entry, LineError, Options};
use packhorse_model::{Command, Outcome, TaskId};
use packhorse_store::{NewTask, Reader, Record};
use rustc_hash::FxHashMap;

use crate::backlog::FETCHED;
use crate::input::{Progress, Reading};
use crate::known::weight;
use crate::run::{INPUT, Run, system};
use crate::wishes::is_plain;
use crate::{Beginning, Event, Generator, Input, RunError};

/// Input is not read while more than this waits to be written.
const MOST_UNWRITTEN: usize = 4 << 20;
/// How long somebody who wants to end waits for the rest of the input to be kept.
/// Whoever writes faster than we read would have us read for ever.
const KEEPING: Duration = Duration::from_secs(1);

/// Where tasks come from, and how far it has come.
pub(crate) struct Feed {
    origin: Origin,
    /// How many tasks there are.
    known: u32,
    /// How many of them earlier sessions settled.
    settled: u32,
    /// What the reporter knows.
    told: Option<(u32, bool)>,
    /// Numbers of tasks that have a name.
    pub(crate) names: FxHashMap<String, u32>,
    /// Tasks that others may come after, and that the core never had.
    pub(crate) decided: FxHashMap<u32, Outcome>,
    /// Whether there were earlier sessions, whose tasks the core does not know.
    pub(crate) resumed: bool,
    /// Lines that were no commands.
    pub(crate) rejected: u64,
    /// The last of them: one line may have several mistakes.
    last_rejected: (String, u64),
    /// How many commands earlier sessions have read, and are to be passed over.
    skip: u32,
    /// How many have been.
    passed: u32,
    /// What the loop watches: a copy of the source's descriptor, so that it can
    /// still be taken off when the source is closed.
    watched: Option<OwnedFd>,
    /// The source's end was reached, and recorded.
    complete: bool,
}

enum Origin {
    Over,
    One(Command),
    Made(Vec<NewTask>),
    Reading(Box<Reading>),
    Generated(Generator),
}

impl Feed {
    pub(crate) fn new(input: Input) -> Self {
        let skip = match &input {
            Input::Lines { skip, .. } => *skip,
            _ => 0,
        };
        Self {
            origin: match input {
                Input::None => Origin::Over,
                Input::One(command) => Origin::One(command),
                Input::Made(tasks) => Origin::Made(tasks),
                Input::Lines {
                    sources, separator, ..
                } => Origin::Reading(Box::new(Reading::new(sources, separator))),
                Input::Generated(generator) => Origin::Generated(generator),
            },
            known: 0,
            settled: 0,
            told: None,
            names: FxHashMap::default(),
            decided: FxHashMap::default(),
            resumed: false,
            rejected: 0,
            last_rejected: (String::new(), 0),
            skip,
            passed: 0,
            watched: None,
            complete: false,
        }
    }

    /// Whether no more tasks can come.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.origin, Origin::Over)
    }

    /// Tasks that are still to come, as far as anybody knows.
    pub(crate) fn unread(&self) -> u128 {
        match &self.origin {
            Origin::Over | Origin::Reading(_) => 0,
            Origin::One(_) => 1,
            Origin::Made(tasks) => tasks.len() as u128,
            Origin::Generated(generator) => generator.total.saturating_sub(self.known).into(),
        }
    }
}

impl Run<'_> {
    /// Writes down how the run begins, and takes over what an earlier session
    /// left.
    pub(crate) fn begin(&mut self, beginning: Beginning) -> Result<(), RunError> {
        match beginning {
            Beginning::New(new) => {
                self.store.send(Record::NewRun(new));
                Ok(())
            }
            Beginning::Again { reopened, tasks } => {
                self.feed.known = tasks;
                self.feed.resumed = true;
                self.store.send(Record::RunResumed {
                    pid: rustix::process::getpid()
                        .as_raw_nonzero()
                        .get()
                        .cast_unsigned(),
                    host: host().into(),
                });
                let reopened = self.store.send(Record::Reopened {
                    tasks: reopened.into(),
                });
                self.take_over(reopened)?;
                let left = self.tasks.len() as u64 + self.backlog.stored();
                self.feed.settled = tasks.saturating_sub(u32::try_from(left).unwrap_or(tasks));
                Ok(())
            }
        }
    }

    /// Blocks until the store has written something, or cannot.
    fn wait_for_store(&self) {
        let mut bell = [rustix::event::PollFd::new(
            &self.store,
            rustix::event::PollFlags::IN,
        )];
        let _ = rustix::event::poll(&mut bell, None);
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.store, &mut counter);
    }

    /// Goes through what is not settled: the core gets all tasks with wishes of
    /// their own, and the first of the plain ones.
    fn take_over(&mut self, reopened: u64) -> Result<(), RunError> {
        self.store.ready()?;
        while self.store.committed() < reopened && self.store.trouble().is_none() {
            self.wait_for_store();
        }
        // All of them are in line before the first one starts.
        self.step(core::SchedulerEvent::Hold);
        let (id, mut after) = (self.id, 0);
        loop {
            let page = self.reader()?.unfinished(id, after, FETCHED)?;
            let Some(last) = page.last() else {
                break;
            };
            after = last.id.number;
            for task in page {
                if is_plain(&task) && !self.backlog.has_room() {
                    self.backlog.leave();
                } else {
                    self.submit_stored(task)?;
                }
            }
        }
        self.step(core::SchedulerEvent::Unhold);
        Ok(())
    }

    /// Whatever brings tasks nearer to the core: fetching, making, watching.
    pub(crate) fn feed_on(&mut self) -> Result<(), RunError> {
        if self.phase == crate::Phase::Running {
            self.fetch()?;
            self.make()?;
        }
        self.watch_input()?;
        let news = Some((self.feed.known, self.feed.is_over()));
        if news != self.feed.told {
            self.feed.told = news;
            let total = match &self.feed.origin {
                Origin::Generated(generator) => generator.total,
                _ => self.feed.known,
            };
            let complete = !matches!(self.feed.origin, Origin::Reading(_));
            self.tell(Event::Known {
                tasks: total.saturating_sub(self.feed.settled).into(),
                complete,
            });
        }
        if self.feed.is_over() && !self.feed.complete {
            self.feed.complete = true;
            self.store.send(Record::InputComplete);
        }
        Ok(())
    }

    /// Brings plain tasks back from the store when their turn comes near.
    fn fetch(&mut self) -> Result<(), RunError> {
        if !self.backlog.is_due() {
            return Ok(());
        }
        let (id, fed) = (self.id, self.backlog.fed);
        let mut page = self.reader()?.plain_unfinished(id, fed, FETCHED)?;
        if page.is_empty() && self.store.backlog().records == 0 {
            // Somebody removed the database, and the writer has put it back: our
            // reader still has the old one.
            self.reader = None;
            page = self.reader()?.plain_unfinished(id, fed, FETCHED)?;
            if page.is_empty() {
                let lost = self.backlog.lose();
                self.feed.rejected += lost;
                self.warn(None, format!("{lost} tasks are gone from the store"));
            }
        }
        for task in page {
            self.backlog.fetch();
            self.submit_stored(task)?;
        }
        Ok(())
    }

    pub(crate) fn reader(&mut self) -> Result<&Reader, RunError> {
        let reader = if let Some(reader) = self.reader.take() {
            reader
        } else {
            self.store.ready()?;
            Reader::open(&self.settings.home)?
        };
        Ok(self.reader.insert(reader))
    }

    /// Makes tasks that come from no descriptor.
    fn make(&mut self) -> Result<(), RunError> {
        let mut batch = Vec::new();
        let mut made = Vec::new();
        match &mut self.feed.origin {
            Origin::Over | Origin::Reading(_) => return Ok(()),
            Origin::Made(tasks) => {
                let tasks = std::mem::take(tasks);
                self.feed.origin = Origin::Over;
                return self.take_made(tasks);
            }
            Origin::One(command) => {
                made.push(std::mem::replace(command, Command::Words(Vec::new())));
                self.feed.origin = Origin::Over;
            }
            Origin::Generated(generator) => {
                // What an earlier session left in the store comes first.
                let room = self.backlog.room();
                if room == 0 {
                    return Ok(());
                }
                let end = generator.total.min(
                    self.feed
                        .known
                        .saturating_add(u32::try_from(room).unwrap_or(0)),
                );
                for place in self.feed.known..end {
                    made.push((generator.command)(place));
                }
                if end == generator.total {
                    self.feed.origin = Origin::Over;
                }
            }
        }
        let first = self.feed.known + 1;
        for command in &made {
            self.feed.known += 1;
            batch.push(NewTask::plain(self.feed.known, command.clone()));
        }
        self.store.send(Record::Tasks(batch));
        for (command, number) in made.into_iter().zip(first..) {
            let submission = self
                .settings
                .defaults
                .submission(TaskId::new(self.id, number));
            self.submit_plain(submission, Arc::new(command), 0)?;
        }
        Ok(())
    }

    /// Takes tasks that were made before: the most urgent goes first, wherever it
    /// stands.
    fn take_made(&mut self, tasks: Vec<NewTask>) -> Result<(), RunError> {
        self.feed.known += u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        self.store.send(Record::Tasks(tasks.clone()));
        self.step(core::SchedulerEvent::Hold);
        for task in tasks {
            self.submit_new(task)?;
        }
        self.step(core::SchedulerEvent::Unhold);
        Ok(())
    }

    /// Gives the core a task without wishes of its own.
    pub(crate) fn submit_plain(
        &mut self,
        submission: Submission,
        command: Arc<Command>,
        before: u32,
    ) -> Result<(), RunError> {
        let bytes = weight(&command);
        self.backlog.enter(submission.id.number, bytes);
        let mut known = self.settings.defaults.known(command, before);
        known.queued = Some(bytes);
        self.submit(submission, known)
    }

    /// Whether input is left unread until the store has caught up.
    pub(crate) fn is_input_paused(&self) -> bool {
        matches!(self.feed.origin, Origin::Reading(_)) && self.feed.watched.is_none()
    }

    /// Watches the source if it may be read now.
    fn watch_input(&mut self) -> Result<(), RunError> {
        let wanted = match &self.feed.origin {
            Origin::Reading(reading) if self.store.backlog().bytes < MOST_UNWRITTEN => {
                reading.descriptor()
            }
            _ => None,
        };
        match (wanted, &self.feed.watched) {
            (Some(source), None) => {
                let copy = rustix::io::fcntl_dupfd_cloexec(source, 0)
                    .map_err(|error| system("watch the input")(error.into()))?;
                self.hands
                    .watch(copy.as_fd(), INPUT)
                    .map_err(system("watch the input"))?;
                self.feed.watched = Some(copy);
            }
            (None, Some(_)) => self.unwatch_input()?,
            _ => {}
        }
        Ok(())
    }

    fn unwatch_input(&mut self) -> Result<(), RunError> {
        if let Some(watched) = self.feed.watched.take() {
            self.hands
                .unwatch(watched.as_fd(), INPUT)
                .map_err(system("stop watching the input"))?;
        }
        Ok(())
    }

    /// The source can be read.
    pub(crate) fn read_input(&mut self) -> Result<(), RunError> {
        if self.feed.watched.is_some() && self.read_once()? {
            // A new source has another descriptor.
            self.unwatch_input()?;
        }
        Ok(())
    }

    /// Reads once; whether that was the end of a source.
    fn read_once(&mut self) -> Result<bool, RunError> {
        let Origin::Reading(reading) = &mut self.feed.origin else {
            return Ok(false);
        };
        let progress = reading.read();
        let name = reading.source_name().to_owned();
        let mut entries = Vec::new();
        let mut errors = Vec::new();
        for entry in &mut reading.lines {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) => errors.push(error),
            }
        }
        let ended = !matches!(progress, Progress::Some);
        if ended {
            reading.next_source();
            if reading.is_over() {
                self.feed.origin = Origin::Over;
            }
        }
        self.accept(entries)?;
        for error in errors {
            self.reject(&name, &error);
        }
        if let Progress::Failed(message) = progress {
            self.feed.rejected += 1;
            self.warn(None, message);
        }
        Ok(ended)
    }

    fn reject(&mut self, source: &str, error: &LineError) {
        let place = (source.to_owned(), error.line());
        if place != self.feed.last_rejected {
            self.feed.last_rejected = place;
            self.feed.rejected += 1;
        }
        let message = format!("a line was not run\n{}", error.render(source, Colour::Off));
        self.warn(None, message);
    }

    /// Takes commands that have arrived: all go to the store, and those whose
    /// turn may come soon go to the core.
    fn accept(&mut self, mut entries: Vec<Entry>) -> Result<(), RunError> {
        self.pass_over(&mut entries);
        if entries.is_empty() {
            return Ok(());
        }
        let mut batch = Vec::with_capacity(entries.len());
        let mut soon = Vec::new();
        for entry in entries {
            if self.feed.known == u32::MAX {
                self.feed.rejected += 1;
                continue;
            }
            self.feed.known += 1;
            let number = self.feed.known;
            let command = Command::Line(entry.command);
            if entry.options != Options::default() {
                let task = self.wishful(number, command.clone(), entry.options);
                soon.push((number, command, Some(task.clone())));
                batch.push(task);
            } else if self.backlog.has_room() {
                // It takes its room now, so that the next one knows.
                self.backlog.enter(number, weight(&command));
                batch.push(NewTask::plain(number, command.clone()));
                soon.push((number, command, None));
            } else {
                self.backlog.leave();
                batch.push(NewTask::plain(number, command));
            }
        }
        self.store.send(Record::Tasks(batch));
        // What arrived together is in line together: the most urgent goes first,
        // wherever it stood.
        let together = self.phase == crate::Phase::Running && soon.len() > 1;
        if together {
            self.step(core::SchedulerEvent::Hold);
        }
        for (number, command, wishes) in soon {
            if let Some(task) = wishes {
                self.submit_new(task)?;
                continue;
            }
            let id = TaskId::new(self.id, number);
            let submission = self.settings.defaults.submission(id);
            let bytes = weight(&command);
            let mut known = self.settings.defaults.known(Arc::new(command), 0);
            known.queued = Some(bytes);
            self.submit(submission, known)?;
        }
        if together {
            self.step(core::SchedulerEvent::Unhold);
        }
        Ok(())
    }

    /// Passes over what an earlier session has read already, but for the names.
    fn pass_over(&mut self, entries: &mut Vec<Entry>) {
        let count = entries.len().min(self.feed.skip as usize);
        for entry in entries.drain(..count) {
            self.feed.passed += 1;
            self.feed.skip -= 1;
            if let Some(name) = entry.options.name {
                self.feed.names.insert(name, self.feed.passed);
            }
        }
    }

    /// What can be had of the input without waiting goes to the store, so that a
    /// later session finds it there.
    pub(crate) fn keep_rest_of_input(&mut self) -> Result<(), RunError> {
        let end = Instant::now() + KEEPING;
        while let Origin::Reading(reading) = &self.feed.origin
            && reading.is_ready()
        {
            if Instant::now() >= end {
                self.warn(
                    None,
                    "more commands are coming in than can be kept; the rest is left".to_owned(),
                );
                break;
            }
            while self.store.backlog().bytes > MOST_UNWRITTEN && self.store.trouble().is_none() {
                self.wait_for_store();
            }
            self.read_once()?;
        }
        if self.feed.is_over() && !self.feed.complete {
            self.feed.complete = true;
            self.store.send(Record::InputComplete);
        }
        Ok(())
    }
}

/// This machine's name.
pub fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
