use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use packhorse_model::{
    Bytes, Claim, Command, DeviceId, LeasedDevice, Outcome, OutputMode, ProcessEvent, RunId,
    StoredTask, TaskId, TaskSpec,
};

use crate::memory::LearnedPeaks;

/// What happened outside.
#[derive(Clone, Debug)]
pub enum Input {
    /// There is a run.
    AddRun(Box<NewRunInput>),
    /// Tasks have arrived, in their order. All that arrived together are in line before
    /// the first of them starts; `more` says that the rest of them follows, or the end
    /// of the input.
    Tasks {
        /// The run they belong to.
        run: RunId,
        /// Each with the numbers of the tasks that it comes after. Those have names, so none
        /// of them is a plain task that waits in the store alone.
        tasks: Vec<(TaskSpec, Vec<u32>)>,
        /// Whether more of what arrived together follows, or the end of the input.
        more: bool,
    },
    /// Something in the input was no task.
    Rejected {
        run: RunId,
        /// How many tasks were lost by it.
        tasks: u64,
        /// What to say; nothing if it has been said.
        message: Option<String>,
    },
    /// No more tasks will arrive.
    InputEnded(RunId),
    /// The answer to [`Action::Fetch`](crate::Action::Fetch): plain tasks in the order of
    /// their numbers. None at all means that they are gone.
    Fetched { run: RunId, tasks: Vec<StoredTask> },
    /// Tasks that an earlier session left, in the order of their numbers. `more` as with
    /// [`Input::Tasks`].
    Resumed {
        run: RunId,
        tasks: Vec<StoredTask>,
        /// Whether more follow.
        more: bool,
    },
    /// The answer to [`Action::LookUpPeaks`](crate::Action::LookUpPeaks).
    Peaks {
        /// The signature or the family.
        signature: Arc<str>,
        /// What was learned of it, and of the members of the family.
        peaks: LearnedPeaks,
    },
    /// The answer to [`Action::LookUpFiles`](crate::Action::LookUpFiles).
    ///
    /// For each task the hashes of what is in its files; none of one that does not count.
    Files(Vec<(TaskId, Vec<Option<u64>>)>),
    /// The answer to [`Action::LookUpOutcome`](crate::Action::LookUpOutcome).
    Outcome {
        task: TaskId,
        /// How it came out, if it is settled.
        outcome: Option<Outcome>,
    },
    /// The answer to [`Action::ReadLog`](crate::Action::ReadLog).
    Log {
        task: TaskId,
        attempt: u32,
        /// The end of what it wrote, if it wrote anything.
        tail: Option<Vec<u8>>,
        /// Whether that says that its MPS server failed it.
        mps_failed: bool,
    },
    /// The executor has something to say.
    Process(ProcessEvent),
    /// Everything up to this record is safely written, and what keeps the next from being
    /// written, if anything does.
    Committed {
        /// How many records.
        records: u64,
        /// Ends of attempts up to this record outlive a crash, if their tasks are safely
        /// written and their run is [recoverable](NewRunInput::recoverable).
        kept: u64,
        /// What is wrong.
        trouble: Option<String>,
    },
    /// How the devices were before anything was started on them. Said before there is a run,
    /// which tells who is there when it starts.
    FirstLook(Vec<DeviceView>),
    /// How a device is: the answer to [`Action::Sample`](crate::Action::Sample).
    Sampled(DeviceView),
    /// An earlier run found a device broken, and nobody has put it back. Said before there
    /// are tasks.
    LeaveOut {
        device: DeviceId,
        /// What is wrong with it.
        reason: String,
    },
    /// A device has reported an error that means it is broken.
    DeviceFailed {
        device: DeviceId,
        /// What is wrong.
        reason: String,
    },
    /// A device has reported an error that a program on it has caused.
    ProgramFault {
        device: DeviceId,
        /// The error, as the driver calls it.
        error: String,
    },
    /// What other runs on this machine hold now.
    OtherRuns(Vec<OtherRun>),
    /// Other runs cannot be seen, or told what we hold.
    OtherRunsTrouble(String),
    /// Another run decides, and takes its time: start nothing until
    /// [`Input::OurTurn`].
    AwaitTurn,
    /// What other runs hold can be acted on again.
    OurTurn,
    /// Something about MPS.
    Mps(MpsInput),
    /// A person or a service manager wants a run to stop.
    Stop {
        run: RunId,
        /// How.
        signal: StopSignal,
    },
    /// Somebody asks why a task is where it is; answered by
    /// [`Action::Reply`](crate::Action::Reply).
    AskWhy {
        task: TaskId,
        /// Whom to answer.
        reply_to: u64,
    },
    /// The time that there is ends at a known moment. Said when there is a run, and before
    /// there are tasks.
    TimeBudget(Box<TimeBudget>),
    /// Something to tell that ends nothing.
    Warning {
        /// The task it is about, if it is about one.
        task: Option<TaskId>,
        message: String,
    },
    /// The journal takes long to write the last results: what was to be told when they
    /// are written is told now, if no crash could lose it, and this with it.
    Stalled(String),
    /// What was left of the input of a run that is over has been kept, and it can be
    /// closed: the answer to [`Action::RunIdle`](crate::Action::RunIdle).
    Close {
        run: RunId,
        /// Tasks that are still to come, as far as anybody knows.
        unread: u64,
    },
    /// The last record of a run is written, or will not be: the answer to
    /// [`Action::Closed`](crate::Action::Closed).
    Stored {
        run: RunId,
        /// What could not be written, in words.
        lost: Option<String>,
    },
    /// The time has come that [`Engine::wake_at`](crate::Engine::wake_at) told.
    Wake,
}

