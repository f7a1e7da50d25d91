//! A lock that is not waited for longer than it is worth.
//!
//! `flock` can wait or not wait, but not for a while. So a thread waits, and
//! whoever wants the lock waits for the thread, with a timeout. A thread that
//! is too late gives the lock back at once; until then the lock is known to be
//! kept, and nobody waits again.
//!
//! ```text
//!            taken by another      thread has it
//!   Free ──────────────────▶ Waiting ─────────▶ Ours ──▶ Free
//!    ▲                          │ too late
//!    └───── thread has it ── Kept
//! ```

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

/// The lock on a folder, for one process.
#[derive(Debug)]
pub(crate) struct Lock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: Arc<OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// A thread waits for it, and somebody for the thread.
    Waiting,
    /// The thread is done waiting.
    Ours(Result<(), Errno>),
    /// A thread waits for it, and nobody else does any more.
    Kept,
}

/// How an attempt to get the lock went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is ours.
    Yes,
    /// Somebody keeps it.
    Kept,
    /// There can be no lock here.
    Never(Errno),
}

impl Lock {
    pub(crate) fn new(folder: Arc<OwnedFd>) -> Self {
        Self {
            shared: Arc::new(Shared {
                folder,
                state: Mutex::new(State::Free),
                changed: Condvar::new(),
            }),
        }
    }

    /// Gets the lock, waiting at most this long for it.
    pub(crate) fn take(&self, patience: Duration) -> Taken {
        let shared = &self.shared;
        let mut state = shared.state();
        if *state == State::Kept {
            return Taken::Kept;
        }
        match shared.flock(FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Taken::Yes,
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Taken::Never(errno),
        }
        let theirs = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("leases-lock".to_owned())
            .stack_size(128 << 10)
            .spawn(move || theirs.wait());
        if thread.is_err() {
            return Taken::Kept;
        }
        *state = State::Waiting;
        let waited = shared
            .changed
            .wait_timeout_while(state, patience, |state| *state == State::Waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = match *state {
            State::Ours(Ok(())) => Taken::Yes,
            State::Ours(Err(errno)) => Taken::Never(errno),
            _ => Taken::Kept,
        };
        *state = match taken {
            Taken::Kept => State::Kept,
            _ => State::Free,
        };
        taken
    }

    /// Lets others have it.
    pub(crate) fn release(&self) {
        // Cannot fail: the descriptor is open, and nothing is waited for.
        let _ = self.shared.flock(FlockOperation::Unlock);
    }
}

impl Shared {
    /// What the thread does.
    fn wait(&self) {
        let result = self.flock(FlockOperation::LockExclusive);
        let mut state = self.state();
        if *state == State::Waiting {
            *state = State::Ours(result);
        } else {
            let _ = self.flock(FlockOperation::Unlock);
            *state = State::Free;
        }
        self.changed.notify_all();
    }

    fn flock(&self, operation: FlockOperation) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| flock(&self.folder, operation))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process that holds the lock on the folder of this device and inode, as
/// far as the kernel tells.
pub(crate) fn holder((device, inode): (u64, u64)) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    // The kernel's list may lack a line if others lock and unlock while it is
    // read: once is not enough.
    (0..4).find_map(|_| {
        let locks = fs_err::read_to_string("/proc/locks").ok()?;
        holder_in(&locks, &place)
    })
}

fn holder_in(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        // Those who wait have an arrow behind the number.
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
    use crate::folder::Folder;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(20);

    /// Two that have opened the folder each for itself, as processes do.
    fn two() -> (tempfile::TempDir, Lock, Lock) {
        let dir = tempfile::tempdir().unwrap();
        let lock = || Lock::new(Folder::open(dir.path()).unwrap().unwrap().fd());
        let (one, other) = (lock(), lock());
        (dir, one, other)
    }

    #[test]
    fn a_lock_is_waited_for_while_somebody_decides() {
        let (_dir, one, other) = two();
        let decide = |lock: &Lock| {
            for _ in 0..200 {
                assert_eq!(lock.take(LONG), Taken::Yes);
                // Lets the other one find it taken.
                std::thread::yield_now();
                lock.release();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| decide(&one));
            decide(&other);
        });
        assert_eq!(other.take(LONG), Taken::Yes);
        assert_eq!(one.take(SHORT), Taken::Kept, "it is the other's now");
    }

    #[test]
    fn one_that_is_kept_is_waited_for_once_and_had_again_when_it_is_free() {
        let (_dir, one, other) = two();
        assert_eq!(one.take(LONG), Taken::Yes);
        assert_eq!(other.take(SHORT), Taken::Kept);
        assert_eq!(other.take(LONG), Taken::Kept, "at once: this test ends");
        one.release();
        // The thread that was too late gives it back by itself.
        let kept = |state: &mut State| *state == State::Kept;
        let free = other.shared.changed.wait_while(other.shared.state(), kept);
        drop(free.unwrap());
        assert_eq!(one.take(LONG), Taken::Yes);
        one.release();
        assert_eq!(other.take(LONG), Taken::Yes);
    }

    #[test]
    fn the_kernel_tells_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap().unwrap();
        let lock = Lock::new(folder.fd());
        assert_eq!(holder(folder.identity()), None);
        assert_eq!(lock.take(LONG), Taken::Yes);
        assert_eq!(holder(folder.identity()), Some(std::process::id()));
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
