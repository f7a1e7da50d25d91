use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use packhorse_model::{NewRun, RunId};

use super::crash_journal::CrashJournal;
use crate::{Record, StoreError, Unwritten, Writer};

/// A pause for pacing ends early when this much is queued.
const URGENT_BYTES: usize = 256 << 10;

/// A batch keeps its memory for the next one up to this many records.
const KEPT_CAPACITY: usize = 4096;

/// Between the senders and the thread that writes.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueContent>,
    /// The writing thread waits for this.
    work: Condvar,
    /// Whoever asks whether the database is open waits for this.
    opening: Condvar,
    committed: AtomicU64,
    /// Becomes readable after every commit, and when trouble begins.
    event: OwnedFd,
    /// The thread will not write any more.
    finished: AtomicBool,
}

#[derive(Debug, Default)]
struct QueueContent {
    records: Vec<Record>,
    bytes: usize,
    /// Taken by the thread and not committed yet.
    taken: Unwritten,
    sent: u64,
    thread: ThreadState,
    stopping: bool,
    opened: Option<Result<(), String>>,
    trouble: Option<String>,
    /// Keep what is not committed.
    journals: BTreeMap<RunId, CrashJournal>,
}

/// What the writing thread is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ThreadState {
    /// Writing; it looks at the queue again by itself.
    #[default]
    Writing,
    /// Letting records gather for a while.
    Pacing,
    /// Waiting after a failure. More records are no reason to try again.
    Recovering,
    /// Blocked until somebody wakes it.
    Idle,
}

/// Records that the thread has taken, and the place of the last of them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    pub(super) last: u64,
}

/// Whether more records can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    Open,
    Stopped,
}

/// What senders do.
impl Writer {
    /// Waits until the database is open, or cannot be opened, after the writer has
    /// [begun](Writer::begin).
    pub fn ready(&self) -> Result<(), StoreError> {
        let state = self
            .queue
            .opening
            .wait_while(self.queue.lock(), |state| state.opened.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let opened = state.opened.clone().unwrap_or(Ok(()));
        opened.map_err(|reason| StoreError::Unavailable { reason })
    }

    /// Queues a record and returns its place in the sequence, counted from 1.
    pub fn send(&self, record: Record) -> u64 {
        let weight = record.weight();
        // A run is known before its first task starts, whatever becomes of this process.
        let journal = match &record {
            Record::NewRun { run, facts } => self.begin_journal(*run, Some(facts)),
            Record::RunResumed { run, .. } => self.begin_journal(*run, None),
            _ => None,
        };
        let begins = journal.is_some();
        let mut state = self.queue.lock();
        state.journals.extend(journal);
        state.sent += 1;
        let place = state.sent;
        state.bytes += weight;
        if let Some(journal) = record.run().and_then(|run| state.journals.get_mut(&run)) {
            journal.add(place, &record);
        }
        state.records.push(record);
        let wake = match state.thread {
            ThreadState::Idle => true,
            ThreadState::Pacing => begins || state.bytes >= URGENT_BYTES,
            ThreadState::Writing | ThreadState::Recovering => false,
        };
        if wake {
            // One call is enough: the next sender finds it at work.
            state.thread = ThreadState::Writing;
        }
        drop(state);
        if wake {
            self.queue.work.notify_one();
        }
        place
    }

    /// Makes the crash journal of a run that begins or goes on. Without one, as on a full
    /// disk, a kill loses the last 20 ms.
    fn begin_journal(&self, run: RunId, facts: Option<&NewRun>) -> Option<(RunId, CrashJournal)> {
        if self.queue.lock().journals.contains_key(&run) {
            return None;
        }
        let journal = CrashJournal::create(&self.home, run, facts).ok()??;
        Some((run, journal))
    }

    /// Whether what is sent of a run outlives this process before it is committed, if the
    /// tasks that it is about are.
    pub fn has_crash_journal(&self, run: RunId) -> bool {
        self.queue.lock().journals.contains_key(&run)
    }

    /// How an attempt ended that is at this place or before it outlives this process, if
    /// there is a crash journal and the task is safe.
    pub fn kept(&self) -> u64 {
        let state = self.queue.lock();
        let journals = state.journals.values();
        let failed = journals.filter_map(CrashJournal::failed).min();
        failed.map_or(state.sent, |failed| failed - 1)
    }

    /// The place of the last record that is safe.
    pub fn committed(&self) -> u64 {
        self.queue.committed.load(Ordering::Acquire)
    }

    /// How much has been sent and is not safe yet. Whoever reads input stops
    /// when this is too much.
    pub fn unwritten(&self) -> Unwritten {
        let state = self.queue.lock();
        Unwritten {
            records: state.records.len() + state.taken.records,
            bytes: state.bytes + state.taken.bytes,
        }
    }

    /// What keeps the records from being written at this moment.
    pub fn trouble(&self) -> Option<String> {
        self.queue.lock().trouble.clone()
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.event.as_fd()
    }
}

impl Queue {
    pub(super) fn new(event: OwnedFd) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            opening: Condvar::new(),
            committed: AtomicU64::new(0),
            event,
            finished: AtomicBool::new(false),
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopping = true;
        self.work.notify_one();
    }

