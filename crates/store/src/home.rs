use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use packhorse_model::RunId;
use packhorse_trust::{check_link, ensure_private_folder};
use rustix::fs::{Mode, OFlags, fstat, open};

use crate::StoreError;
use crate::network::network_filesystem;

mod made_private;

pub use made_private::ReopenedHome;
pub(crate) use made_private::below;
use made_private::{HomePlace, place};

/// The folder that everything is kept in. Only its owner has access.
///
/// ```text
/// HOME/packhorse.db            runs, tasks, attempts
/// HOME/id                      tells this folder from others
/// HOME/runs/last               the last run number given out: a hint
/// HOME/runs/12/lock            locked while a process is at work on run 12
/// HOME/runs/12/logs/3.1.log    the first attempt of task 12.3
/// HOME/crash_journals/12.1794… ends of attempts of run 12 that are not committed
/// ```
#[derive(Clone, Debug)]
pub struct Home {
    path: PathBuf,
    network: Option<&'static str>,
}

impl Home {
    /// Opens the folder that the environment names: `$PACKHORSE_HOME`, else
    /// `$XDG_STATE_HOME/packhorse`, else `~/.local/state/packhorse`. Creates
    /// it if need be. Where that is a volume that cannot be made private, it is a folder below.
    pub fn locate() -> Result<Self, StoreError> {
        let HomePlace { path, is_below } = Self::path_of_environment()?;
        let links = if is_below { OFlags::NOFOLLOW } else { OFlags::empty() };
        Self::open_with(path, links)
    }

    fn path_of_environment() -> Result<HomePlace, StoreError> {
        let path = match choose(|name| std::env::var_os(name), std::env::home_dir)? {
            Chosen::Named(path) => path,
            Chosen::Found(path) => match check_link(&path) {
                Ok(()) => path,
                Err(distrust) => return Err(StoreError::FoundHome { path, distrust }),
            },
        };
        Ok(place(path))
    }

    /// Opens this folder, creating it for its owner alone (0700) if need be. One that
    /// others may look into is refused: who made it so may have had a reason.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with(path.into(), OFlags::empty())
    }

    fn open_with(path: PathBuf, links: OFlags) -> Result<Self, StoreError> {
        let path = std::path::absolute(path)?;
        let folder = open_or_create(&path, links)?;
        let stat = fstat(&folder).map_err(io::Error::from)?;
        let me = rustix::process::geteuid().as_raw();
        if stat.st_uid != me {
            return Err(StoreError::ForeignHome { path, owner: stat.st_uid, me });
        }
        let mode = stat.st_mode & 0o777;
        if mode & 0o077 != 0 {
            return Err(StoreError::OpenHome { path, mode });
        }
        let network = network_filesystem(&folder);
        Ok(Self { path, network })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database.
    pub fn db(&self) -> PathBuf {
        self.path.join("packhorse.db")
    }

    /// The folder of all runs.
    pub fn runs_dir(&self) -> PathBuf {
        self.path.join("runs")
    }

    /// The folder of what is not committed.
    pub(crate) fn crash_journals_dir(&self) -> PathBuf {
        self.path.join("crash_journals")
    }

    /// What this folder was called until version 2.
    pub(crate) fn old_crash_journals_dir(&self) -> PathBuf {
        self.path.join("slates")
    }

    /// The folder of one run.
    pub fn run_dir(&self, run: RunId) -> PathBuf {
        self.runs_dir().join(run.to_string())
    }

    /// The folder of one run's logs.
    pub fn log_dir(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("logs")
    }

    /// The network file system that the folder is on, if it is on one. Worth
    /// a warning: locks may be slow there, or not work between machines.
    pub const fn network_filesystem(&self) -> Option<&'static str> {
        self.network
    }

    /// What SQLite said, of the database here.
    pub(crate) fn sqlite_error(&self, source: rusqlite::Error) -> StoreError {
        let path = self.db();
        StoreError::Sqlite { path, source }
    }

    #[cfg(test)]
    pub(crate) fn pretending(self, network: Option<&'static str>) -> Self {
        Self { network, ..self }
    }
}

/// The path of the folder, and whether the person has named it.
enum Chosen {
    Named(PathBuf),
    Found(PathBuf),
}

/// The folder's path by the rules of [`Home::locate`].
fn choose(
    variable: impl Fn(&str) -> Option<OsString>,
    home: impl Fn() -> Option<PathBuf>,
) -> Result<Chosen, StoreError> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set("PACKHORSE_HOME") {
        return Ok(Chosen::Named(path.into()));
    }
    // The XDG specification has relative paths ignored.
    let state = set("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| home().filter(|path| path.is_absolute()).map(|path| path.join(".local/state")))
        .ok_or(StoreError::NoHome)?;
    Ok(Chosen::Found(state.join("packhorse")))
}

fn open_or_create(path: &Path, links: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | links;
    match open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => {
            ensure_private_folder(path).map_err(|error| {
                let text = format!("{error}\nhint: set PACKHORSE_HOME to a folder of your own");
                io::Error::new(error.kind(), text)
            })?;
            open(path, flags, Mode::empty())
        }
        other => other,
    }
    .map_err(|errno| named(errno, "open folder", path))
}

/// The system's error with the path it is about.
fn named(errno: rustix::io::Errno, doing: &str, path: &Path) -> io::Error {
    let text = format!("failed to {doing} `{}`: {errno}", path.display());
    io::Error::new(errno.kind(), text)
}

#[cfg(test)]
mod tests;
