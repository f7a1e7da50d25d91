//! The SLURM document: what Slurm is told, and what each repetition gets of a job.

use std::num::NonZeroU32;

use packhorse_model::GpuRequest;

use super::documents::{ConfigFile, Document, FileError};
use super::keys::{kind, slip};
use super::merge::Members;
use super::problem::{ExperimentError, ExperimentProblem};
use crate::grid::source_text::SourceText;
use crate::grid::value::{GridValue, ValueKind};
use crate::nearest::{did_you_mean, nearest};

/// Every key that means something.
const KNOWN: &[&str] = &[
    "name",
    "partition",
    "account",
    "job-name",
    "num_parallel_jobs",
    "ntasks",
    "cpus-per-task",
    "time",
    "mem-per-cpu",
    "venv",
    "sh_lines",
    "sbatch_args",
    "slurm_log",
    "slurm_output",
    "path_to_template",
    "experiment_copy_src",
    "experiment_copy_dst",
    "experiment_copy_auto_dst",
    "gpus_per_rep",
    "cpus_per_rep",
    "scheduler",
];

/// What a job of Slurm needs to know.
const REQUIRED: [&str; 6] = [
    "partition",
    "job-name",
    "num_parallel_jobs",
    "ntasks",
    "cpus-per-task",
    "time",
];

/// The SLURM document of a file.
#[derive(Clone, Debug, Default)]
pub struct SlurmDocument {
    /// The partition.
    pub partition: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// The name of the job.
    pub job_name: Option<String>,
    /// At most so many jobs at a time.
    pub num_parallel_jobs: Option<NonZeroU32>,
    /// Tasks in Slurm's sense.
    pub ntasks: Option<NonZeroU32>,
    /// Cores for each of these.
    pub cpus_per_task: Option<NonZeroU32>,
    /// How long a job may take, as it was written. A whole number is minutes.
    pub time: Option<String>,
    /// Main memory for each core.
    pub mem_per_cpu: Option<String>,
    /// The virtual environment to activate.
    pub venv: Option<String>,
    /// Lines of shell before the repetitions.
    pub sh_lines: Vec<String>,
    /// More arguments of sbatch, with their values.
    pub sbatch_args: Vec<(String, String)>,
    /// The folder for what the script writes.
    pub slurm_log: Option<String>,
    /// The file that the script is written to.
    pub slurm_output: Option<String>,
    /// A script of one's own, with `%%placeholders%%`.
    pub path_to_template: Option<String>,
    /// The folder whose code is copied.
    pub experiment_copy_src: Option<String>,
    /// Where it is copied to.
    pub experiment_copy_dst: Option<String>,
    /// The folder in which a new one is made for it.
    pub experiment_copy_auto_dst: Option<String>,
    /// What part of a GPU, or how many, each repetition gets.
    pub gpus_per_rep: Option<GpuRequest>,
    /// How many cores each repetition gets.
    pub cpus_per_rep: Option<NonZeroU32>,
    /// How the cores of a job are shared.
    pub scheduler: Option<ExperimentScheduler>,
    /// Its name, as it stands in the file.
    pub name: String,
    pub(super) members: Members,
}

/// How the cores of a job are shared among its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentScheduler {
    /// As they always are.
    Mp,
    /// Each starts only as many threads as its share.
    Kluster,
    /// Each has cores of its own.
    Horeka,
    /// Each has cores of its own, and no GPU.
    CpuDistribute,
}

impl ExperimentScheduler {
    const WORDS: [(&str, Self); 4] = [
        ("mp", Self::Mp),
        ("kluster", Self::Kluster),
        ("horeka", Self::Horeka),
        ("cpu_distribute", Self::CpuDistribute),
    ];

    /// What it is called in the file.
    pub fn word(self) -> &'static str {
        let mut words = Self::WORDS.iter();
        words
            .find(|(_, scheduler)| *scheduler == self)
            .map_or("", |(word, _)| word)
    }
}

impl SlurmDocument {
    /// The one of a file for a machine of this name, if there is one. Slips go to
    /// `warnings`.
    pub(super) fn read(
        file: &ConfigFile,
        host: &str,
        warnings: &mut Vec<FileError>,
    ) -> Result<Option<Self>, FileError> {
        let Some(document) = file.slurm(host) else {
            return Ok(None);
        };
        let mut slips = Vec::new();
        let read = Self::of(file.source(), document, &mut slips);
        warnings.extend(slips.into_iter().map(|slip| file.wrong(slip)));
        read.map(Some).map_err(|error| file.wrong(error))
    }

