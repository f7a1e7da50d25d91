use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use fs_err::File;
use packhorse_model::RunId;
use packhorse_proc::lock_error;
use packhorse_trust::open_private;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::{Home, StoreError};

/// How long a lock may outlive its owner.
const LONGEST_REMNANT: Duration = Duration::from_secs(2);
/// How often it is tried meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The right to work on a run. The kernel takes it back when the process ends,
/// however it ends. A child that was forked shares it until it executes its
/// program, so the lock can outlive its owner for a moment: whoever finds it taken
/// waits for that if the owner, whose process id is in the file, is dead.
#[derive(Debug)]
pub struct RunLock {
    run: RunId,
    _file: File,
}

impl RunLock {
    /// Writes down who has it.
    fn new(run: RunId, mut file: File) -> Result<Self, StoreError> {
        // To empty a file that is new costs as much as to write it.
        if file.metadata()?.len() > 0 {
            file.set_len(0)?;
        }
        file.write_all(owner(rustix::process::getpid()).as_bytes())?;
        Ok(Self { run, _file: file })
    }

    pub const fn run(&self) -> RunId {
        self.run
    }
}

impl Home {
    /// Takes a run that no process is at work on, to go on with it. What its last
    /// process left uncommitted is in the database then.
    pub fn lock_run(&self, run: RunId) -> Result<RunLock, StoreError> {
        let file = self.lock_file(run, true)?;
        // Somebody who only asks `is_running` holds the lock too, shared and
        // for microseconds. If it can be shared, nobody is at work: try again.
        for _ in 0..10_000 {
            if try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
                let lock = RunLock::new(run, file)?;
                // Before anybody asks what is left of it: what its last process
                // had not committed.
                crate::writer::recover(self, Some(run))?;
                crate::schema::convert_late_tasks(self, run)?;
                return Ok(lock);
            }
            if is_held(&file)? {
                break;
            }
            flock(&file, FlockOperation::Unlock).map_err(|errno| failed(&file, errno))?;
            std::thread::yield_now();
        }
        Err(StoreError::StillRunning { run })
    }

    /// Whether a process is at work on the run.
    pub fn is_running(&self, run: RunId) -> Result<bool, StoreError> {
        match self.lock_file(run, false) {
            Ok(file) => is_held(&file),
            Err(StoreError::NoSuchRun { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Waits until no process is at work on the run.
    pub fn wait_until_over(&self, run: RunId) -> Result<(), StoreError> {
        let file = self.lock_file(run, false)?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockShared))
            .map_err(|errno| failed(&file, errno))?;
        Ok(())
    }

    /// Locks the run whose folder was just made by this process.
    pub(crate) fn lock_new_run(&self, run: RunId) -> Result<RunLock, StoreError> {
        let file = self.lock_file(run, true)?;
        // Waits at most for somebody who asks `is_running` of a new folder.
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(&file, errno))?;
        RunLock::new(run, file)
    }

    fn lock_file(&self, run: RunId, create: bool) -> Result<File, StoreError> {
        // Over NFS an exclusive lock needs a file that is open for writing.
        let path = self.run_dir(run).join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false);
        let file = open_private(&mut options, &path).map(|file| File::from_parts(file, path));
        file.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => StoreError::NoSuchRun { run },
            _ => error.into(),
        })
    }
}

/// What the file says of a process in this container on this machine: process ids mean
/// something in their own namespace alone, and several containers may have one host name.
fn owner(pid: Pid) -> String {
    let host = rustix::system::uname();
    let namespace = fs_err::read_link("/proc/self/ns/pid").unwrap_or_default();
    let (host, namespace) = (host.nodename().to_string_lossy(), namespace.display());
    format!("{} {host} {namespace}", pid.as_raw_nonzero())
}

/// Whether the lock is held by a process at work. If not, it is shared now.
fn is_held(file: &File) -> Result<bool, StoreError> {
    let since = Instant::now();
    while !try_lock(file, FlockOperation::NonBlockingLockShared)? {
        if since.elapsed() > LONGEST_REMNANT || !has_dead_owner(file) {
            return Ok(true);
        }
        #[expect(clippy::disallowed_methods, reason = "flock(2) can wait for ever or not at all")]
        std::thread::sleep(RETRY_INTERVAL);
    }
    Ok(false)
}

/// Whether the process that took the lock was one of this machine, and is gone.
fn has_dead_owner(file: &File) -> bool {
    let mut text = [0; 512];
    let length = file.file().read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..length]);
    let pid = text.split(' ').next().and_then(|pid| pid.parse().ok());
    pid.and_then(Pid::from_raw).is_some_and(|pid| {
        text == owner(pid) && rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
    })
}

fn try_lock(file: &File, operation: FlockOperation) -> Result<bool, StoreError> {
    match rustix::io::retry_on_intr(|| flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(failed(file, errno)),
    }
}

fn failed(file: &File, errno: Errno) -> StoreError {
    lock_error(file.path(), errno).into()
}
