//! A lock that is never waited for longer than a moment.
//!
//! `flock` can wait or not wait, but has no timeout. So a thread waits for the lock, and rings
//! a bell when it has it; the caller has other things to do meanwhile.
//!
//! ```text
//!               ┌── within a moment ──▶ Acquired ◀── the thread has it, the bell rings ──┐
//!  take() ──────┤                                                                        │
//!               └── else ──▶ Awaited ────────────────────────────────────────────────────┤
//!                                                                                        ▼
//!                            Busy: one process keeps it for too long; a thread that gets it
//!                            after that releases it at once
//! ```
//!
//! Who does not come for it within a second after the bell, because it waits for a disk for
//! instance, does not keep others waiting: the thread releases it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

use crate::folder::LeaseFolder;

/// How long one process may keep the lock. It needs it for microseconds, but on a machine that
/// is very busy it may have to wait for its turn to use them.
const PATIENCE: Duration = Duration::from_secs(3);

/// After so many times its patience nobody waits any longer, whoever has the lock.
const MOST_PATIENCE: u32 = 10;

/// How long a lock is kept for somebody who was told that it is there.
const KEPT: Duration = Duration::from_secs(1);

/// How soon it is tried again to get the lock if there can be no thread that waits for it.
const AGAIN: Duration = Duration::from_millis(50);

/// A thread that waits needs hardly any memory.
const STACK: usize = 128 << 10;

/// The lock on a folder, for one process.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// Shared with the thread that waits.
    folder: Arc<OwnedFd>,
    /// The folder's device and inode numbers.
    identity: (u64, u64),
    /// What the thread rings.
    bell: Arc<OwnedFd>,
    wait: Option<LockWait>,
    /// The stack of a thread that waits.
    stack: usize,
}

/// The result of trying to get the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockResult {
    /// It is ours.
    Acquired,
    /// Somebody else holds it, and a thread waits for it.
    Awaited,
    /// Somebody else keeps it.
    Busy,
    /// The folder cannot be locked.
    Unavailable(Errno),
}

/// Somebody else has the lock.
#[derive(Debug)]
struct LockWait {
    /// With the thread that waits. `None`: there can be none at the moment.
    handover: Option<Arc<Handover>>,
    /// Who had the lock when it was last looked at.
    keeper: Option<u32>,
    /// When that is looked at again, and how often it was.
    due: Instant,
    looks: u32,
    /// Nobody waits any longer.
    is_given_up: bool,
}

/// What the thread that waits and its caller tell each other.
#[derive(Debug)]
struct Handover {
    state: Mutex<HandoverState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandoverState {
    /// The thread waits, and its caller waits for it, for a moment.
    Attended,
    /// The thread waits, and its caller does other things.
    Waiting,
    /// The thread has got it for its caller, or learned that it never will.
    Over(Result<(), Errno>),
    /// Its caller has come for that.
    Taken,
    /// The thread waits, but its caller does not any more.
    GivenUp,
    /// The thread got it too late, or its caller did not come for it, and it was released.
    Released,
}

impl Handover {
    fn state(&self) -> MutexGuard<'_, HandoverState> {
        // Whoever has it locked does nothing that could fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the lock.
    fn serve(&self, folder: &OwnedFd, bell: &OwnedFd) {
        let result = retry_flock(folder, FlockOperation::LockExclusive);
        let mut state = self.state();
        self.changed.notify_all();
        if *state == HandoverState::Attended {
            *state = HandoverState::Over(result);
            return;
        }
        *state = if *state == HandoverState::Waiting {
            HandoverState::Over(result)
        } else {
            let _ = retry_flock(folder, FlockOperation::Unlock);
            HandoverState::Released
        };
        // Fails only if the counter is full: then it is readable anyway.
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        let is_there = |state: &mut HandoverState| *state == HandoverState::Over(Ok(()));
        let waited = self.changed.wait_timeout_while(state, KEPT, is_there);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_there(&mut state) {
            let _ = retry_flock(folder, FlockOperation::Unlock);
            *state = HandoverState::Released;
        }
    }