    /// Tells that the thread will not write any more.
    pub(super) fn set_finished(&self) {
        self.finished.store(true, Ordering::Release);
        self.notify();
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// The thread ended before it could tell how opening went, if it has not.
    pub(super) fn set_unopened(&self, why: &str) {
        let mut state = self.lock();
        state.opened.get_or_insert_with(|| Err(why.to_owned()));
        drop(state);
        self.opening.notify_all();
    }

    /// The thread tells how opening went.
    pub(super) fn set_opened(&self, result: Result<(), String>) {
        self.lock().opened = Some(result);
        self.opening.notify_all();
    }

    /// All is committed: the crash journals are not needed any more.
    pub(super) fn remove_journals(&self) {
        for journal in std::mem::take(&mut self.lock().journals).into_values() {
            journal.remove();
        }
    }

    /// Lets records gather until `pace`, then waits for the first one if
    /// there is none, and adds all there are to `batch`.
    pub(super) fn gather(&self, batch: &mut Batch, pace: Instant) -> QueueState {
        let mut state = self.pause(self.lock(), ThreadState::Pacing, pace);
        if state.records.is_empty() {
            state.thread = ThreadState::Idle;
            let is_idle = |state: &mut QueueContent| state.records.is_empty() && !state.stopping;
            state = self.work.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut state, batch)
    }

    /// Waits until `again` after a failure, and adds what has come to `batch`.
    pub(super) fn recover(&self, batch: &mut Batch, again: Instant) -> QueueState {
        let mut state = self.pause(self.lock(), ThreadState::Recovering, again);
        take(&mut state, batch)
    }

    /// The thread has written the batch.
    pub(super) fn set_committed(&self, batch: &mut Batch) {
        let ended = ended_runs(&batch.records);
        batch.records.clear();
        batch.records.shrink_to(KEPT_CAPACITY);
        let mut state = self.lock();
        state.taken = Unwritten::default();
        state.trouble = None;
        for journal in state.journals.values_mut() {
            journal.set_committed(batch.last);
        }
        let unneeded = ended.iter().filter_map(|run| state.journals.remove(run));
        let unneeded: Vec<CrashJournal> = unneeded.collect();
        drop(state);
        // Before anybody hears of it and lets go of the run.
        unneeded.into_iter().for_each(CrashJournal::remove);
        self.committed.store(batch.last, Ordering::Release);
        self.notify();
    }

    /// The thread could not write. The same trouble is told once.
    pub(super) fn set_trouble(&self, trouble: &str) {
        let mut state = self.lock();
        let news = state.trouble.as_deref() != Some(trouble);
        state.trouble = Some(trouble.to_owned());
        drop(state);
        if news {
            self.notify();
        }
    }

    fn pause<'a>(
        &'a self,
        mut state: MutexGuard<'a, QueueContent>,
        waiting: ThreadState,
        end: Instant,
    ) -> MutexGuard<'a, QueueContent> {
        state.thread = waiting;
        let left = end.saturating_duration_since(Instant::now());
        // A sender that finds too much queued changes it back.
        let pauses = |state: &mut QueueContent| !state.stopping && state.thread == waiting;
        self.work.wait_timeout_while(state, left, pauses).unwrap_or_else(PoisonError::into_inner).0
    }

    fn notify(&self) {
        // Fails only when the counter is full: nobody has read 2^64 of them.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, QueueContent> {
        // A panic while it was held cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The runs that are over after these records.
fn ended_runs(records: &[Record]) -> BTreeSet<RunId> {
    let mut ended = BTreeSet::new();
    for record in records {
        match record {
            Record::RunEnded { run, .. } => {
                ended.insert(*run);
            }
            Record::RunResumed { run, .. } => {
                ended.remove(run);
            }
            _ => {}
        }
    }
    ended
}

fn take(state: &mut QueueContent, batch: &mut Batch) -> QueueState {
    if batch.records.is_empty() {
        std::mem::swap(&mut batch.records, &mut state.records);
    } else {
        batch.records.append(&mut state.records);
    }
    batch.last = state.sent;
    state.taken.records = batch.records.len();
    state.taken.bytes += std::mem::take(&mut state.bytes);
    state.thread = ThreadState::Writing;
    if state.stopping { QueueState::Stopped } else { QueueState::Open }
}

#[cfg(test)]
mod tests;
