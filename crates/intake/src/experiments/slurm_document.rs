//! The SLURM document: what Slurm is told, and what each repetition gets of a job.

use std::num::NonZeroU32;

use packhorse_model::{GpuRequest, JobTime, ParseValueError, SlurmSpec};
use serde_json::{Map, Value};

use super::documents::{ConfigFile, Document, FileError};
use super::experiment::to_map;
use super::keys::{is_of_experiments, kind, no_count, slip, wrong_document};
use super::merge::Members;
use super::paths::join;
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

/// The SLURM document of a file.
#[derive(Clone, Debug, Default)]
pub struct SlurmDocument {
    pub partition: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    pub job_name: Option<String>,
    /// At most so many jobs at a time.
    pub num_parallel_jobs: Option<NonZeroU32>,
    /// Tasks in Slurm's sense.
    pub ntasks: Option<NonZeroU32>,
    /// Cores for each of these.
    pub cpus_per_task: Option<NonZeroU32>,
    /// How long a job may take. A whole number is minutes.
    pub time: Option<JobTime>,
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

    /// The one with this name.
    pub(super) fn of(word: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter();
        words.find(|(known, _)| *known == word).map(|(_, scheduler)| *scheduler)
    }

    /// What it is called in the file.
    pub fn word(self) -> &'static str {
        let mut words = Self::WORDS.iter();
        words.find(|(_, scheduler)| *scheduler == self).map_or("", |(word, _)| word)
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

    /// The whole document as JSON.
    pub fn json(&self) -> Map<String, Value> {
        let mut document = to_map(&self.members);
        // As the original has it: also that of a machine of its own.
        document.insert("name".to_owned(), "slurm".into());
        document
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
            None => Err(no_count(text, key, value)),
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
                "time" => slurm.time = time(text, value)?,
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
                _ if is_of_experiments(key_name) => {
                    let belongs = "DEFAULT, or in an experiment";
                    slips.push(wrong_document(text, key, &document.name, belongs));
                }
                _ => slips.extend(slip(text, key, &document.name, KNOWN)),
            }
        }
        Ok(slurm)
    }

    /// What Slurm is asked for.
    pub fn spec(&self) -> SlurmSpec {
        let mut spec = SlurmSpec {
            partition: self.partition.clone(),
            account: self.account.clone().filter(|account| !account.is_empty()),
            job_name: self.job_name.clone(),
            time: self.time,
            ntasks: self.ntasks,
            cpus_per_task: self.cpus_per_task,
            mem_per_cpu: self.mem_per_cpu.clone(),
            jobs: self.num_parallel_jobs,
            sh_lines: self.sh_lines.clone(),
            venv: self.venv.clone(),
            template: self.path_to_template.clone().map(Into::into),
            output: self.slurm_log.as_ref().map(|folder| join(folder, "out_%A_%a.log")),
            ..SlurmSpec::default()
        };
        for (key, value) in &self.sbatch_args {
            // What also has an option of its own can be replaced by it.
            match key.as_str() {
                "gres" => spec.gres = Some(value.clone()),
                "mem" => spec.mem = Some(value.clone()),
                _ if value.is_empty() => spec.sbatch.push(format!("--{key}")),
                _ => spec.sbatch.push(format!("--{key}={value}")),
            }
        }
        spec
    }
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
    let arguments = members.iter().filter_map(|(key, value)| {
        let key = key.as_written();
        match value.kind {
            ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_) => {
                Some(Err(kind(text, &key, value, "text or a number")))
            }
            ValueKind::Bool(false) => None,
            ValueKind::Bool(true) | ValueKind::None => Some(Ok((key, String::new()))),
            _ => Some(Ok((key, value.as_written()))),
        }
    });
    arguments.collect()
}

/// `1:00:00` is an hour, although PyYAML takes it for the number 3600.
fn time(text: SourceText<'_>, value: &GridValue) -> Result<Option<JobTime>, ExperimentError> {
    if value.kind == ValueKind::None {
        return Ok(None);
    }
    let time = value.as_written().parse().map_err(|error: ParseValueError| {
        let problem = ExperimentProblem::Value {
            key: "time".to_owned(),
            message: error.to_string(),
            hint: "a whole number is minutes".to_owned(),
        };
        text.error(value.span.clone(), problem)
    })?;
    Ok(Some(time))
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
    if let Some(scheduler) = ExperimentScheduler::of(&word) {
        return Ok(Some(scheduler));
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
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_slurm_is_asked_for_is_what_the_document_says() {
        let text = "\
            name: SLURM\npartition: gpu\njob-name: half\ntime: 20\nntasks: 1\ncpus-per-task: 8\n\
            num_parallel_jobs: 3\nmem-per-cpu: 1000\nvenv: my env\nsh_lines: [module load a, b]\n\
            slurm_log: logs\nsbatch_args: {gres: 'gpu:1', constraint: a100, exclusive: , mem: 4G, \
            overcommit: yes, hold: false}\n";
        let read = |text: &str| {
            let file = ConfigFile::read(PathBuf::new(), PathBuf::new(), text.to_owned());
            let read = SlurmDocument::read(&file.unwrap(), "here", &mut Vec::new());
            read.unwrap().unwrap().spec()
        };
        let spec = read(text);
        let wanted = serde_json::json!({
            "partition": "gpu", "job_name": "half", "time": "00:20:00", "ntasks": 1,
            "cpus_per_task": 8, "jobs": 3, "mem_per_cpu": "1000", "mem": "4G", "gres": "gpu:1",
            "sbatch": ["--constraint=a100", "--exclusive", "--overcommit"], "venv": "my env",
            "sh_lines": ["module load a", "b"], "output": "logs/out_%A_%a.log",
        });
        assert_eq!(serde_json::to_value(spec).unwrap(), wanted);
        let hour = read("name: SLURM\ntime: 1:00:00\n").time;
        assert_eq!(hour, "60".parse().ok());
    }
}