    fn of(
        text: SourceText<'_>,
        document: &Document,
        slips: &mut Vec<ExperimentError>,
    ) -> Result<Self, ExperimentError> {
        let mut slurm = Self {
            name: document.name.clone(),
            members: document.members.clone(),
            ..Self::default()
        };
        let word = |key: &str, value: &GridValue| match value.kind {
            ValueKind::None => Ok(None),
            ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_) => {
                Err(kind(text, key, value, "text or a number"))
            }
            _ => Ok(Some(value.as_written())),
        };
        let whole = |key: &str, value: &GridValue| match super::keys::count(value) {
            Some(count) => Ok(NonZeroU32::new(count)),
            None => Err(kind(text, key, value, "a whole number, at least 1")),
        };
        for (key, value) in &document.members {
            let Some(name) = key.name() else {
                continue;
            };
            let key_name = name.as_str();
            match key_name {
                "partition" => slurm.partition = word(key_name, value)?,
                "account" => slurm.account = word(key_name, value)?,
                "job-name" => slurm.job_name = word(key_name, value)?,
                "num_parallel_jobs" => slurm.num_parallel_jobs = whole(key_name, value)?,
                "ntasks" => slurm.ntasks = whole(key_name, value)?,
                "cpus-per-task" => slurm.cpus_per_task = whole(key_name, value)?,
                "time" => slurm.time = word(key_name, value)?,
                "mem-per-cpu" => slurm.mem_per_cpu = word(key_name, value)?,
                "venv" => slurm.venv = word(key_name, value)?,
                "sh_lines" => slurm.sh_lines = lines(text, value)?,
                "sbatch_args" => slurm.sbatch_args = arguments(text, value)?,
                "slurm_log" => slurm.slurm_log = word(key_name, value)?,
                "slurm_output" => slurm.slurm_output = word(key_name, value)?,
                "path_to_template" => slurm.path_to_template = word(key_name, value)?,
                "experiment_copy_src" => slurm.experiment_copy_src = word(key_name, value)?,
                "experiment_copy_dst" => slurm.experiment_copy_dst = word(key_name, value)?,
                "experiment_copy_auto_dst" => {
                    slurm.experiment_copy_auto_dst = word(key_name, value)?;
                }
                "gpus_per_rep" => slurm.gpus_per_rep = Some(gpus_per_rep(text, value)?),
                "cpus_per_rep" => slurm.cpus_per_rep = whole(key_name, value)?,
                "scheduler" => slurm.scheduler = scheduler(text, value)?,
                "name" => {}
                _ => slips.extend(slip(text, key, &document.name, KNOWN)),
            }
        }
        Ok(slurm)
    }

    /// Whether its scheduler uses no GPUs.
    pub fn scheduler_without_gpus(&self) -> bool {
        self.scheduler == Some(ExperimentScheduler::CpuDistribute)
    }

    /// Keys that a job of Slurm needs, and that are not there.
    pub fn missing(&self) -> Vec<&'static str> {
        let is_there = |key: &str| super::merge::get(&self.members, key).is_some();
        let missing = REQUIRED.into_iter().filter(|key| !is_there(key));
        missing.collect()
    }

    /// How many cores a job has, if it says so.
    pub fn cores(&self) -> Option<u32> {
        let tasks = self.ntasks.map_or(1, NonZeroU32::get);
        self.cpus_per_task?.get().checked_mul(tasks)
    }

    /// How many GPUs a job asks for, if it asks for any.
    pub fn gpus(&self) -> Option<u32> {
        let argument = |name: &str| {
            let mut arguments = self.sbatch_args.iter();
            arguments
                .find(|(key, _)| key == name)
                .map(|(_, value)| value)
        };
        if let Some(gres) = argument("gres") {
            let parts = gres.split(',').filter_map(gpus_of_gres);
            if let Some(count) = parts.reduce(u32::saturating_add) {
                return Some(count);
            }
        }
        if let Some(gpus) = argument("gpus").or_else(|| argument("gpus-per-node")) {
            return count_at_end(gpus);
        }
        let tasks = self.ntasks.map_or(1, NonZeroU32::get);
        count_at_end(argument("gpus-per-task")?)?.checked_mul(tasks)
    }
}

