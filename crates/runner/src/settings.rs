use std::time::Duration;

use packhorse_core::{Policy, PoolError};
use packhorse_gpu::Unit;
use packhorse_hands::Output;
use packhorse_model::{CoreId, Priority, Request};
use packhorse_store::{Home, NewRun, RunLock};

/// Everything a run needs to know before it starts.
#[derive(Debug)]
pub struct Settings {
    /// Where its state is kept.
    pub home: Home,
    /// The right to work on the run, and its number.
    pub lock: RunLock,
    /// How it begins.
    pub beginning: Beginning,
    /// Where it runs.
    pub places: Places,
    /// What a task needs that says nothing itself.
    pub defaults: Defaults,
    /// The parameters that a task's command was made of, if it was made.
    pub parameters: Option<Parameters>,
    /// What becomes of output.
    pub output: Output,
    /// How long an attempt has between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// Tells the parameters of a task by its number, in the form that the task gets
/// them in `PACKHORSE_PARAMS`.
pub struct Parameters(pub Box<dyn Fn(u32) -> String>);

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parameters")
    }
}

/// Where tasks may run.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The devices to use, in order.
    pub devices: Vec<Unit>,
    /// The cores that can be given out.
    pub cores: Vec<CoreId>,
    /// At most so many attempts at once.
    pub slots: Option<u32>,
    /// At most so many attempts on one device.
    pub max_per_device: Option<u32>,
    /// Which device, if several would do.
    pub policy: Policy,
}

/// How a run begins.
#[derive(Debug)]
pub enum Beginning {
    /// It is a new one.
    New(Box<NewRun>),
    /// It goes on: tasks that are not settled are in the store already.
    Again {
        /// The settled tasks that are to run once more.
        reopened: Vec<u32>,
        /// How many tasks the store has.
        tasks: u32,
    },
}

/// What holds for every task that says nothing else.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// What it needs.
    pub request: Request,
    /// Its place in the order.
    pub priority: Priority,
    /// How many more attempts a failure gets.
    pub retries: u32,
    /// How long an attempt may take.
    pub time_limit: Option<Duration>,
}

/// What keeps a run from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The devices make no sense.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] packhorse_store::Error),
    /// The operating system refused something that nothing works without.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}
