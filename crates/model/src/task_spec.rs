use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::seconds;
use crate::optional::{Optional, OptionalFields, optional_fields};
use crate::{
    ByteString, Bytes, Command, GpuRequest, Milli, Priority, TimeLimit, VramRequest, byte_string,
    parse_duration, written,
};

optional_fields! {
    /// One task: a command, and what it needs.
    ///
    /// What a task leaves out is taken from the options of the run, then from the
    /// settings, then from the defaults.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[cfg_attr(
        feature = "schema",
        derive(schemars::JsonSchema),
        schemars(transform = crate::schema::with_aliases)
    )]
    pub struct TaskSpec {
        /// What to run. A string is a line for the shell; a list is a program and its
        /// arguments, run without a shell.
        pub command: Command,
        /// A name for the task, which the `after` of later tasks may refer to.
        pub name: Option<String>,
        /// The names of earlier tasks that must succeed before this one starts. If one of
        /// them fails, this one is skipped.
        pub after: Vec<String>,
        /// Environment variables, in addition to those of the run.
        pub env: BTreeMap<String, ByteString>,
        /// The folder to run in. A relative path starts from the folder of the run.
        #[serde(with = "byte_string::path::option")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<ByteString>"))]
        pub folder: Option<PathBuf>,
        /// The task's parameters. The task finds them as a JSON object in
        /// `PACKHORSE_PARAMS`.
        pub params: BTreeMap<String, Value>,
        /// A folder for the task's results, created before the task starts. The task
        /// finds its path in `PACKHORSE_RESULTS`.
        #[serde(with = "byte_string::path::option")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<ByteString>"))]
        pub results: Option<PathBuf>,
        /// The file to write the task's output to, instead of one in the run's log
        /// folder. Each further attempt has a file beside it: `train.log`,
        /// `train.2.log`.
        #[serde(with = "byte_string::path::option")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<ByteString>"))]
        pub log: Option<PathBuf>,
        /// Python modules that the task imports. The task starts as a copy of a Python
        /// that has imported them already.
        pub preload: Vec<String>,
        /// How many GPUs, or what part of one.
        pub gpus: Option<GpuRequest>,
        /// How much memory of each of its GPUs.
        pub vram: Option<VramRequest>,
        /// Only use GPUs whose name contains this. Separate several names by commas.
        #[serde(alias = "model")]
        pub gpu_model: Option<String>,
        /// The key under which the task's GPU memory is remembered, instead of the shape
        /// of its command.
        pub signature: Option<String>,
        /// How to measure the task before it runs, if nothing is known about its GPU
        /// memory.
        pub probe: Option<ProbeSpec>,
        /// How many cores the task gets for itself. It is pinned to them.
        pub cores: Option<u32>,
        /// How many cores the task keeps busy. This is counted, but the task is not
        /// pinned.
        pub cpu: Option<Milli>,
        /// How much main memory the task needs. This is counted, but not enforced.
        pub ram: Option<Bytes>,
        /// Tasks with lower numbers start first. The default is 0.
        pub priority: Option<Priority>,
        /// The group of tasks that the task belongs to; see `group_limit`.
        pub group: Option<String>,
        /// Start the task only while fewer than this many others of its group run.
        pub group_limit: Option<NonZeroU32>,
        /// How many more times to try the task if it fails.
        pub retries: Option<u32>,
        /// How long one attempt may take.
        pub timeout: Option<TimeLimit>,
        /// How long an attempt has between SIGTERM and SIGKILL.
        pub grace: Option<Grace>,
    }
}

/// How to measure a task before it runs: a command with `{}` where the task's own
/// command goes, or a number of epochs for commands that take `--epochs=N`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ProbeSpec {
    /// Run the task's own command with this many epochs.
    Epochs(u32),
    /// Run this command, with `{}` replaced by the task's own.
    Template(String),
}

/// How long an attempt has between SIGTERM and SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Grace(#[serde(serialize_with = "seconds::serialize")] pub Duration);

impl Default for Grace {
    fn default() -> Self {
        Self(Duration::from_secs(10))
    }
}

impl std::str::FromStr for Grace {
    type Err = crate::ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_duration(text).map(Self)
    }
}

written::parsed!(Grace);

impl TaskSpec {
    /// A task with nothing but a command, as most are.
    pub fn new(command: Command) -> Self {
        Self { command, ..Self::default() }
    }

    /// Whether it has nothing but a command.
    pub fn is_plain(&self) -> bool {
        self.fields_given() == usize::from(!self.command.is_empty())
    }

    /// This task with what it leaves out taken from `defaults`. Variables and
    /// parameters of both are there; its own win.
    #[must_use]
    pub fn over(mut self, defaults: &Self) -> Self {
        self.fill(defaults);
        self
    }
}

#[cfg(test)]
mod tests;