/// `gpu:a100:4` is four GPUs, `gpu` is one, and `license:2` is none.
fn gpus_of_gres(part: &str) -> Option<u32> {
    // Where the cores are near: `gpu:4(S:0-1)`.
    let part = part.split('(').next().unwrap_or(part).trim();
    match part.split_once(':') {
        None => (part == "gpu").then_some(1),
        Some(("gpu", rest)) => Some(count_at_end(rest).unwrap_or(1)),
        Some(_) => None,
    }
}

/// The number at the end of `a100:4`.
fn count_at_end(text: &str) -> Option<u32> {
    text.rsplit(':').next()?.trim().parse().ok()
}

fn lines(text: SourceText<'_>, value: &GridValue) -> Result<Vec<String>, ExperimentError> {
    const EXPECTED: &str = "a list of lines";
    match &value.kind {
        ValueKind::None => Ok(Vec::new()),
        ValueKind::Text(line) => Ok(vec![line.to_string()]),
        ValueKind::List(lines) => {
            let lines = lines.iter().map(|line| match line.kind {
                ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_) => {
                    Err(kind(text, "sh_lines", line, EXPECTED))
                }
                _ => Ok(line.as_written()),
            });
            lines.collect()
        }
        _ => Err(kind(text, "sh_lines", value, EXPECTED)),
    }
}

fn arguments(
    text: SourceText<'_>,
    value: &GridValue,
) -> Result<Vec<(String, String)>, ExperimentError> {
    let members = match &value.kind {
        ValueKind::None => return Ok(Vec::new()),
        ValueKind::Dict(members) => members,
        _ => return Err(kind(text, "sbatch_args", value, "a dictionary")),
    };
    let arguments = members.iter().map(|(key, value)| {
        let key = key.as_written();
        match value.kind {
            ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_) => {
                Err(kind(text, &key, value, "text or a number"))
            }
            _ => Ok((key, value.as_written())),
        }
    });
    arguments.collect()
}

fn gpus_per_rep(text: SourceText<'_>, value: &GridValue) -> Result<GpuRequest, ExperimentError> {
    let written = value.as_written();
    written.parse().map_err(|_| {
        let problem = ExperimentProblem::Value {
            key: "gpus_per_rep".to_owned(),
            message: "this is neither a part of one GPU nor a whole number of them".to_owned(),
            hint: "write 0.5 for two repetitions on one GPU, or 2 for two GPUs each".to_owned(),
        };
        text.error(value.span.clone(), problem)
    })
}

fn scheduler(
    text: SourceText<'_>,
    value: &GridValue,
) -> Result<Option<ExperimentScheduler>, ExperimentError> {
    if value.kind == ValueKind::None {
        return Ok(None);
    }
    let word = value.as_written();
    let mut words = ExperimentScheduler::WORDS.iter();
    if let Some((_, scheduler)) = words.find(|(known, _)| *known == word) {
        return Ok(Some(*scheduler));
    }
    let known = ExperimentScheduler::WORDS.map(|(word, _)| word);
    let problem = ExperimentProblem::Value {
        key: "scheduler".to_owned(),
        message: "nobody knows this one".to_owned(),
        hint: match nearest(&word, known) {
            Some(nearest) => did_you_mean(nearest),
            None => format!("there are {}", known.join(", ")),
        },
    };
    Err(text.error(value.span.clone(), problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gpus_of_a_job_are_found_however_they_are_asked_for() {
        let gpus = |arguments: &[(&str, &str)], ntasks| {
            let arguments = arguments.iter();
            let arguments = arguments.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let document = SlurmDocument {
                sbatch_args: arguments.collect(),
                ntasks: NonZeroU32::new(ntasks),
                ..SlurmDocument::default()
            };
            document.gpus()
        };
        for (arguments, wanted) in [
            (vec![("gres", "gpu:4")], Some(4)),
            (vec![("gres", "gpu:a100:2")], Some(2)),
            (vec![("gres", "gpu:full:4(S:0-1)")], Some(4)),
            (vec![("gres", "gpu")], Some(1)),
            (vec![("gres", "gpu:a100")], Some(1)),
            (vec![("gres", "license:3,gpu:a100:1,gpu:h100:2")], Some(3)),
            (vec![("gres", "license:3")], None),
            (vec![("gpus", "a100:3")], Some(3)),
            (vec![("gpus-per-node", "2")], Some(2)),
            (vec![("gpus-per-task", "1")], Some(2)),
            (vec![("constraint", "gpu")], None),
            (vec![], None),
        ] {
            assert_eq!(gpus(&arguments, 2), wanted, "{arguments:?}");
        }
    }
}
