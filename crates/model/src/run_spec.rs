use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::optional::{Optional, OptionalFields, optional_fields};
use crate::{
    ByteString, Command, OutputMode, ParseValueError, SlurmSpec, TaskSpec, TimeLimit, byte_string,
    parse_duration, written,
};

/// One invocation's tasks together: what each needs that says nothing itself, what
/// they may run on, and where they come from. It is all that a later session needs
/// to go on with a run.
///
/// Members are only ever added, each with a default: an old run can be resumed by a
/// new program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
pub struct RunSpec {
    /// A task without a command: what holds for every task that says nothing else.
    pub defaults: TaskSpec,
    /// What tasks may run on.
    pub pool: PoolSpec,
    /// Where the tasks come from.
    pub source: SourceSpec,
    /// How many tasks, in the order of their numbers, make a batch: those of a later
    /// one wait for it, unless they are not in its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<NonZeroU32>,
    /// What becomes of the tasks' output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputMode>,
    /// Whether tasks have equal parts of the cores for themselves where nobody says
    /// anything of cores, and there is one for each task that fits at a time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cores_apart: bool,
    /// Whether every task is told to start as many threads as on a full machine, however
    /// few tasks there are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full_machine_caps: bool,
    /// Whether results are kept that another run came to after this one was made: a task
    /// whose folder has them does not run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keeps_results: bool,
    /// What to do with a task whose folder may be in use.
    #[serde(skip_serializing_if = "FolderInDoubt::is_usual")]
    pub folder_in_doubt: FolderInDoubt,
    /// The UUIDs of runs that were over when this one was handed to a cluster, though markers
    /// say that tests of theirs run: its jobs cannot look into the state folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended_runs: Vec<String>,
    /// Whether its tasks are calls of a program that waits for them, and take their arguments
    /// from it: once the program has ended, nothing can run them again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub calls: bool,
    /// What Slurm is asked for, if its tasks run on a Slurm cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmSpec>,
    /// The file of settings that the person named. Later sessions and jobs of the run read it
    /// instead of one that they find.
    #[serde(with = "byte_string::path::option", skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}

/// What becomes of a task whose results belong into a folder where, by its marker, a task of
/// another state folder or machine runs, if nothing tells whether that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FolderInDoubt {
    /// The task does not run.
    #[default]
    LeaveAlone,
    Take,
}

impl FolderInDoubt {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

optional_fields! {
    /// What tasks may run on, and how that is shared. What is left out is the usual.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct PoolSpec {
        /// The GPUs, as they were named.
        #[serde(deserialize_with = "written::list")]
        pub gpus: Vec<String>,
        /// These ids are handed out as they stand, without a look at the driver.
        pub as_written: bool,
        /// No GPUs, and at most so many tasks at a time.
        pub slots: Option<u32>,
        /// At most so many tasks on one GPU.
        pub max_per_gpu: Option<u32>,
        /// At most so many tasks at a time, whatever fits.
        pub at_most: Option<u32>,
        /// Which GPU a task gets when several would do.
        pub place: Option<Placing>,
        /// Processes whose GPU memory does not count: a name, `uid:1000` or a process id.
        #[serde(deserialize_with = "written::list")]
        pub ignore_process: Vec<String>,
        /// Whether to coordinate with other runs on this machine.
        pub leases: Option<bool>,
        /// Whether GPUs are shared through NVIDIA's Multi-Process Service.
        pub mps: Option<bool>,
        /// The part of a GPU's threads that a task may use under MPS, in per cent.
        pub thread_percentage: Option<u8>,
        /// Whether a task that does not say its cores gets an equal part of them for
        /// itself.
        pub equal_cores: Option<bool>,
        /// Whether tasks that run at the same time are told how many threads to start.
        pub thread_caps: Option<bool>,
        /// How long a task waits to count one priority more urgent.
        pub ageing: Option<Ageing>,
        /// How long the memory of a task of an unknown kind has to rest before others may
        /// have what it does not hold.
        pub rest: Option<TimeLimit>,
    }
}

/// How long memory has to rest if nobody says.
pub const DEFAULT_REST: Duration = Duration::from_secs(10);

impl PoolSpec {
    /// This with what it leaves out taken from `defaults`. GPUs and slots are two
    /// answers to one question: whoever gives one gets neither from there.
    #[must_use]
    pub fn over(mut self, defaults: &Self) -> Self {
        let mut defaults = defaults.clone();
        if self.gpus.is_empty() && self.slots.is_none() {
            self.as_written = false;
        } else {
            (defaults.gpus, defaults.as_written, defaults.slots) = (Vec::new(), false, None);
        }
        self.fill(&defaults);
        self
    }

    /// What is left of a number of cores that is said below this. Equal parts and a number
    /// are two answers to one question, too.
    pub fn cores_below(&self, cores: Option<u32>) -> Option<u32> {
        cores.filter(|_| self.equal_cores != Some(true))
    }
}

/// Which GPU a task gets when several would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// Where those that wait lose the least; among equals, the emptiest.
    #[default]
    Pack,
    /// The emptiest.
    Spread,
}

/// How waiting makes a task more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ageing {
    /// By one priority in so much time.
    After(Duration),
    /// Not at all.
    Off,
}

impl Default for Ageing {
    fn default() -> Self {
        Self::After(Duration::from_hours(1))
    }
}