    /// Whether the thread waits, and from now on in vain.
    fn give_up(&self) -> bool {
        let mut state = self.state();
        let waits = *state == HandoverState::Waiting;
        if waits {
            *state = HandoverState::GivenUp;
        }
        waits
    }

    /// Where the thread is. What it has got for its caller is the caller's from now on.
    fn take(&self) -> HandoverState {
        let mut state = self.state();
        let before = *state;
        if let HandoverState::Over(_) = before {
            *state = HandoverState::Taken;
            self.changed.notify_all();
        }
        before
    }
}

impl FolderLock {
    /// `bell`: is rung when a lock that was awaited is there.
    pub(crate) fn new(folder: &LeaseFolder, bell: Arc<OwnedFd>) -> Self {
        Self {
            folder: Arc::clone(&folder.fd),
            identity: folder.identity,
            bell,
            wait: None,
            stack: STACK,
        }
    }

    /// Gets the lock, if it can be had within `moment`. If not, it has to be asked for again
    /// when the bell has rung, or it is [`due`](Self::due).
    pub(crate) fn take(&mut self, moment: Duration) -> LockResult {
        let wait = self.wait.as_ref();
        if wait.is_none_or(|wait| wait.handover.is_none()) {
            match retry_flock(&self.folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {}
                result => {
                    self.wait = None;
                    return result.map_or_else(LockResult::Unavailable, |()| LockResult::Acquired);
                }
            }
        }
        match self.await_handover(moment) {
            Some(HandoverState::Over(result)) => {
                self.wait = None;
                result.map_or_else(LockResult::Unavailable, |()| LockResult::Acquired)
            }
            Some(HandoverState::Attended | HandoverState::Waiting) | None => {
                self.go_on_waiting(Instant::now())
            }
            Some(HandoverState::GivenUp) => LockResult::Busy,
            Some(HandoverState::Taken | HandoverState::Released) => {
                self.wait = None;
                self.take(moment)
            }
        }
    }

