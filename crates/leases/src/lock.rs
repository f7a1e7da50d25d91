//! A lock with a timeout.
//!
//! `flock` can wait or not wait, but has no timeout. So a thread waits for the lock, and the
//! caller waits for the thread, with a timeout. A thread that gets the lock too late releases
//! it at once; until then the lock is known to be busy, and nobody waits again.
//!
//! ```text
//!            taken by another      thread has it
//!   Free ──────────────────▶ Waiting ─────────▶ Done ──▶ Free
//!    ▲                          │ too late
//!    └───── thread has it ── Busy
//! ```

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

use crate::folder::LeaseFolder;

/// The lock on a folder, for one process.
#[derive(Debug)]
pub(crate) struct FolderLock {
    folder: Arc<OwnedFd>,
    state: Mutex<LockState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockState {
    Free,
    /// A thread waits for the lock, and the caller for the thread.
    Waiting,
    /// The thread has stopped waiting.
    Done(Result<(), Errno>),
    /// A thread waits for the lock, but the caller no longer does.
    Busy,
}

/// The result of trying to get the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockResult {
    /// It is ours.
    Acquired,
    /// Somebody else holds it.
    Busy,
    /// The folder cannot be locked.
    Unavailable(Errno),
}

impl FolderLock {
    /// Shared with the thread that waits.
    pub(crate) fn new(folder: &LeaseFolder) -> Arc<Self> {
        Arc::new(Self {
            folder: Arc::clone(&folder.fd),
            state: Mutex::new(LockState::Free),
            changed: Condvar::new(),
        })
    }

    /// Gets the lock, waiting at most this long.
    pub(crate) fn take(self: &Arc<Self>, patience: Duration) -> LockResult {
        let mut state = self.state();
        if *state == LockState::Busy {
            return LockResult::Busy;
        }
        match self.flock(FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return LockResult::Acquired,
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return LockResult::Unavailable(errno),
        }
        let theirs = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("leases-lock".to_owned())
            .stack_size(128 << 10)
            .spawn(move || theirs.wait());
        if thread.is_err() {
            return LockResult::Busy;
        }
        *state = LockState::Waiting;
        let waited = self
            .changed
            .wait_timeout_while(state, patience, |state| *state == LockState::Waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let LockState::Done(result) = *state else {
            *state = LockState::Busy;
            return LockResult::Busy;
        };
        *state = LockState::Free;
        result.map_or_else(LockResult::Unavailable, |()| LockResult::Acquired)
    }

    /// Releases the lock.
    pub(crate) fn release(&self) {
        // Cannot fail: the descriptor is open, and unlocking does not wait.
        let _ = self.flock(FlockOperation::Unlock);
    }

    /// What the thread does.
    fn wait(&self) {
        let result = self.flock(FlockOperation::LockExclusive);
        let mut state = self.state();
        if *state == LockState::Waiting {
            *state = LockState::Done(result);
        } else {
            let _ = self.flock(FlockOperation::Unlock);
            *state = LockState::Free;
        }
        self.changed.notify_all();
    }

    fn flock(&self, operation: FlockOperation) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| flock(&self.folder, operation))
    }

    fn state(&self) -> MutexGuard<'_, LockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    use super::*;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(20);

    /// Two locks that have opened the folder separately, as processes do.
    fn two() -> (tempfile::TempDir, Arc<FolderLock>, Arc<FolderLock>) {
        let dir = tempfile::tempdir().unwrap();
        let lock = || FolderLock::new(&LeaseFolder::open(dir.path()).unwrap().unwrap());
        let (one, other) = (lock(), lock());
        (dir, one, other)
    }

    #[test]
    fn a_lock_is_waited_for_while_somebody_decides() {
        let (_dir, one, other) = two();
        let decide = |lock: &Arc<FolderLock>| {
            for _ in 0..200 {
                assert_eq!(lock.take(LONG), LockResult::Acquired);
                // Lets the other one find it taken.
                std::thread::yield_now();
                lock.release();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| decide(&one));
            decide(&other);
        });
        assert_eq!(other.take(LONG), LockResult::Acquired);
        assert_eq!(one.take(SHORT), LockResult::Busy, "it is the other's now");
    }

    #[test]
    fn one_that_is_kept_is_waited_for_once_and_had_again_when_it_is_free() {
        let (_dir, one, other) = two();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        assert_eq!(other.take(SHORT), LockResult::Busy);
        assert_eq!(
            other.take(LONG),
            LockResult::Busy,
            "at once: this test ends"
        );
        one.release();
        // The thread that was too late releases it by itself.
        let kept = |state: &mut LockState| *state == LockState::Busy;
        let free = other.changed.wait_while(other.state(), kept);
        drop(free.unwrap());
        assert_eq!(one.take(LONG), LockResult::Acquired);
        one.release();
        assert_eq!(other.take(LONG), LockResult::Acquired);
    }

    #[test]
    fn the_kernel_tells_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LeaseFolder::open(dir.path()).unwrap().unwrap();
        let lock = FolderLock::new(&folder);
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
