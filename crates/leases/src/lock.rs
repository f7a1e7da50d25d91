//! A lock that is not waited for while one and the same process keeps it for long.
//!
//! `flock` can wait or not wait, but has no timeout. So a thread waits for the lock, and the
//! caller waits for the thread, with a timeout. A thread that gets the lock too late releases
//! it at once; until then the lock is known to be busy, and nobody waits again.

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

use crate::folder::LeaseFolder;

/// After so many times its patience nobody waits any longer, whoever has the lock.
const MOST_PATIENCE: u32 = 10;

/// The lock on a folder, for one process.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// Shared with the thread that waits.
    folder: Arc<OwnedFd>,
    /// The folder's device and inode numbers.
    identity: (u64, u64),
    /// The thread that waited for the lock longer than the caller did.
    late: Option<JoinHandle<()>>,
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
    pub(crate) fn new(folder: &LeaseFolder) -> Self {
        Self {
            folder: Arc::clone(&folder.fd),
            identity: folder.identity,
            late: None,
        }
    }

    /// Gets the lock. Waits while it goes from one process to the next, but not while one
    /// process keeps it for as long as this.
    pub(crate) fn take(&mut self, patience: Duration) -> LockResult {
        if self.late.as_ref().is_some_and(|late| !late.is_finished()) {
            return LockResult::Busy;
        }
        match retry_flock(&self.folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return LockResult::Acquired,
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return LockResult::Unavailable(errno),
        }
        // Without room: what is sent is received, or the sender learns that it was too late.
        let (sender, result) = mpsc::sync_channel(0);
        let folder = Arc::clone(&self.folder);
        let waiting = thread::Builder::new()
            .name("leases-lock".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                let result = retry_flock(&folder, FlockOperation::LockExclusive);
                if sender.send(result).is_err() {
                    let _ = retry_flock(&folder, FlockOperation::Unlock);
                }
            });
        let Ok(waiting) = waiting else {
            return LockResult::Busy;
        };
        let mut keeper = None;
        for _ in 0..MOST_PATIENCE {
            if let Ok(result) = result.recv_timeout(patience) {
                return result.map_or_else(LockResult::Unavailable, |()| LockResult::Acquired);
            }
            let found = holder(self.identity);
            if found.is_some() && found == keeper {
                break;
            }
            keeper = found;
        }
        self.late = Some(waiting);
        LockResult::Busy
    }

    /// Releases the lock.
    pub(crate) fn release(&self) {
        // Cannot fail: the descriptor is open, and unlocking does not wait.
        let _ = retry_flock(&self.folder, FlockOperation::Unlock);
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
    use super::*;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(20);

    /// Two locks that have opened the folder separately, as processes do.
    fn two() -> (tempfile::TempDir, FolderLock, FolderLock) {
        let dir = tempfile::tempdir().unwrap();
        let lock = || FolderLock::new(&LeaseFolder::open(dir.path()).unwrap().unwrap());
        let (one, other) = (lock(), lock());
        (dir, one, other)
    }

    #[test]
    fn a_lock_is_waited_for_while_somebody_decides() {
        let (_dir, mut one, mut other) = two();
        let decide = |lock: &mut FolderLock| {
            for _ in 0..200 {
                assert_eq!(lock.take(LONG), LockResult::Acquired);
                // Lets the other one find it taken.
                thread::yield_now();
                lock.release();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| decide(&mut one));
            decide(&mut other);
        });
        assert_eq!(other.take(LONG), LockResult::Acquired);
        assert_eq!(one.take(SHORT), LockResult::Busy, "it is the other's now");
    }

    #[test]
    fn one_that_is_kept_is_waited_for_once_and_had_again_when_it_is_free() {
        let (_dir, mut one, mut other) = two();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        assert_eq!(other.take(SHORT), LockResult::Busy);
        assert_eq!(
            other.take(LONG),
            LockResult::Busy,
            "at once: this test ends"
        );
        one.release();
        // The thread that was too late releases it by itself.
        other.late.take().unwrap().join().unwrap();
        assert_eq!(one.take(LONG), LockResult::Acquired);
        one.release();
        assert_eq!(other.take(LONG), LockResult::Acquired);
    }

    #[test]
    fn the_kernel_tells_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LeaseFolder::open(dir.path()).unwrap().unwrap();
        let mut lock = FolderLock::new(&folder);
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