/// A run that begins, or goes on.
#[derive(Clone, Debug)]
pub struct NewRunInput {
    pub run: RunId,
    /// A task without a command: what holds for every task that says nothing else.
    pub defaults: Arc<TaskSpec>,
    /// How many tasks make a batch.
    pub batch: Option<std::num::NonZeroU32>,
    /// What becomes of output.
    pub output: OutputMode,
    /// The folder that the run was started in.
    pub folder: PathBuf,
    /// The folder of its logs.
    pub logs: Arc<std::path::Path>,
    /// How many tasks there will be, if that is known beforehand.
    pub total: Option<u32>,
    /// How many tasks the store has already: those of earlier sessions. `None` for a new
    /// run.
    pub resumed: Option<u32>,
    /// How many of them succeeded and do not run again.
    pub succeeded_before: u64,
    /// How many of them failed and do not run again.
    pub failed_before: u64,
    /// The place in the journal of the record that makes the run known.
    pub record: u64,
    /// Whether ends of its tasks outlive a crash from when they are sent to the journal, if
    /// it knows the tasks.
    pub recoverable: bool,
}

/// How a device or group of devices was at a moment.
#[derive(Clone, Debug, Default)]
pub struct DeviceView {
    /// Its place in the pool.
    pub device: usize,
    /// When reading began, on the monotonic clock.
    pub at: Duration,
    /// One for each member of the group, in order.
    pub members: Vec<MemberView>,
    /// Tasks whose first process has ended, though their end has not been told yet.
    pub ended: Vec<TaskId>,
}

/// How one device of a group was.
#[derive(Clone, Debug, Default)]
pub struct MemberView {
    /// Memory that processes hold, and that can still be had.
    pub memory: Option<(Bytes, Bytes)>,
    /// Who holds memory of it. `None`: the driver does not tell.
    pub processes: Option<Vec<ProcessView>>,
    /// How busy it is, in per cent.
    pub utilisation: Option<u8>,
    /// What is wrong with it, if it does not work.
    pub lost: Option<String>,
}

/// A process on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessView {
    /// Its id.
    pub pid: u32,
    /// How much it holds. `None`: the driver does not tell.
    pub memory: Option<Bytes>,
    /// Whether it only draws, as the programs of a desktop do.
    pub draws: bool,
    /// Whose it is.
    pub owner: Owner,
    /// What people call it: its program, and its user. Only where
    /// [`Engine::names_processes`](crate::Engine::names_processes) says so, and in the first
    /// look.
    pub description: String,
}

/// Whose process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A task's.
    Task(TaskId),
    /// Another run's, by the process that leads it.
    OtherRun(u32),
    /// One whose memory is not to count.
    Ignored,
    /// Anybody else's.
    Stranger,
    /// Not to be found on this machine: it has just ended, or is in another container.
    Unseen,
}

/// Another run on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherRun {
    /// Its process.
    pub pid: u32,
    /// What people know it by.
    pub name: String,
    /// Whether it was killed, and only what it left running holds something.
    pub is_dead: bool,
    /// What it holds.
    pub devices: Vec<LeasedDevice>,
    /// What it waits for. Its clock is the monotonic one of [`ClockReading`](crate::ClockReading).
    pub claim: Option<Claim>,
}

/// Answers about MPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MpsInput {
    /// The daemon of a device can be used from now on, or still can.
    Ready(DeviceId),
    /// No daemon can be had for a device: it is shared without.
    Unavailable {
        device: DeviceId,
        /// Why not.
        reason: String,
    },
    /// The daemon of a device is gone: the next task starts another.
    Gone(DeviceId),
    /// The clients of an attempt that is to be ended are off their device.
    Released(TaskId),
}

/// The time that there is, as that of a job on a cluster.
#[derive(Clone, Debug, Default)]
pub struct TimeBudget {
    /// When tasks that still run are ended, on the monotonic clock.
    pub ends: Duration,
    /// How long a later session would have: a task that takes longer than that need not be
    /// left to it.
    pub whole: Duration,
    /// How long tasks took that succeeded before, each with its run.
    pub seen: Vec<(RunId, Arc<Command>, Arc<TaskSpec>, Duration)>,
}

/// A signal that asks for an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`, a service manager, the end of a Slurm allocation.
    Terminate,
    /// The terminal is gone.
    Hangup,
    /// Ctrl-\.
    Quit,
    /// The time is over that there was.
    TimeOver,
}
