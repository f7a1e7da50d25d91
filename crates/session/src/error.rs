use std::io;

use packhorse_core::PoolError;
use packhorse_engine::OomSignsError;
use packhorse_gpu::{GpuError, SelectError};
use packhorse_intake::sweep::SweepError;
use packhorse_intake::{InputProblem as _, SpecProblem};

use crate::settings::SettingOrigin;

/// What keeps a run from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing would limit how many tasks run at once.
    #[error(
        "tasks that need no GPU need another limit\n\
         hint: say how many run at a time with --slots N"
    )]
    NoLimit,
    /// An equal part of the cores for a number of tasks that nobody knows.
    #[error(
        "`--cores auto` gives each task an equal part of the cores, and with this --vram it is \
         not known how many run at a time\n\
         hint: say how many cores each task gets with --cores N, or how much memory with --vram SIZE"
    )]
    UnknownCorePart,
    /// GPUs where none are used.
    #[error(
        "-g asks for GPUs, and --slots uses none\n\
         hint: leave out one of the two; `packhorse config` shows what is set elsewhere"
    )]
    GpusInSlots,
    /// Tasks whose arguments went with the program that called them.
    #[error(
        "run {0} belongs to a `packhorse.Executor`, and its calls have ended with the program that \
         made them: they cannot be run again\n\
         hint: start the program again; with `Executor(retries=1)` a call that fails runs once more"
    )]
    CallsEnded(packhorse_model::RunId),
    /// The process that the run was to end with has ended.
    #[error("process {0}, which the run is to end with, has ended already: nothing was started")]
    ProcessGone(i32),
    /// GPU memory without a GPU.
    #[error(
        "--vram is for tasks on GPUs, and -g 0 says that they use none\n\
         hint: leave out one of the two"
    )]
    VramWithoutGpu,
    /// An option of MPS without it.
    #[error("--thread-percentage has no effect without MPS\nhint: add --mps, or leave it out")]
    ThreadsWithoutMps,
    /// Nobody knows how much memory there is.
    #[error(
        "--vram needs to know the GPUs' memory, and there is no driver to ask\n\
         hint: -g 0.5 gives each task a part of a GPU without looking"
    )]
    NoMemoryToAsk,
    /// Nobody knows how much memory one GPU has.
    #[error(
        "the driver does not tell the memory of GPU {0}\n\
         hint: leave it out with --gpus, or use -g instead of --vram"
    )]
    UnknownMemory(String),
    /// No GPU is called so.
    #[error("no GPU here is called `{names}`\nhint: there {here}")]
    UnknownModel {
        /// The names that were given.
        names: String,
        /// What there is.
        here: String,
    },
    /// A process to be ignored that cannot be.
    #[error("ignore_process is wrong: {0}")]
    IgnoredProcess(String),
    /// A value that holds for all tasks makes no sense: which one, and why.
    #[error("{0}: {1}\nhint: {hint}", hint = .1.hint())]
    Value(&'static str, SpecProblem),
    /// No task could ever run.
    #[error("a task could never run: {reason}{advice}")]
    Impossible {
        /// Why not.
        reason: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// A message that can be printed as it is, colours included.
    #[error("{0}")]
    Rendered(String),
    /// There is no such run or task.
    #[error("{0}")]
    NotFound(String),
    /// The run's settings are damaged.
    #[error("the run's settings cannot be read")]
    RunSettings(#[source] packhorse_store::StoreError),
    /// What was set somewhere makes no sense.
    #[error("{origin}{}: {message}", match origin {
        SettingOrigin::Variable(_) => " is wrong",
        SettingOrigin::File(_) => "",
    })]
    Setting {
        /// Where.
        origin: SettingOrigin,
        /// What is wrong with it.
        message: String,
    },
    /// A sweep has more combinations than a run can have tasks.
    #[error(
        "{0} combinations are more than a run can have\nhint: take some of them with --n-samples N"
    )]
    TooManyCombinations(u128),
    /// The devices make no sense.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The driver, or what it says.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The GPUs that were named.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The person's own signs of running out of memory.
    #[error(transparent)]
    OomSigns(#[from] OomSignsError),
    /// The sweep.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] packhorse_store::StoreError),
    /// A file cannot be used.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The operating system refused something that nothing works without.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> SessionError {
    move |error| SessionError::System { doing, source: error.into() }
}
