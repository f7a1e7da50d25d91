use fs_err::File;
use fs_err::OpenOptions;
use packhorse_model::RunId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Error, Home};

/// The right to work on a run. The kernel takes it back when the process ends,
/// however it ends, and children do not inherit it.
#[derive(Debug)]
pub struct RunLock {
    run: RunId,
    _file: File,
}

impl RunLock {
    /// The run it is for.
    pub const fn run(&self) -> RunId {
        self.run
    }
}

impl Home {
    /// Takes a run that no process is at work on, to go on with it.
    pub fn lock_run(&self, run: RunId) -> Result<RunLock, Error> {
        let file = self.lock_file(run, true)?;
        // Somebody who only asks `is_running` holds the lock too, shared and
        // for microseconds. If it can be shared, nobody is at work: try again.
        for _ in 0..10_000 {
            if try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
                return Ok(RunLock { run, _file: file });
            }
            if !try_lock(&file, FlockOperation::NonBlockingLockShared)? {
                break;
            }
            flock(&file, FlockOperation::Unlock).map_err(std::io::Error::from)?;
            std::thread::yield_now();
        }
        Err(Error::StillRunning { run })
    }

    /// Whether a process is at work on the run.
    pub fn is_running(&self, run: RunId) -> Result<bool, Error> {
        match self.lock_file(run, false) {
            Ok(file) => Ok(!try_lock(&file, FlockOperation::NonBlockingLockShared)?),
            Err(Error::NoSuchRun { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Locks the run whose folder was just made by this process.
    pub(crate) fn lock_new_run(&self, run: RunId) -> Result<RunLock, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.run_dir(run).join("lock"))?;
        // Waits at most for somebody who asks `is_running` of a new folder.
        flock(&file, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
        Ok(RunLock { run, _file: file })
    }

    fn lock_file(&self, run: RunId, create: bool) -> Result<File, Error> {
        // Over NFS an exclusive lock needs a file that is open for writing.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(self.run_dir(run).join("lock"));
        match file {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::NoSuchRun { run })
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn try_lock(file: &File, operation: FlockOperation) -> Result<bool, Error> {
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
    }
}
