//! What can be asked of the supervisor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use packhorse_model::{Command, CoreId, OutputMode, TaskId};

/// What to start.
#[derive(Clone, Debug)]
pub struct Job {
    /// The task it is an attempt of.
    pub task: TaskId,
    /// Which attempt, from 1; 0 is a probe.
    pub attempt: u32,
    /// What to execute.
    pub command: Arc<Command>,
    /// Python modules that it imports: if it is a Python, it is forked from one that has
    /// imported them.
    pub preload: Vec<String>,
    /// The folder it runs in. `None`: ours.
    pub folder: Option<PathBuf>,
    /// Variables of its own, on top of those that all get. Of several with the
    /// same name the last one counts. A `PATH` among them is where its program is
    /// looked for.
    pub environment: Vec<(OsString, OsString)>,
    /// The cores it is pinned to. Empty: wherever we may run.
    pub cores: Vec<CoreId>,
    /// How long it may take.
    pub time_limit: Option<Duration>,
    /// How long it has between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// What becomes of its output.
    pub output: OutputMode,
    /// Where its log goes. The index of its streams is beside it with the extension
    /// `idx`, and so is, with the extension `sh`, a command line too long for an
    /// argument. Folders are made when needed.
    pub log: PathBuf,
    /// Where its output goes instead. The index and the script stay where they
    /// would be: this is a folder of the person's, who has files of such names.
    pub own_log: Option<PathBuf>,
    /// Tell [`Ending`](packhorse_model::ProcessEvent::Ending) before it is ended: the
    /// first signal waits for [`crate::Supervisor::proceed`], for at most 2 seconds, or
    /// until it is stopped in a rougher way.
    pub hold_end: bool,
}