    /// Where the thread is that waits for the lock, after a moment in which it may have got
    /// it. `None`: there can be no thread.
    fn await_handover(&mut self, moment: Duration) -> Option<HandoverState> {
        let wait = self.wait.get_or_insert_with(|| LockWait {
            handover: None,
            keeper: None,
            due: Instant::now(),
            looks: 0,
            is_given_up: false,
        });
        if let Some(handover) = &wait.handover {
            return Some(handover.take());
        }
        let handover = Arc::new(Handover {
            state: Mutex::new(HandoverState::Attended),
            changed: Condvar::new(),
        });
        let (theirs, folder) = (Arc::clone(&handover), Arc::clone(&self.folder));
        let bell = Arc::clone(&self.bell);
        let thread = thread::Builder::new().name("leases-lock".to_owned());
        let thread = thread.stack_size(self.stack);
        thread.spawn(move || theirs.serve(&folder, &bell)).ok()?;
        let waits = |state: &mut HandoverState| *state == HandoverState::Attended;
        let waited = handover.changed.wait_timeout_while(handover.state(), moment, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match *state {
            HandoverState::Attended if wait.is_given_up => *state = HandoverState::GivenUp,
            HandoverState::Attended => *state = HandoverState::Waiting,
            _ => {}
        }
        drop(state);
        Some(wait.handover.insert(handover).take())
    }

    /// Waits for the lock while it goes from one process to the next, but not while one
    /// process keeps it.
    fn go_on_waiting(&mut self, now: Instant) -> LockResult {
        let Some(wait) = &mut self.wait else {
            return LockResult::Busy;
        };
        if wait.is_given_up {
            return LockResult::Busy;
        }
        if now < wait.due {
            return LockResult::Awaited;
        }
        let keeper = holder(self.identity);
        let is_kept = keeper.is_some() && keeper == wait.keeper;
        wait.keeper = keeper;
        wait.due = now + PATIENCE;
        wait.looks += 1;
        if !is_kept && wait.looks <= MOST_PATIENCE {
            return LockResult::Awaited;
        }
        let handover = wait.handover.as_ref();
        if handover.is_some_and(|handover| !handover.give_up()) {
            // It has come in this very moment.
            return self.take(Duration::ZERO);
        }
        wait.is_given_up = true;
        LockResult::Busy
    }

    /// Waits until it is worth to ask for the lock again.
    pub(crate) fn wait(&self) {
        let Some(wait) = &self.wait else {
            return;
        };
        let Some(handover) = &wait.handover else {
            let again = Timespec::try_from(AGAIN).ok();
            let _ = poll(&mut [PollFd::new(&*self.bell, PollFlags::IN)], again.as_ref());
            return;
        };
        let left = wait.due.saturating_duration_since(Instant::now());
        let waits = |state: &mut HandoverState| *state == HandoverState::Waiting;
        let changed = &handover.changed;
        let _ = changed.wait_timeout_while(handover.state(), left, waits);
    }

    /// When the lock has to be asked for again, if the bell has not rung by then.
    pub(crate) fn due(&self) -> Option<Instant> {
        let wait = self.wait.as_ref().filter(|wait| !wait.is_given_up)?;
        let Some(handover) = &wait.handover else {
            return Some(wait.due.min(Instant::now() + AGAIN));
        };
        match *handover.state() {
            HandoverState::GivenUp | HandoverState::Released => None,
            _ => Some(wait.due),
        }
    }

    /// Releases the lock.
    pub(crate) fn release(&self) {
        // Cannot fail: the descriptor is open, and unlocking does not wait.
        let _ = retry_flock(&self.folder, FlockOperation::Unlock);
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        let wait = self.wait.as_ref();
        if let Some(handover) = wait.and_then(|wait| wait.handover.as_ref()) {
            let mut state = handover.state();
            if *state == HandoverState::Over(Ok(())) {
                self.release();
            }
            *state = HandoverState::GivenUp;
            handover.changed.notify_all();
        }
    }
}

fn retry_flock(folder: &OwnedFd, operation: FlockOperation) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| flock(folder, operation))
}

/// The process that holds the lock on the folder with this device and inode, if the kernel
/// tells.
pub(crate) fn holder((device, inode): (u64, u64)) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    // The list may lack a line if others lock and unlock while it is read: try several times.
    (0..4).find_map(|_| {
        let locks = fs_err::read_to_string("/proc/locks").ok()?;
        holder_in(&locks, &place)
    })
}

