use std::ffi::OsString;
use std::path::PathBuf;

use packhorse_model::{
    Command, EndedAttempt, NewPeak, Outcome, RunId, RunSpec, StartedAttempt, TaskId, TaskSpec,
    Timestamp,
};
use uuid::Uuid;

/// One fact to be written down. Each says which run or task it is about.
///
/// A batch that is written twice, because nobody knows how the first time
/// ended, comes out the same.
#[derive(Clone, Debug)]
pub enum Record {
    /// A run begins. Comes before everything else of a new run.
    NewRun {
        /// Which one.
        run: RunId,
        /// The facts it begins with.
        facts: Box<NewRun>,
    },
    /// A run goes on in another process, after an interruption or because some
    /// of its tasks are to be tried again. Attempts whose end the earlier
    /// process never saw become interrupted ones.
    RunResumed {
        /// Which one.
        run: RunId,
        /// The process that works on it now.
        pid: u32,
        /// The machine that process is on.
        host: Box<str>,
    },
    /// Tasks have arrived.
    Tasks(Vec<NewTask>),
    /// An attempt has started.
    Started(StartedAttempt),
    /// An attempt has ended.
    AttemptEnded(EndedAttempt),
    /// A task is settled without an attempt of its own: skipped, or interrupted
    /// while it waited.
    TaskFinished {
        /// The task.
        task: TaskId,
        /// How it came out.
        outcome: Outcome,
    },
    /// Tasks that had an outcome wait again.
    Reopened {
        /// Their run.
        run: RunId,
        /// Their numbers in it.
        tasks: Box<[u32]>,
    },
    /// An attempt has taught something about commands with its signature.
    Peak(Box<NewPeak>),
    /// A GPU was taken out, and stays out for later runs until
    /// [`Home::restore`](crate::Home::restore).
    Drained {
        /// The run that took it out.
        run: RunId,
        /// Its UUID, or its id where it has none.
        device: Box<str>,
        /// What is wrong with it. If it is out already, the first reason stays.
        reason: Box<str>,
        /// When.
        at: Timestamp,
    },
    /// All input of a run has been read: no more tasks will come.
    InputComplete {
        /// Which run.
        run: RunId,
    },
    /// A run is over. The last record about it, until it is resumed.
    RunEnded {
        /// Which one.
        run: RunId,
        /// When.
        at: Timestamp,
        /// The exit status that stands for how it came out.
        exit: u8,
    },
}

/// The facts a run begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Its name beyond this folder: see [`new_run_uuid`](crate::new_run_uuid).
    pub uuid: Uuid,
    /// When it began.
    pub started: Timestamp,
    /// The folder it was started in.
    pub cwd: PathBuf,
    /// The words it was started with. No word holds a NUL byte, as no word of
    /// any process does.
    pub argv: Vec<OsString>,
    /// The machine it runs on.
    pub host: String,
    /// The process that works on it.
    pub pid: u32,
    /// Everything a later `resume` needs to know.
    pub spec: RunSpec,
}

/// A task to be recorded, in the form in which it takes little room in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) command: Command,
    /// The JSON of the rest of its specification; `None` for a plain task.
    pub(crate) spec: Option<Box<str>>,
    pub(crate) after: Box<[u32]>,
}

impl NewTask {
    /// A task of this specification. Words of its command hold no NUL byte.
    /// `after`: the numbers of the tasks that `spec.after` names.
    pub fn new(id: TaskId, mut spec: TaskSpec, after: Box<[u32]>) -> Self {
        let command = std::mem::take(&mut spec.command);
        let json = || serde_json::to_string(&spec).expect("all keys in it are text");
        Self {
            id,
            command,
            spec: (!spec.is_plain()).then(|| json().into()),
            after,
        }
    }

    fn weight(&self) -> usize {
        size_of::<Self>()
            + self.command.weight()
            + length(self.spec.as_deref())
            + size_of_val(&*self.after)
    }
}

impl Record {
    /// The run it is about; `None` for an empty list of tasks.
    pub(crate) fn run(&self) -> Option<RunId> {
        Some(match self {
            Self::NewRun { run, .. }
            | Self::RunResumed { run, .. }
            | Self::Reopened { run, .. }
            | Self::Drained { run, .. }
            | Self::InputComplete { run }
            | Self::RunEnded { run, .. } => *run,
            Self::Tasks(tasks) => tasks.first()?.id.run,
            Self::Started(start) => start.task.run,
            Self::AttemptEnded(end) => end.task.run,
            Self::TaskFinished { task, .. } => task.run,
            Self::Peak(peak) => peak.task.run,
        })
    }

    /// About how many bytes it takes while it waits to be written.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Tasks(tasks) => tasks.iter().map(NewTask::weight).sum(),
                Self::AttemptEnded(end) => {
                    length(end.message.as_deref()) + length(end.note.as_deref())
                }
                // Its names are shared with whoever sent it.
                Self::Peak(_) => size_of::<NewPeak>(),
                Self::Drained { device, reason, .. } => device.len() + reason.len(),
                Self::Reopened { tasks, .. } => size_of_val(&**tasks),
                _ => 0,
            }
    }
}

fn length(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}
