//! Where the logs of attempts are, and what is in them.

use std::io;
use std::path::{Path, PathBuf};

use packhorse_engine::{own_log, run_log};
use packhorse_model::{TaskId, TaskSpec};
use packhorse_store::{Home, StoredRun};
use packhorse_supervisor::{LogReader, find_log};

/// What an attempt wrote, if it wrote anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLog {
    /// In the run's folder of logs.
    log: PathBuf,
    /// Where it is instead, if the task wanted that.
    own: Option<PathBuf>,
}

impl AttemptLog {
    /// That of an attempt at a task of a run. `spec` is the task's, over the run's defaults.
    pub fn of(home: &Home, run: &StoredRun, id: TaskId, spec: &TaskSpec, attempt: u32) -> Self {
        Self {
            log: run_log(&home.log_dir(run.id), id, attempt),
            own: own_log(&run.cwd, spec, attempt),
        }
    }

    pub fn at(path: PathBuf) -> Self {
        Self { log: path, own: None }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.own.as_deref().unwrap_or(&self.log)
    }

    /// Finds the file, which a later run may have given another name.
    pub fn find(&self) -> io::Result<PathBuf> {
        find_log(&self.log, self.own.as_deref())
    }

    /// Opens the file.
    pub fn open(&self) -> io::Result<LogReader> {
        LogReader::open(&self.log, self.own.as_deref())
    }
}