fn holder_in(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        // The line of a process that waits has an arrow after its number.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(20);

    /// Two locks that have opened the folder separately, as processes do.
    fn two() -> (tempfile::TempDir, FolderLock, FolderLock) {
        let dir = tempfile::tempdir().unwrap();
        let bell = || Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let lock = || FolderLock::new(&LeaseFolder::open(dir.path()).unwrap().unwrap(), bell());
        let (one, other) = (lock(), lock());
        (dir, one, other)
    }

    #[test]
    fn a_lock_is_waited_for_while_somebody_decides() {
        let (_dir, mut one, mut other) = two();
        let both = std::sync::Barrier::new(2);
        let decide = |lock: &mut FolderLock| {
            for _ in 0..200 {
                // One of them finds it taken, or comes just after it was released.
                both.wait();
                assert_eq!(lock.take(LONG), LockResult::Acquired);
                lock.release();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| decide(&mut one));
            decide(&mut other);
        });
        assert_eq!(other.take(LONG), LockResult::Acquired);
        assert_eq!(one.take(SHORT), LockResult::Awaited, "it is the other's now");
    }

    #[test]
    fn nobody_waits_longer_than_a_moment_and_a_bell_rings_when_it_is_there() {
        let (_dir, mut one, mut other) = two();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        assert_eq!(other.take(SHORT), LockResult::Awaited);
        assert_eq!(other.take(LONG), LockResult::Awaited, "at once: this ends");
        one.release();
        poll(&mut [PollFd::new(&*other.bell, PollFlags::IN)], None).unwrap();
        assert_eq!(one.take(SHORT), LockResult::Awaited, "it is the other's now");
        assert_eq!(other.take(SHORT), LockResult::Acquired);
        other.release();
        poll(&mut [PollFd::new(&*one.bell, PollFlags::IN)], None).unwrap();
        // Whoever does not want it any more leaves it to others.
        drop(one);
        assert_eq!(other.take(LONG), LockResult::Acquired);
    }

    #[test]
    fn one_that_is_kept_is_given_up_and_had_again_when_it_is_free() {
        let (_dir, mut one, mut other) = two();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        assert_eq!(other.take(SHORT), LockResult::Awaited);
        let due = other.due().unwrap();
        assert_eq!(other.go_on_waiting(due), LockResult::Busy);
        assert_eq!(other.due(), None);
        assert_eq!(other.take(LONG), LockResult::Busy, "at once: this ends");
        one.release();
        // The thread that was too late releases it by itself.
        poll(&mut [PollFd::new(&*other.bell, PollFlags::IN)], None).unwrap();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        one.release();
        assert_eq!(other.take(LONG), LockResult::Acquired);
    }

    #[test]
    fn one_that_nobody_comes_for_is_released() {
        let (_dir, mut one, mut other) = two();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        assert_eq!(other.take(SHORT), LockResult::Awaited);
        one.release();
        let hear = |lock: &FolderLock| rustix::io::read(&lock.bell, &mut [0_u8; 8]).unwrap();
        hear(&other);
        assert_eq!(one.take(LONG), LockResult::Acquired, "a second later");
        // Whoever comes too late waits again.
        assert_eq!(other.take(SHORT), LockResult::Awaited);
        one.release();
        hear(&other);
        assert_eq!(other.take(LONG), LockResult::Acquired);
    }

    #[test]
    fn without_a_thread_it_is_waited_for_as_long() {
        let (_dir, mut one, mut other) = two();
        // More than there is.
        other.stack = 1 << 60;
        assert_eq!(one.take(LONG), LockResult::Acquired);
        assert_eq!(other.take(LONG), LockResult::Awaited, "at once: this ends");
        let due = other.due().unwrap();
        assert!(due <= Instant::now() + AGAIN);
        other.wait();
        assert_eq!(other.take(LONG), LockResult::Awaited);
        let due = other.wait.as_ref().unwrap().due;
        assert_eq!(other.go_on_waiting(due), LockResult::Busy);
        assert_eq!(other.due(), None);
        assert_eq!(other.take(LONG), LockResult::Busy);
        one.release();
        assert_eq!(other.take(LONG), LockResult::Acquired);
        other.release();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        assert_eq!(other.take(LONG), LockResult::Awaited, "with new patience");
    }

    #[test]
    fn the_kernel_tells_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LeaseFolder::open(dir.path()).unwrap().unwrap();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mut lock = FolderLock::new(&folder, bell);
        assert_eq!(holder(folder.identity), None);
        assert_eq!(lock.take(LONG), LockResult::Acquired);
        assert_eq!(holder(folder.identity), Some(std::process::id()));
    }

    #[test]
    fn those_who_wait_are_not_taken_for_those_who_hold() {
        let locks = "1: POSIX  ADVISORY  WRITE 5 00:1a:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 6 00:1a:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 8 00:1a:7 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 9 00:1a:7 0 EOF\n";
        assert_eq!(holder_in(locks, "00:1a:7"), Some(8));
        assert_eq!(holder_in(locks, "00:1b:7"), None);
    }
}
