use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use packhorse_model::{
    Bytes, Command, DeviceId, Event, OutputMode, Placement, Record, RunId, RunSummary, StopMode,
    TaskId, TaskSpec,
};

/// What is to be done. Actions are carried out in their order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Tell the observers.
    Tell(Event),
    /// Write it down. Records are numbered from 1 in this order.
    Record(Record),
    Start(Box<StartAttempt>),
    /// End the running attempt of a task.
    Stop {
        task: TaskId,
        /// How.
        mode: StopMode,
    },
    /// The first signal to an attempt that waits to be ended may be sent.
    Proceed(TaskId),
    /// Give up on an attempt that outlives SIGKILL.
    Abandon(TaskId),
    /// Take a sample of every device.
    Sample,
    /// Read plain tasks back from the store.
    Fetch {
        run: RunId,
        /// Those with numbers above this.
        after: u32,
        /// At most so many.
        limit: u32,
    },
    /// Look up what is in files that a task's command names.
    LookUpFiles {
        task: TaskId,
        /// The files, which may not be there.
        files: Vec<PathBuf>,
    },
    /// Look up what was learned of commands with this signature, or of this family.
    LookUpPeaks(Arc<str>),
    /// Look up how a task of an earlier session came out.
    LookUpOutcome(TaskId),
    /// Read the end of what an attempt wrote.
    ReadLog(LogTail),
    /// Look what other runs hold.
    RefreshOtherRuns,
    /// Something about MPS.
    Mps(MpsAction),
    /// Answer a question.
    Reply {
        /// Whom.
        to: u64,
        text: String,
    },
    /// Nothing of a run is alive, and nothing more of it will start: keep what is left of
    /// its input, then answer with [`Input::Close`](crate::Input::Close).
    RunIdle {
        run: RunId,
        /// Whether what is left of its input is to be kept: it was stopped, but not in a
        /// hurry.
        keep_input: bool,
    },
    /// A run is over but for its last record: when that is safe, answer with
    /// [`Input::Stored`](crate::Input::Stored).
    Closed(RunId),
    /// A run is over, and that was told.
    RunOver(Box<RunSummary>),
}

#[derive(Clone, Debug)]
pub struct StartAttempt {
    pub task: TaskId,
    /// Which attempt, from 1; 0 is a probe.
    pub attempt: u32,
    /// What to execute: the task's command, or its probe.
    pub command: Arc<Command>,
    /// All else that is known of the task. Its `command` means nothing here.
    pub spec: Arc<TaskSpec>,
    /// What it is given.
    pub placement: Placement,
    /// How long it may take.
    pub time_limit: Option<Duration>,
    /// What becomes of its output.
    pub output: OutputMode,
    /// Where its log is: in the run's folder of logs.
    pub log: PathBuf,
    /// Where its output is written instead, if the task wants that.
    pub own_log: Option<PathBuf>,
    /// How it is told to use MPS, if it is to.
    pub mps: Option<MpsShare>,
    /// How many tasks like it fit at a time. `None`: as many as of those that ask for
    /// nothing but what the run says.
    pub at_a_time: Option<u64>,
}

/// What an attempt is told of its MPS daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpsShare {
    /// The device whose daemon it uses.
    pub device: DeviceId,
    /// The part of the device's threads it may use, in per cent.
    pub threads: Option<u8>,
    /// The memory it may take; 0 is no limit.
    pub memory: Bytes,
}

/// Whose log is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTail {
    pub task: TaskId,
    pub attempt: u32,
    /// Where the log is.
    pub path: PathBuf,
}

/// What is to be done about MPS. None of it is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MpsAction {
    /// Start the daemon of a device, or find the one that runs.
    Start(DeviceId),
    /// Find out whether the daemon of a device still runs.
    Check(DeviceId),
    /// Take the clients of an attempt off their device before it is ended.
    Release {
        task: TaskId,
        /// Its first process.
        leader: u32,
    },
}
