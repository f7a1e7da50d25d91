//! What is to survive a crash.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Bytes, Command, LearnedPeak, MetricSummary, Outcome, RunId, RunSpec, TaskId, TaskSpec,
    Timestamp,
};

/// One fact to be written down. Each says which run or task it is about.
///
/// A batch that is written twice, because nobody knows how the first time
/// ended, comes out the same.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A run begins. Comes before everything else of a new run.
    NewRun {
        run: RunId,
        /// The facts it begins with.
        facts: Box<NewRun>,
    },
    /// A run goes on in another process, after an interruption or because some
    /// of its tasks are to be tried again. Attempts whose end the earlier
    /// process never saw become interrupted ones.
    RunResumed {
        run: RunId,
        /// The process that works on it now.
        pid: u32,
        /// The machine that process is on.
        host: Box<str>,
    },
    /// Tasks have arrived.
    Tasks(Vec<NewTask>),
    Started(StartedAttempt),
    /// What an attempt has printed as metrics so far. Replaces what was recorded of the
    /// same attempt before.
    Metrics(Box<AttemptMetrics>),
    AttemptEnded(EndedAttempt),
    /// A task is settled without an attempt of its own: skipped, or interrupted
    /// while it waited.
    TaskFinished {
        task: TaskId,
        /// How it came out.
        outcome: Outcome,
    },
    /// Tasks that had an outcome wait again.
    Reopened {
        run: RunId,
        tasks: Box<[u32]>,
    },
    /// An attempt has taught something about commands with its signature.
    Peak(Box<NewPeak>),
    /// A GPU was taken out, and stays out for later runs until somebody puts it back.
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
        run: RunId,
    },
    /// A run is over. The last record about it, until it is resumed.
    RunEnded {
        run: RunId,
        /// When.
        at: Timestamp,
        /// The exit status that stands for how it came out.
        exit: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedAttempt {
    pub task: TaskId,
    /// Which attempt of it, counted from 1; 0 is a probe.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// What it was placed on, in words for people.
    pub device: Option<Arc<str>>,
}

/// What an attempt has printed as metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptMetrics {
    pub task: TaskId,
    /// Which attempt of it, counted from 1; 0 is a probe.
    pub attempt: u32,
    /// The metrics by their names.
    pub metrics: BTreeMap<String, MetricSummary>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAttempt {
    pub task: TaskId,
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// How it came out.
    pub outcome: Outcome,
    /// What there is to say beyond the outcome.
    pub message: Option<Box<str>>,
    /// The most memory it was seen to hold on any one of its GPUs.
    pub peak: Option<Bytes>,
    /// What follows from it, such as why the task runs again and with what.
    pub note: Option<Box<str>>,
    /// Whether the attempt's outcome is the task's. If not, another attempt
    /// follows.
    pub is_final: bool,
}

/// What an attempt taught about commands with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPeak {
    pub task: TaskId,
    /// Which attempt of it; 0 is a probe.
    pub attempt: u32,
    /// The signature of its command.
    pub signature: Arc<str>,
    /// The model of the GPU it ran on.
    pub model: Arc<str>,
    /// What was seen.
    pub learned: LearnedPeak,
}

/// A task as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTask {
    pub id: TaskId,
    /// What it executes, and what it asks for.
    pub spec: TaskSpec,
    /// The numbers of the tasks it comes after.
    pub after: Vec<u32>,
    /// How it came out; `None` while it waits or runs.
    pub outcome: Option<Outcome>,
    /// The number of its last attempt; 0 if it has had none, or only a probe.
    pub attempts: u32,
}

/// The facts a run begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Its name beyond its state folder.
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
    pub id: TaskId,
    /// What it executes.
    pub command: Command,
    /// The JSON of the rest of its specification; `None` for a plain task.
    pub spec: Option<Box<str>>,
    /// The numbers of the tasks of its run that it comes after.
    pub after: Box<[u32]>,
}

impl NewTask {
    /// A task of this specification. Words of its command hold no NUL byte.
    /// `after`: the numbers of the tasks that `spec.after` names.
    pub fn new(id: TaskId, mut spec: TaskSpec, after: Box<[u32]>) -> Self {
        let command = std::mem::take(&mut spec.command);
        let json = || serde_json::to_string(&spec).expect("all keys in it are text");
        Self { id, command, spec: (!spec.is_plain()).then(|| json().into()), after }
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
    pub fn run(&self) -> Option<RunId> {
        Some(match self {
            Self::NewRun { run, .. }
            | Self::RunResumed { run, .. }
            | Self::Reopened { run, .. }
            | Self::Drained { run, .. }
            | Self::InputComplete { run }
            | Self::RunEnded { run, .. } => *run,
            Self::Tasks(tasks) => tasks.first()?.id.run,
            Self::Started(start) => start.task.run,
            Self::Metrics(metrics) => metrics.task.run,
            Self::AttemptEnded(end) => end.task.run,
            Self::TaskFinished { task, .. } => task.run,
            Self::Peak(peak) => peak.task.run,
        })
    }

    /// About how many bytes it takes while it waits to be written.
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Tasks(tasks) => tasks.iter().map(NewTask::weight).sum(),
                Self::AttemptEnded(end) => {
                    length(end.message.as_deref()) + length(end.note.as_deref())
                }
                Self::Metrics(metrics) => {
                    let names = metrics.metrics.keys().map(String::len);
                    let each = size_of::<(String, MetricSummary)>();
                    size_of::<AttemptMetrics>() + names.map(|length| length + each).sum::<usize>()
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
