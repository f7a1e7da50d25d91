use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    ByteString, Bytes, Command, GpuRequest, Milli, Priority, TimeLimit, VramRequest, byte_string,
    parse_duration, written,
};

/// One thing to run: the one form of a task, from the door that it comes in by to
/// the store and back.
///
/// What is left out is whatever the run says, and if that says nothing either,
/// the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskSpec {
    /// What to execute: a string is a line for the shell, a list is a program and
    /// its arguments.
    #[serde(skip_serializing_if = "Command::is_empty")]
    pub command: Command,
    /// A name that later tasks may come after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The names of earlier tasks that must have succeeded before it may start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Environment variables, on top of those of the run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, ByteString>,
    /// The folder it runs in.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "byte_string::path::option"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<ByteString>"))]
    pub folder: Option<PathBuf>,
    /// The parameters that it was made of. It finds them in `PACKHORSE_PARAMS`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Value>,
    /// The folder for its results, which is made before it starts. It finds it in
    /// `PACKHORSE_RESULTS`.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "byte_string::path::option"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<ByteString>"))]
    pub results: Option<PathBuf>,
    /// Where its output is written, instead of the run's folder of logs. A second
    /// attempt's goes beside it: `train.log`, `train.2.log`.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "byte_string::path::option"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<ByteString>"))]
    pub log: Option<PathBuf>,
    /// GPUs, or a part of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuRequest>,
    /// Memory of each of its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vram: Option<VramRequest>,
    /// Only GPUs whose name contains this; several are separated by commas.
    #[serde(skip_serializing_if = "Option::is_none", alias = "model")]
    pub gpu_model: Option<String>,
    /// What it is remembered by, instead of the shape of its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// How it is measured first if nothing is known of it: a command with `{}`
    /// where its own goes, or a number of epochs for commands that are told theirs
    /// with `--epochs=N`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeSpec>,
    /// Cores of its own, which it is pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// How many cores it keeps busy; counted, not pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Milli>,
    /// Main memory; counted, not enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram: Option<Bytes>,
    /// Its place in the order: lower numbers go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// How many more attempts a failure gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// How long an attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<TimeLimit>,
    /// How long an attempt has between SIGTERM and SIGKILL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Grace>,
}

/// How a task of which nothing is known is measured before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ProbeSpec {
    /// By so many epochs, for commands that are told theirs with `--epochs=N`.
    Epochs(u32),
    /// By a command with `{}` where the task's own goes.
    Template(String),
}

/// How long an attempt has between SIGTERM and SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grace(pub Duration);

impl Default for Grace {
    fn default() -> Self {
        Self(Duration::from_secs(10))
    }
}

impl std::str::FromStr for Grace {
    type Err = crate::ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_duration(text).map(Self)
    }
}

impl Serialize for Grace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Grace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written::parse(deserializer)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Grace {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Grace".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        TimeLimit::json_schema(generator)
    }
}

impl TaskSpec {
    /// A task with nothing but a command, as most are.
    pub fn new(command: Command) -> Self {
        Self {
            command,
            ..Self::default()
        }
    }

    /// Whether it has nothing but a command.
    pub fn is_plain(&self) -> bool {
        let Self {
            command: _,
            name,
            after,
            env,
            folder,
            params,
            results,
            log,
            gpus,
            vram,
            gpu_model,
            signature,
            probe,
            cores,
            cpu,
            ram,
            priority,
            retries,
            timeout,
            grace,
        } = self;
        name.is_none()
            && after.is_empty()
            && env.is_empty()
            && folder.is_none()
            && params.is_empty()
            && results.is_none()
            && log.is_none()
            && gpus.is_none()
            && vram.is_none()
            && gpu_model.is_none()
            && signature.is_none()
            && probe.is_none()
            && cores.is_none()
            && cpu.is_none()
            && ram.is_none()
            && priority.is_none()
            && retries.is_none()
            && timeout.is_none()
            && grace.is_none()
    }

    /// This task with what it leaves out taken from `defaults`. Variables of both
    /// are there; its own win.
    #[must_use]
    pub fn over(self, defaults: &Self) -> Self {
        let other = defaults.clone();
        let Self {
            command,
            name,
            after,
            mut env,
            folder,
            mut params,
            results,
            log,
            gpus,
            vram,
            gpu_model,
            signature,
            probe,
            cores,
            cpu,
            ram,
            priority,
            retries,
            timeout,
            grace,
        } = self;
        for (name, value) in other.env {
            env.entry(name).or_insert(value);
        }
        for (name, value) in other.params {
            params.entry(name).or_insert(value);
        }
        Self {
            command: if command.is_empty() {
                other.command
            } else {
                command
            },
            name: name.or(other.name),
            after: if after.is_empty() { other.after } else { after },
            env,
            folder: folder.or(other.folder),
            params,
            results: results.or(other.results),
            log: log.or(other.log),
            gpus: gpus.or(other.gpus),
            vram: vram.or(other.vram),
            gpu_model: gpu_model.or(other.gpu_model),
            signature: signature.or(other.signature),
            probe: probe.or(other.probe),
            cores: cores.or(other.cores),
            cpu: cpu.or(other.cpu),
            ram: ram.or(other.ram),
            priority: priority.or(other.priority),
            retries: retries.or(other.retries),
            timeout: timeout.or(other.timeout),
            grace: grace.or(other.grace),
        }
    }
}

#[cfg(test)]
mod tests;
