//! The node's state: a folder with one small file per job, and one lock.
//!
//! ```text
//! /run/packhorse          755 root
//!   lock                  600  held while something is chosen or taken back
//!   jobs/17               600  the orders of job 17, see packhorse-orders
//!   locks/0-1000          600  held by whoever starts or ends the MPS server of user 1000 on GPU 0
//!   locks/0-1000.ready    600  held by the same; jobs wait for this one
//!   queue                 600  what Slurm last said of the jobs on this node, and when
//!   asking                600  held by whoever asks it
//!   log                   600  what went wrong
//! ```
//!
//! A file is written under another name and then renamed: it is there whole, or not at all.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use packhorse_orders::{JOBS, JobOrders};
use packhorse_trust::{is_trusted, read_trusted};
use rustix::fs::{FlockOperation, OFlags, flock};

/// Locks of the MPS servers.
const LOCKS: &str = "locks";

/// The log is begun anew when it is larger.
const MOST_LOG: u64 = 1 << 18;

/// The state folder of this node.
#[derive(Clone, Debug)]
pub struct State {
    folder: PathBuf,
    boot: String,
}

/// The right to change the state, until it is dropped.
#[derive(Debug)]
pub struct StateLock(#[expect(dead_code, reason = "it is locked as long as it is open")] File);

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Somebody else could have written it.
    #[error("{} belongs to user {uid}, or others may write it\nhint: remove it; only root's own folder is used", .folder.display())]
    Foreign {
        folder: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It cannot be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// What could not be read or written.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A job's file that is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl State {
    /// The state in this folder, which is made if it is not there.
    pub fn open(folder: &Path) -> Result<Self, StateError> {
        make_folder(folder, 0o755)?;
        make_folder(&folder.join(JOBS), 0o700)?;
        make_folder(&folder.join(LOCKS), 0o700)?;
        Ok(Self { folder: folder.to_owned(), boot: boot()? })
    }

    /// Which boot of the machine this is.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// Waits for the right to change the state.
    pub fn lock(&self) -> Result<StateLock, StateError> {
        Self::lock_file(&self.folder.join("lock")).map(StateLock)
    }

    /// The right to start or end an MPS server, and the lock that jobs wait for. `None`:
    /// somebody else has it.
    pub fn lock_server(&self, name: &str) -> Result<Option<(File, File)>, StateError> {
        let path = self.folder.join(LOCKS).join(name);
        let file = open(&path).map_err(|source| io_error(&path, source))?;
        match rustix::io::retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(io_error(&path, error.into())),
        }
        // Waits at most for a job that has just found it free.
        let ready = Self::lock_file(&self.ready_lock(name))?;
        Ok(Some((file, ready)))
    }

    /// The file that is locked while a server starts.
    pub fn ready_lock(&self, name: &str) -> PathBuf {
        self.folder.join(LOCKS).join(format!("{name}.ready"))
    }

    fn lock_file(path: &Path) -> Result<File, StateError> {
        let file = open(path).map_err(|source| io_error(path, source))?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))
            .map_err(|error| io_error(path, error.into()))?;
        Ok(file)
    }

    /// The jobs of this boot, in the order of their numbers, and the files that are of no
    /// use: damaged, or somebody else's. Files of an earlier boot are removed if the state is
    /// locked.
    pub fn jobs(
        &self,
        locked: Option<&StateLock>,
    ) -> Result<(Vec<JobOrders>, Vec<Damaged>), StateError> {
        let folder = self.folder.join(JOBS);
        let (mut jobs, mut damaged) = (Vec::new(), Vec::new());
        let entries = fs_err::read_dir(&folder).map_err(|source| io_error(&folder, source))?;
        for entry in entries {
            let entry = entry.map_err(|source| io_error(&folder, source))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            match self.read_job(&name) {
                Ok(Some(job)) => jobs.push(job),
                // Removed by an epilog, since the state is not locked.
                Ok(None) if locked.is_none() => {}
                Ok(None) => self.remove_job_file(&name),
                Err(why) => damaged.push(Damaged { name, why }),
            }
        }
        jobs.sort_unstable_by_key(|job| job.job);
        Ok((jobs, damaged))
    }

    /// Removes a file that is of no use.
    pub fn remove_damaged(&self, _locked: &StateLock, damaged: &Damaged) {
        self.remove_job_file(&damaged.name);
    }

    /// One job, if it is there and of this boot.
    pub fn job(&self, job: u32) -> Option<JobOrders> {
        self.read_job(&job.to_string()).ok().flatten()
    }

    fn read_job(&self, name: &str) -> Result<Option<JobOrders>, String> {
        if name.starts_with('.') {
            // What was being written when its writer was killed.
            return Ok(None);
        }
        let text = match read_trusted(&self.folder.join(JOBS).join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| error.to_string())?,
        };
        let job: JobOrders = text.parse().map_err(|error| format!("{error}"))?;
        if name != job.job.to_string() {
            return Err(format!("it is job {}'s", job.job));
        }
        Ok((job.boot == self.boot).then_some(job))
    }

    fn remove_job_file(&self, name: &str) {
        let path = self.folder.join(JOBS).join(name);
        // One that cannot be removed is not read either.
        let _ = fs_err::remove_file(&path).or_else(|_| fs_err::remove_dir_all(&path));
    }

    /// Writes a job's orders.
    pub fn write_job(&self, _locked: &StateLock, orders: &JobOrders) -> Result<(), StateError> {
        let folder = self.folder.join(JOBS);
        let (path, new) =
            (folder.join(orders.job.to_string()), folder.join(format!(".{}", orders.job)));
        let written = open_new(&new)
            .and_then(|mut file| file.write_all(orders.to_string().as_bytes()))
            .and_then(|()| fs_err::rename(&new, &path));
        written.map_err(|source| {
            let _ = fs_err::remove_file(&new);
            io_error(&path, source)
        })
    }

    /// Takes a job's orders back. Whether there were any.
    pub fn remove_job(&self, _locked: &StateLock, job: u32) -> bool {
        let path = self.folder.join(JOBS).join(job.to_string());
        fs_err::remove_file(path).is_ok()
    }

    /// Waits for the right to ask Slurm.
    pub fn lock_question(&self) -> Result<File, StateError> {
        Self::lock_file(&self.folder.join("asking"))
    }

    /// What Slurm last said, as it was kept.
    pub fn kept_answer(&self) -> Option<String> {
        read_trusted(&self.folder.join("queue")).ok()
    }

    /// Keeps what Slurm says.
    pub fn keep_answer(&self, text: &str) {
        let (path, new) = (self.folder.join("queue"), self.folder.join(".queue"));
        let written = open_new(&new)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs_err::rename(&new, &path));
        // If it cannot be kept, Slurm is asked once more.
        let _ = written.or_else(|_| fs_err::remove_file(&new));
    }

    /// Writes down what went wrong, for `packhorse node status`.
    pub fn log(&self, now: u64, text: &str) {
        let path = self.folder.join("log");
        let is_large = fs_err::metadata(&path).is_ok_and(|found| found.len() > MOST_LOG);
        let line = format!("{now} {}\n", text.replace('\n', "; "));
        let mut options = OpenOptions::new();
        options.create(true).mode(0o600).custom_flags(NOFOLLOW);
        if is_large {
            options.write(true).truncate(true);
        } else {
            options.append(true);
        }
        // On a full disk there is nobody left to tell but standard error.
        let _ = options.open(&path).and_then(|mut file| file.write_all(line.as_bytes()));
    }

    /// The last so many lines of the log.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let text = fs_err::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(count);
        lines[from..].iter().map(ToString::to_string).collect()
    }
}

