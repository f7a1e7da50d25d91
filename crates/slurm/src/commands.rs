//! Slurm's own commands: they work without an accounting database, and on every version in
//! use. Their JSON has other shapes in each, so none of it is read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use packhorse_model::JobTime;

use crate::SlurmError;
use crate::queue::{QUEUE_FORMAT, QueuedElement, read_queue};

/// What Slurm says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterLimits {
    /// No index of an array is as high as this.
    pub max_array_size: Option<u32>,
    /// How long a job may take that says nothing.
    pub time: Option<Duration>,
}

/// Runs a command of Slurm and returns what it wrote.
fn run(program: &'static str, arguments: &[impl AsRef<OsStr>]) -> Result<String, SlurmError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // What a person has set for their own eyes.
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| name.as_encoded_bytes().starts_with(b"SQUEUE_")) {
        command.env_remove(name);
    }
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => SlurmError::NoCommand(program),
        _ => error.into(),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = words(program, &String::from_utf8_lossy(&output.stderr));
    Err(SlurmError::Refused {
        doing: program.to_owned(),
        said: match said.as_str() {
            "" => output.status.to_string(),
            _ => said,
        },
    })
}

/// What a command says is wrong, without its own name before every line.
fn words(program: &str, text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.strip_prefix(program).unwrap_or(line);
        let line = line.strip_prefix(':').unwrap_or(line).trim();
        line.strip_prefix("error:").unwrap_or(line).trim()
    });
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// Makes a refusal say what was tried.
fn doing(what: &str) -> impl FnOnce(SlurmError) -> SlurmError {
    move |error| match error {
        SlurmError::Refused { said, .. } => SlurmError::Refused {
            doing: what.to_owned(),
            said,
        },
        error => error,
    }
}

/// Hands a script to Slurm, and returns the number that it gave.
pub(crate) fn sbatch(
    options: &[String],
    script: &Path,
    arguments: &[String],
) -> Result<u32, SlurmError> {
    let mut words: Vec<&OsStr> = vec!["--parsable".as_ref()];
    words.extend(options.iter().map(OsStr::new));
    words.push(script.as_os_str());
    words.extend(arguments.iter().map(OsStr::new));
    let answer = run("sbatch", &words).map_err(doing("Slurm did not take the job"))?;
    // A cluster of several has its name behind the number.
    let number = answer.trim().split(';').next().unwrap_or_default();
    number.parse().map_err(|_| SlurmError::Nonsense {
        command: "sbatch --parsable",
        answer: answer.trim().to_owned(),
    })
}

/// What is in the queue of these arrays, what has ended a while ago included.
pub(crate) fn squeue(jobs: &[u32]) -> Result<Vec<QueuedElement>, SlurmError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let list = format!("--jobs={}", jobs.join(","));
    let format = format!("--format={QUEUE_FORMAT}");
    match run(
        "squeue",
        &["--noheader", "--array", "--states=all", &list, &format],
    ) {
        Ok(text) => Ok(read_queue(&text)),
        // All of them have ended long ago.
        Err(SlurmError::Refused { said, .. }) if said.contains("Invalid job id") => Ok(Vec::new()),
        Err(error) => Err(doing("Slurm does not tell its queue")(error)),
    }
}

/// Takes jobs out of the queue, or signals them. Those that are over are no error.
pub(crate) fn scancel(options: &[&str], jobs: &[u32]) -> Result<(), SlurmError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let mut words = vec!["--quiet"];
    words.extend_from_slice(options);
    words.extend(jobs.iter().map(String::as_str));
    match run("scancel", &words) {
        Err(SlurmError::Refused { said, .. })
            if said.contains("Invalid job id") || said.contains("already completing") =>
        {
            Ok(())
        }
        answer => answer
            .map(drop)
            .map_err(doing("Slurm did not cancel the job")),
    }
}

/// Puts an element that runs back into the queue, which ends it here.
pub(crate) fn requeue(element: &str) -> Result<(), SlurmError> {
    match run("scontrol", &["requeue", element]) {
        // What ends the job ends the command, too, if that is still there.
        Err(SlurmError::Refused { said, .. }) if said.starts_with("signal: ") => Ok(()),
        answer => answer
            .map(drop)
            .map_err(doing("Slurm did not put the job back")),
    }
}