impl FromStr for Ageing {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            _ => parse_duration(text).map(Self::After),
        }
    }
}

impl Serialize for Ageing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::After(time) => serializer.serialize_f64(time.as_secs_f64()),
        }
    }
}

written::parsed!(Ageing);

/// Where the tasks of a run come from, so that a later session can read on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SourceSpec {
    /// Nowhere that could be read again: all that was read is in the store.
    #[default]
    Nowhere,
    /// Lines of files; none if one of them was a pipe.
    Lines {
        /// What was read, one after the other.
        files: Vec<InputFile>,
        /// Commands are separated by NUL bytes.
        null: bool,
    },
    /// Task lines of files: a JSON object each.
    TaskLines {
        /// What was read, one after the other.
        files: Vec<InputFile>,
    },
    /// The combinations of parameters.
    Sweep(SweepSpec),
    /// The rows of a CSV file.
    Csv {
        /// Where rows are taken out once they have succeeded.
        consume: Option<ConsumedRows>,
    },
    /// The tests of a grid file.
    Grid(GridSpec),
    /// The repetitions of an experiment file.
    Experiments(ExperimentsSpec),
}

/// The tests of a grid file: all that is needed to make them again, whatever becomes of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridSpec {
    /// What the file is written in.
    pub language: GridLanguage,
    pub text: String,
    /// The command that was given beside it.
    pub command: Option<Command>,
    /// The tests that run: the place of the first of several in a row, and how many.
    pub places: Vec<(u32, u32)>,
}

/// What a grid file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GridLanguage {
    Yaml,
    Toml,
    Json,
    /// A Python file that assigns a literal to `config`.
    Python,
}

/// The repetitions of an experiment file: all that is needed to make them again, whatever
/// becomes of the file and of those that it imports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExperimentsSpec {
    /// The file, and then those that it imports.
    pub files: Vec<SavedFile>,
    /// What people call the first of them.
    #[serde(with = "byte_string::path")]
    pub shown: PathBuf,
    /// The names of the experiments that are wanted; all if there are none.
    pub selected: Vec<String>,
    /// What stands before the name of each experiment.
    pub prefix: Option<String>,
    /// How much of each experiment is wanted.
    pub debug: ExperimentDebug,
    /// Where a relative `path` starts from, if not from the folder that repetitions run in.
    #[serde(with = "byte_string::path::option")]
    pub base: Option<PathBuf>,
    /// The command that was given beside it.
    pub command: Option<Command>,
    /// Whether nothing is put into the command.
    pub plain_command: bool,
    /// Whether each repetition's output goes to a log in its folder.
    pub log: bool,
    /// The repetitions that run: the place of the first of several in a row, and how many.
    pub places: Vec<(u32, u32)>,
}

/// A file as it was when a run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// Where it was.
    #[serde(with = "byte_string::path")]
    pub path: PathBuf,
    pub text: String,
}

/// How much of an experiment runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentDebug {
    /// All of it.
    #[default]
    Off,
    /// The first run of each expansion, once, with one iteration.
    First,
    /// Every run once, with one iteration.
    All,
}

/// A file that tasks are read from, and how to know that it is still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Where it is.
    #[serde(with = "byte_string::path")]
    pub path: PathBuf,
    /// How long it was.
    pub length: u64,
    /// When it was last changed: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Where reading began.
    pub start: u64,
}

/// A sweep whose commands can be made again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepSpec {
    pub template: String,
    /// Each parameter's name and values.
    pub parameters: Vec<(String, Vec<String>)>,
    /// Parameters that go together.
    pub zips: Vec<Vec<String>>,
    /// The seed of the shuffled order; none is grid order.
    pub seed: Option<u64>,
    /// How many of them.
    pub limit: Option<u64>,
}

/// The rows of a CSV file that is consumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumedRows {
    /// The file.
    #[serde(with = "byte_string::path")]
    pub path: PathBuf,
    /// The row that names the columns.
    pub header: String,
    /// Every row as it stands in the file, in the order of the tasks.
    pub rows: Vec<ByteString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let spec = RunSpec {
            pool: PoolSpec {
                gpus: vec!["0+1".to_owned()],
                ageing: Some(Ageing::Off),
                place: Some(Placing::Spread),
                leases: Some(false),
                ..PoolSpec::default()
            },
            source: SourceSpec::Csv {
                consume: Some(ConsumedRows {
                    rows: vec![ByteString(vec![0xff])],
                    ..ConsumedRows::default()
                }),
            },
            batch: NonZeroU32::new(20),
            output: Some(OutputMode::File),
            ..RunSpec::default()
        };
        let read = |json: &str| serde_json::from_str::<RunSpec>(json).unwrap();
        assert_eq!(read(&serde_json::to_string(&spec).unwrap()), spec);
        assert_eq!(read("{}"), RunSpec::default());
    }

    #[test]
    fn gpus_and_slots_are_two_answers_to_one_question() {
        let gpus: PoolSpec = serde_json::from_str(r#"{"gpus": "0,1", "mps": true}"#).unwrap();
        assert_eq!(gpus.gpus, ["0,1"]);
        let slots = PoolSpec { slots: Some(2), ..PoolSpec::default() };
        let both = slots.over(&gpus);
        assert!(both.gpus.is_empty() && both.slots == Some(2) && both.mps == Some(true));
    }
}
