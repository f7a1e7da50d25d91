//! What survives a crash: written by the store's thread, read back when the engine asks.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use packhorse_engine::LearnedPeaks;
use packhorse_model::{Outcome, Record, RunId, StoredTask, TaskId};
use packhorse_store::{Home, Reader, TaskFilter, Writer};
use rustix::event::{PollFd, PollFlags, poll};

use crate::SessionError;

/// Writes down what happens, and finds what was written.
///
/// As a descriptor it becomes readable after every commit, and when trouble begins; then
/// [`Journal::heard`] is called.
pub trait Journal: AsFd {
    /// Writes it down soon. Returns its place, counted from 1.
    fn send(&mut self, record: Record) -> u64;

    /// The place of the last record that is safe.
    fn committed(&self) -> u64;

    /// The place up to which ends of attempts outlive this process, if their tasks are safe.
    fn kept(&self) -> u64 {
        self.committed()
    }

    /// What keeps records from being written at this moment.
    fn trouble(&self) -> Option<String>;

    /// About how many bytes wait to be written.
    fn unwritten(&self) -> usize;

    /// Takes note that the descriptor was readable.
    fn heard(&self);

    /// Plain tasks of a run that wait, with numbers above `after`. `None`: some are still
    /// on their way to the store.
    fn fetch(
        &mut self,
        run: RunId,
        after: u32,
        limit: u32,
    ) -> Result<Option<Vec<StoredTask>>, SessionError>;

    /// Any tasks of a run that are not settled, with numbers above `after`.
    fn unfinished(
        &mut self,
        run: RunId,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, SessionError>;

    /// What was learned of commands with this signature, or of this family.
    fn peaks(&mut self, signature: &str) -> Result<LearnedPeaks, SessionError>;

    /// How a task came out, if it is settled.
    fn outcome(&mut self, task: TaskId) -> Result<Option<Outcome>, SessionError>;

    /// Begins to write what is left, and says whether that is done in so much time.
    /// Nothing may be sent any more.
    fn ends_within(&self, time: Duration) -> bool;

    /// Writes what is left. The error says what could not be written.
    fn finish(&mut self) -> Result<(), String>;

    /// Waits for nothing any more. Says what is not written.
    fn give_up(&mut self) -> String;
}

/// Waits until something more is written, or cannot be.
pub(crate) fn wait_for_commit(journal: &dyn Journal) {
    let mut bell = [PollFd::from_borrowed_fd(journal.as_fd(), PollFlags::IN)];
    let _ = poll(&mut bell, None);
    journal.heard();
}

pub(crate) struct StoreJournal {
    home: Home,
    writer: Writer,
    reader: Option<Reader>,
}

impl StoreJournal {
    /// Starts the thread that writes: before the first task, whose result would be lost without.
    pub(crate) fn new(home: &Home) -> Result<Self, SessionError> {
        Ok(Self { writer: Writer::start(home)?, home: home.clone(), reader: None })
    }

    /// Whether what is sent of a run outlives this process before it is committed, if the
    /// tasks that it is about are.
    pub(crate) fn is_recoverable(&self, run: RunId) -> bool {
        self.writer.has_crash_journal(run)
    }

    /// Waits until everything up to this place is safe, or cannot be.
    pub(crate) fn wait_for(&mut self, place: u64) -> Result<(), SessionError> {
        self.writer.ready()?;
        while self.writer.committed() < place && self.writer.trouble().is_none() {
            wait_for_commit(self);
        }
        Ok(())
    }

    pub(crate) fn reader(&mut self) -> Result<&Reader, SessionError> {
        let reader = if let Some(reader) = self.reader.take() {
            reader
        } else {
            self.writer.ready()?;
            Reader::open(&self.home)?
        };
        Ok(self.reader.insert(reader))
    }
}

impl AsFd for StoreJournal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }
}

impl Journal for StoreJournal {
    fn send(&mut self, record: Record) -> u64 {
        self.writer.send(record)
    }

    fn committed(&self) -> u64 {
        self.writer.committed()
    }

    fn kept(&self) -> u64 {
        self.writer.kept()
    }

    fn trouble(&self) -> Option<String> {
        self.writer.trouble()
    }

    fn unwritten(&self) -> usize {
        self.writer.unwritten().bytes
    }

    fn heard(&self) {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.writer, &mut counter);
    }

    fn fetch(
        &mut self,
        run: RunId,
        after: u32,
        limit: u32,
    ) -> Result<Option<Vec<StoredTask>>, SessionError> {
        let plain = TaskFilter::PlainUnfinished;
        let page = self.reader()?.stored(run, plain, after, limit)?;
        if !page.is_empty() {
            return Ok(Some(page));
        }
        if self.writer.unwritten().records > 0 {
            return Ok(None);
        }
        // Somebody removed the database, and the writer has put it back: our reader
        // still has the old one.
        self.reader = None;
        Ok(Some(self.reader()?.stored(run, plain, after, limit)?))
    }

    fn unfinished(
        &mut self,
        run: RunId,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, SessionError> {
        let reader = self.reader()?;
        Ok(reader.stored(run, TaskFilter::Unfinished, after, limit)?)
    }

    fn peaks(&mut self, signature: &str) -> Result<LearnedPeaks, SessionError> {
        Ok(self.reader()?.family_peaks(signature)?)
    }

    fn outcome(&mut self, task: TaskId) -> Result<Option<Outcome>, SessionError> {
        let outcome = self.reader()?.outcome(task)?;
        Ok(outcome.filter(|outcome| outcome.is_final()))
    }

    fn ends_within(&self, time: Duration) -> bool {
        self.writer.ends_within(time)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.writer.finish().map_err(|error| error.to_string())
    }

    fn give_up(&mut self) -> String {
        self.writer.abandon().to_string()
    }
}
