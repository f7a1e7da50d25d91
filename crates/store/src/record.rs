use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use packhorse_model::{Bytes, Command, GpuRequest, Milli, Outcome, Priority};

use crate::{Peak, RunUuid, UnixMicros};

/// One fact about a run, to be written down. All are about the run that the
/// [`Writer`](crate::Writer) was started for; tasks go by their number in it.
///
/// A batch that is written twice, because nobody knows how the first time
/// ended, comes out the same.
#[derive(Clone, Debug)]
pub enum Record {
    /// The run begins. Comes before everything else of a new run.
    NewRun(Box<NewRun>),
    /// The run goes on in another process, after an interruption or because
    /// some of its tasks are to be tried again. Attempts that the earlier
    /// process never saw the end of become interrupted ones.
    RunResumed {
        /// The process that works on it now.
        pid: u32,
        /// The machine that process is on.
        host: Box<str>,
    },
    /// Tasks have arrived.
    Tasks(Vec<NewTask>),
    /// An attempt has started.
    Started(Start),
    /// An attempt has ended.
    AttemptEnded(End),
    /// A task has come to its end without an attempt of its own: skipped, or
    /// interrupted while it waited.
    TaskFinished {
        /// The task's number.
        task: u32,
        /// How it came out.
        outcome: Outcome,
    },
    /// Tasks that had an outcome wait again.
    Reopened {
        /// Their numbers.
        tasks: Box<[u32]>,
    },
    /// An attempt has taught something about commands of its shape.
    Peak(Box<Peak>),
    /// A GPU was taken out, and stays out for later runs until
    /// [`Home::restore`](crate::Home::restore).
    Drained {
        /// Its UUID, or its id where it has none.
        device: Box<str>,
        /// What is wrong with it. If it is out already, the first reason stays.
        reason: Box<str>,
        /// When.
        at: UnixMicros,
    },
    /// All input has been read: the tasks recorded are all there will be.
    InputComplete,
    /// The run is over. The last record of a process.
    RunEnded {
        /// When.
        at: UnixMicros,
        /// The exit status that the process will have.
        exit: u8,
    },
}

/// The start of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The task's number.
    pub task: u32,
    /// Which attempt of it, counted from 1; 0 is a probe.
    pub attempt: u32,
    /// When.
    pub at: UnixMicros,
    /// What it was placed on, in words for people.
    pub device: Option<Arc<str>>,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The task's number.
    pub task: u32,
    /// Which attempt of it.
    pub attempt: u32,
    /// When.
    pub at: UnixMicros,
    /// How it came out.
    pub outcome: Outcome,
    /// What there is to say beyond the outcome.
    pub message: Option<Box<str>>,
    /// The most memory it was seen to hold of any of its GPUs.
    pub peak: Option<Bytes>,
    /// What was made of it, such as why it runs again and with what.
    pub note: Option<Box<str>>,
    /// What that means for the task.
    pub verdict: Verdict,
}

/// What an attempt's end means for its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The attempt's outcome is the task's.
    Final,
    /// Another attempt follows.
    Again,
}

/// The facts a run begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Its name beyond this folder.
    pub uuid: RunUuid,
    /// When it began.
    pub started: UnixMicros,
    /// The folder it was started in.
    pub cwd: PathBuf,
    /// The words it was started with. No word holds a NUL byte, as no word of
    /// any process does.
    pub argv: Vec<OsString>,
    /// The machine it runs on.
    pub host: String,
    /// The process that works on it.
    pub pid: u32,
    /// Everything a later `resume` needs to know, as the caller writes it.
    pub settings: String,
}

/// A task to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Its number in the run.
    pub number: u32,
    /// What it executes. Words hold no NUL byte.
    pub command: Command,
    /// Its name.
    pub name: Option<Box<str>>,
    /// Where it differs from the run's settings. `None`: nowhere.
    pub overrides: Option<Box<Overrides>>,
    /// The numbers of the tasks it comes after.
    pub after: Box<[u32]>,
}

/// What a task asks for itself; `None` is whatever the run's settings say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// GPUs.
    pub gpus: Option<GpuRequest>,
    /// Cores of its own.
    pub cores: Option<u32>,
    /// Its place in the order.
    pub priority: Option<Priority>,
    /// How many more attempts a failure gets.
    pub retries: Option<u32>,
    /// How long an attempt may take.
    pub time_limit: Option<TimeLimit>,
    /// Memory of each of its GPUs.
    pub vram: Option<Vram>,
    /// How much of the machine's cores it keeps busy, in thousandths of one.
    pub cpu: Option<Milli>,
    /// Main memory of the machine.
    pub ram: Option<Bytes>,
    /// The models of GPU that will do, as they were written.
    pub model: Option<Box<str>>,
    /// What its peaks are remembered under.
    pub signature: Option<Box<str>>,
    /// The folder it runs in.
    pub folder: Option<PathBuf>,
}

/// How much memory of each of its GPUs a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vram {
    /// What was learned of commands of its shape.
    Auto,
    /// So much.
    Bytes(Bytes),
}

/// A task's own time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// It has none, even if the run has one.
    Never,
    /// This long, kept to the millisecond.
    After(Duration),
}

impl NewTask {
    /// A task with nothing but a command, as most are.
    pub fn plain(number: u32, command: Command) -> Self {
        Self {
            number,
            command,
            name: None,
            overrides: None,
            after: Box::default(),
        }
    }

    fn weight(&self) -> usize {
        let command = match &self.command {
            Command::Line(line) => line.len(),
            Command::Words(words) => words
                .iter()
                .map(|word| size_of::<Vec<u8>>() + word.len())
                .sum(),
        };
        let overrides = self.overrides.as_ref().map_or(0, |own| {
            let folder = own.folder.as_ref().map_or(0, |path| path.as_os_str().len());
            size_of::<Overrides>()
                + length(own.model.as_deref())
                + length(own.signature.as_deref())
                + folder
        });
        let name = length(self.name.as_deref());
        size_of::<Self>() + command + overrides + name + size_of_val(&*self.after)
    }
}

impl Record {
    /// About how many bytes it takes while it waits to be written.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Tasks(tasks) => tasks.iter().map(NewTask::weight).sum(),
                Self::AttemptEnded(end) => {
                    length(end.message.as_deref()) + length(end.note.as_deref())
                }
                // Its names are shared with whoever sent it.
                Self::Peak(_) => size_of::<Peak>(),
                Self::Drained { device, reason, .. } => device.len() + reason.len(),
                Self::Reopened { tasks } => size_of_val(&**tasks),
                _ => 0,
            }
    }
}

fn length(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}