/// Neither a link nor a pipe is waited for or followed.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(NOFOLLOW)
        .open(path)
}

fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(NOFOLLOW)
        .open(path)
}

/// Makes a folder, or checks that nobody else could have put something into it. Folders above
/// it that have to be made as well are readable for everybody, whatever the umask is.
pub fn make_folder(folder: &Path, mode: u32) -> Result<(), StateError> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = folder.parent().ok_or_else(|| io_error(folder, error))?;
            make_folder(above, 0o755)?;
            return make_folder(folder, mode);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.map_err(|source| io_error(folder, source))?,
    }
    let found = fs_err::symlink_metadata(folder).map_err(|source| io_error(folder, source))?;
    if !found.is_dir() || !is_trusted(&found) {
        return Err(StateError::Foreign { folder: folder.to_owned(), uid: found.uid() });
    }
    if found.mode() & 0o777 != mode {
        // Whatever umask we were started with.
        let mode = std::fs::Permissions::from_mode(mode);
        fs_err::set_permissions(folder, mode).map_err(|source| io_error(folder, source))?;
    }
    Ok(())
}

fn io_error(path: &Path, source: io::Error) -> StateError {
    StateError::Io { path: path.to_owned(), source }
}

fn boot() -> Result<String, StateError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs_err::read_to_string(path).map_err(|source| io_error(path, source))?;
    Ok(text.trim().to_owned())
}

/// Seconds since the boot. It cannot be set, and goes on while the machine sleeps.
pub fn now() -> u64 {
    now_ms() / 1000
}

/// The same in milliseconds.
pub fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, rest) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1000 + rest.unwrap_or(0) / 1_000_000
}