/// How long a job may still take. `None`: there is no limit.
pub(crate) fn time_left(element: &str) -> Result<Option<Duration>, SlurmError> {
    let job = format!("--jobs={element}");
    let text = run("squeue", &["--noheader", &job, "--format=%L"])?;
    let time = text.trim().parse::<JobTime>();
    Ok(time.ok().and_then(JobTime::get))
}

/// What Slurm knows of an element: its fields, by name.
fn job_fields(element: &str) -> Result<BTreeMap<String, String>, SlurmError> {
    let text = run("scontrol", &["--oneliner", "show", "job", element])?;
    let fields = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    Ok(fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

/// Whether Slurm is ending an element for reasons of its own, and does not start it again:
/// it is preempted, or its time is over. Its state does not tell before it has ended.
pub(crate) fn is_cut_off(element: &str) -> Result<bool, SlurmError> {
    Ok(tells_cut_off(&job_fields(element)?))
}

fn tells_cut_off(fields: &BTreeMap<String, String>) -> bool {
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    // An earlier start may have been preempted, too.
    let preempted = field("PreemptTime");
    let is_preempted =
        preempted.starts_with(|c: char| c.is_ascii_digit()) && preempted >= field("StartTime");
    let states = ["TIMEOUT", "PREEMPTED", "NODE_FAIL"];
    is_preempted || field("Reason") == "TimeLimit" || states.contains(&field("JobState"))
}

/// The file that the script of an element writes to, if Slurm still knows it.
pub(crate) fn output_file(element: &str) -> Option<PathBuf> {
    let fields = job_fields(element).ok()?;
    fields.get("StdOut").map(PathBuf::from)
}

/// The processors of a node that a job was given, by Slurm's numbers.
pub(crate) fn given_cores(element: &str) -> Option<Vec<usize>> {
    let text = run(
        "scontrol",
        &["--details", "--oneliner", "show", "job", element],
    )
    .ok()?;
    let mut words = text.split_whitespace();
    let ids = words.find_map(|word| word.strip_prefix("CPU_IDs="))?;
    number_list(ids)
}

/// `0-3,8` as numbers.
fn number_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(numbers)
}

/// What Slurm says of itself, as far as it answers.
pub(crate) fn limits(partition: Option<&str>) -> ClusterLimits {
    let config = run("scontrol", &["show", "config"]).unwrap_or_default();
    let mut lines = config.lines().filter_map(|line| line.split_once('='));
    let size = lines.find(|(key, _)| key.trim() == "MaxArraySize");
    ClusterLimits {
        max_array_size: size.and_then(|(_, value)| value.trim().parse().ok()),
        time: partition_time(partition),
    }
}

/// How long a job of a partition may take that says nothing: the default partition's, if
/// none is named; the first's, if several are.
fn partition_time(partition: Option<&str>) -> Option<Duration> {
    let text = run("scontrol", &["--oneliner", "show", "partition"]).ok()?;
    let first = partition.and_then(|list| list.split(',').next());
    let mut lines = text.lines();
    let line = lines.find(|line| {
        let mut words = line.split_whitespace();
        match first {
            Some(name) => words.any(|word| word.strip_prefix("PartitionName=") == Some(name)),
            None => words.any(|word| word == "Default=YES"),
        }
    })?;
    let value = |key: &str| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.parse::<JobTime>().ok()?.get())
    };
    value("DefaultTime=").or_else(|| value("MaxTime="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_words_are_told_without_its_name() {
        let text = "sbatch: error: invalid partition specified: nope\n\
                    sbatch: error: Batch job submission failed: Invalid partition name specified\n";
        assert_eq!(
            words("sbatch", text),
            "invalid partition specified: nope; \
             Batch job submission failed: Invalid partition name specified"
        );
    }

    #[test]
    fn who_ends_a_job_is_told_by_why() {
        let tells = |text: &str| {
            let fields = text
                .split_whitespace()
                .filter_map(|word| word.split_once('='));
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            tells_cut_off(&fields.collect())
        };
        let started = "JobState=COMPLETING Reason=None StartTime=2026-11-18T06:21:15";
        assert!(tells(&format!("{started} PreemptTime=2026-11-18T06:21:18")));
        // By scancel.
        assert!(!tells(&format!("{started} PreemptTime=None")));
        // The start before this one was.
        assert!(!tells(&format!(
            "{started} PreemptTime=2026-11-18T05:00:00"
        )));
        assert!(tells("JobState=COMPLETING Reason=TimeLimit"));
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(number_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(number_list("(null)"), None);
    }
}
