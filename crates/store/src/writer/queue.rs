use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::slate::Slate;
use crate::{Backlog, Record};

/// A pause for pacing ends early when this much is queued.
const URGENT_BYTES: usize = 256 << 10;

/// A batch keeps its memory for the next one up to this many records.
const KEPT_CAPACITY: usize = 4096;

/// Between the senders and the thread that writes.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// The writing thread waits for this.
    work: Condvar,
    /// Whoever asks whether the database is open waits for this.
    opening: Condvar,
    committed: AtomicU64,
    bell: OwnedFd,
    /// The thread has written its last.
    over: AtomicBool,
}

#[derive(Debug)]
struct State {
    records: Vec<Record>,
    bytes: usize,
    /// Taken by the thread and not committed yet.
    in_hand: Backlog,
    sent: u64,
    posture: Posture,
    stopping: bool,
    opened: Option<Result<(), String>>,
    trouble: Option<String>,
    /// Keeps what is not committed.
    slate: Option<Slate>,
}

/// What the writing thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posture {
    /// Writing; it looks at the queue again by itself.
    Writing,
    /// Letting records gather, until a time that it knows.
    Pacing,
    /// Waiting out a failure. More records are no reason to try again.
    Recovering,
    /// Blocked until somebody wakes it.
    Idle,
}

/// Records in the thread's hands, and the place of the last of them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    pub(super) last: u64,
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    Open,
    Ended,
}

impl Queue {
    pub(super) fn new(bell: OwnedFd) -> Self {
        Self {
            state: Mutex::new(State {
                records: Vec::new(),
                bytes: 0,
                in_hand: Backlog::default(),
                sent: 0,
                posture: Posture::Writing,
                stopping: false,
                opened: None,
                trouble: None,
                slate: None,
            }),
            work: Condvar::new(),
            opening: Condvar::new(),
            committed: AtomicU64::new(0),
            bell,
            over: AtomicBool::new(false),
        }
    }

    pub(super) fn push(&self, record: Record) -> u64 {
        let weight = record.weight();
        let mut state = self.lock();
        state.sent += 1;
        let place = state.sent;
        state.bytes += weight;
        if let Some(slate) = &mut state.slate {
            slate.note(place, &record);
        }
        state.records.push(record);
        let wake = match state.posture {
            Posture::Idle => true,
            Posture::Pacing => state.bytes >= URGENT_BYTES,
            Posture::Writing | Posture::Recovering => false,
        };
        if wake {
            // One call is enough: the next sender finds it at work.
            state.posture = Posture::Writing;
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
        place
    }

    pub(super) fn stop(&self) {
        self.lock().stopping = true;
        self.work.notify_one();
    }

    /// Tells that the thread has written its last.
    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    pub(super) fn backlog(&self) -> Backlog {
        let state = self.lock();
        Backlog {
            records: state.records.len() + state.in_hand.records,
            bytes: state.bytes + state.in_hand.bytes,
        }
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Waits until it is known whether the database could be opened.
    pub(super) fn opened(&self) -> Result<(), String> {
        let mut state = self.lock();
        loop {
            match &state.opened {
                Some(known) => return known.clone(),
                None => {
                    state = self
                        .opening
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The thread tells how opening went.
    pub(super) fn set_opened(&self, result: Result<(), String>) {
        self.lock().opened = Some(result);
        self.opening.notify_all();
    }

    /// From now on what is sent is noted here too, and what has been sent already.
    pub(super) fn note_on(&self, mut notes: Slate) {
        let mut state = self.lock();
        let before = state.sent - state.records.len() as u64;
        for (place, record) in (before + 1..).zip(&state.records) {
            notes.note(place, record);
        }
        state.slate = Some(notes);
    }

    /// All is committed: nothing need be noted any more.
    pub(super) fn remove_slate(&self) {
        if let Some(slate) = self.lock().slate.take() {
            slate.remove();
        }
    }

    /// Lets records gather until `pace`, then waits for the first one if
    /// there is none, and adds all there are to `batch`.
    pub(super) fn gather(&self, batch: &mut Batch, pace: Instant) -> Supply {
        let mut state = self.pause(self.lock(), Posture::Pacing, pace);
        while state.records.is_empty() && !state.stopping {
            state.posture = Posture::Idle;
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut state, batch)
    }

    /// Waits until `again` after a failure, and adds what has come to `batch`.
    pub(super) fn recover(&self, batch: &mut Batch, again: Instant) -> Supply {
        let mut state = self.pause(self.lock(), Posture::Recovering, again);
        take(&mut state, batch)
    }

    /// The thread has written the batch.
    pub(super) fn set_committed(&self, batch: &mut Batch) {
        batch.records.clear();
        batch.records.shrink_to(KEPT_CAPACITY);
        let mut state = self.lock();
        state.in_hand = Backlog::default();
        state.trouble = None;
        let all = state.records.is_empty();
        if let Some(slate) = &mut state.slate {
            slate.set_committed(batch.last, all);
        }
        drop(state);
        self.committed.store(batch.last, Ordering::Release);
        self.ring();
    }

    /// The thread could not write. Rings once for the same trouble.
    pub(super) fn set_trouble(&self, trouble: &str) {
        let mut state = self.lock();
        let news = state.trouble.as_deref() != Some(trouble);
        state.trouble = Some(trouble.to_owned());
        drop(state);
        if news {
            self.ring();
        }
    }

    fn pause<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        posture: Posture,
        end: Instant,
    ) -> MutexGuard<'a, State> {
        state.posture = posture;
        // A sender that finds too much queued sets the posture back.
        while !state.stopping && state.posture == posture {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .work
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state
    }

    fn ring(&self) {
        // Fails only when the counter is full: nobody has read 2^64 rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it was held cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(state: &mut State, batch: &mut Batch) -> Supply {
    if batch.records.is_empty() {
        std::mem::swap(&mut batch.records, &mut state.records);
    } else {
        batch.records.append(&mut state.records);
    }
    batch.last = state.sent;
    state.in_hand.records = batch.records.len();
    state.in_hand.bytes += std::mem::take(&mut state.bytes);
    state.posture = Posture::Writing;
    if state.stopping {
        Supply::Ended
    } else {
        Supply::Open
    }
}
