use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use packhorse_core::{Policy, PoolError};
use packhorse_gpu::{Driver, Unit};
use packhorse_hands::Output;
use packhorse_intake::probe::Probe;
use packhorse_model::{Bytes, Command, CoreId, MemoryRequest, Priority, Request};
use packhorse_store::{Home, NewRun, RunLock};

use crate::Signs;

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
    /// How devices are shared.
    pub sharing: Sharing,
    /// The parameters that a task's command was made of, if it was made.
    pub parameters: Option<Parameters>,
    /// What becomes of output.
    pub output: Output,
    /// How long an attempt has between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long what happens is told only once it is written. If that takes longer,
    /// it is told all the same.
    pub store_patience: Duration,
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
    /// What the driver says of each of them; empty where it was not asked.
    pub about: Vec<About>,
    /// Main memory that can be given out.
    pub ram: Option<Bytes>,
    /// How long a task waits to count one priority more urgent.
    pub ageing: Option<Duration>,
    /// The cores that can be given out.
    pub cores: Vec<CoreId>,
    /// At most so many attempts at once.
    pub slots: Option<u32>,
    /// At most so many attempts on one device.
    pub max_per_device: Option<u32>,
    /// Which device, if several would do.
    pub policy: Policy,
}

/// What the driver says of a device, or of the devices of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The memory that programs can have: of a group, of the one that has least.
    pub memory: Bytes,
    /// The product's name.
    pub model: Arc<str>,
}

/// How much GPU memory a task asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Appetite {
    /// Nobody said, and it is not counted.
    #[default]
    Uncounted,
    /// So much.
    Given(Bytes),
    /// What was learned; if nothing was, a device of its own.
    Learned,
    /// What was learned; if nothing was, so much.
    Bounded(Bytes),
    /// A device of its own, to be measured on it.
    Measured,
}

/// A process whose memory is not held against a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Every one of a program.
    Program(String),
    /// Every one of a user.
    User(u32),
    /// This one.
    Process(u32),
}

/// How devices are shared with others, and among tasks.
#[derive(Debug, Default)]
pub struct Sharing {
    /// The driver, if there is one that knows the devices.
    pub driver: Option<Driver>,
    /// Processes that do not count.
    pub ignored: Vec<Ignored>,
    /// How running out of memory is recognised, beyond what is known anyway.
    pub signs: Signs,
    /// Where runs leave word for each other; nowhere, if they are not to.
    pub leases: Option<PathBuf>,
    /// Whether tasks share devices through MPS.
    pub mps: Option<Mps>,
}

/// How tasks share devices through MPS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mps {
    /// The part of a device's threads that each may use, in per cent; if it is
    /// not given, its share of the device.
    pub threads: Option<u8>,
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
    /// How much GPU memory it asks for.
    pub appetite: Appetite,
    /// What it is remembered by, instead of the shape of its command.
    pub signature: Option<Arc<str>>,
    /// How it is measured before it runs, if nothing is known of it.
    pub probe: Option<Measure>,
    /// How many tasks, in the order of their numbers, make a batch: those of a
    /// later one wait for it, unless they are not in its way.
    pub batch: Option<NonZeroU32>,
    /// Its place in the order.
    pub priority: Priority,
    /// How many more attempts a failure gets.
    pub retries: u32,
    /// How long an attempt may take.
    pub time_limit: Option<Duration>,
}

impl Appetite {
    /// The most that a task takes, if somebody said.
    pub(crate) fn bound(&self) -> Option<Bytes> {
        match self {
            Self::Given(bytes) | Self::Bounded(bytes) => Some(*bytes),
            Self::Uncounted | Self::Learned | Self::Measured => None,
        }
    }

    /// The most that a task asks for at first which needs `request` besides.
    pub(crate) fn at_first(&self, request: &Request) -> Request {
        Request {
            memory: match self {
                Self::Uncounted => request.memory,
                Self::Given(bytes) | Self::Bounded(bytes) => MemoryRequest::Bytes(*bytes),
                Self::Learned | Self::Measured => MemoryRequest::Whole,
            },
            ..request.clone()
        }
    }
}

impl Defaults {
    /// The most that a task with these needs asks for at first.
    pub fn first_request(&self) -> Request {
        self.appetite.at_first(&self.request)
    }
}

/// A short run that shows how much memory a task takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// By a template that the task's line is put into.
    Template(Probe),
    /// By so many epochs, for commands that are told theirs with `--epochs=N`.
    Epochs(u32),
}

impl Measure {
    /// What to run to measure a task, if that can be made of its command.
    pub(crate) fn of(&self, command: &Command) -> Option<Command> {
        match (self, command) {
            (Self::Template(probe), Command::Line(line)) => {
                Some(Command::Line(probe.command(line)))
            }
            (Self::Epochs(most), Command::Words(words)) => {
                let mut words = words.clone();
                let word = words.iter_mut().rev().find_map(|word| {
                    let number = std::str::from_utf8(word).ok()?.strip_prefix("--epochs=")?;
                    let number: u32 = number.parse().ok()?;
                    Some((word, number))
                });
                let (word, number) = word?;
                *word = format!("--epochs={}", number.min(*most)).into_bytes();
                Some(Command::Words(words))
            }
            // One that stands on our own command line has no place in a template.
            _ => None,
        }
    }
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
