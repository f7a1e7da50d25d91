//! Slurm's own commands: they work without an accounting database, and on every version in
//! use. Their JSON has other shapes in each, so none of it is read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;

use packhorse_model::JobTime;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::SlurmError;
use crate::folder::{SharedFolder, SubmittedJob};
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
    run_without(&slurms_own_variables(), program, arguments)
}

/// Which cluster is asked depends on the job, not on what somebody has set since.
fn slurms_own_variables() -> Vec<String> {
    variables(|name| name.starts_with("SQUEUE_") || name == "SLURM_CLUSTERS")
}

/// The variables of ours with such names.
pub(crate) fn variables(is_meant: impl Fn(&str) -> bool) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| is_meant(name)).collect()
}

/// The same, without some variables of ours.
pub(crate) fn run_without(
    variables: &[String],
    program: &'static str,
    arguments: &[impl AsRef<OsStr>],
) -> Result<String, SlurmError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // Ctrl-C is for us: what is under way comes to its end, and we know what became of it.
    command.process_group(0);
    for name in variables {
        command.env_remove(name);
    }
    answer_of(program, command.output())
}

/// The same of a command that is killed if it takes longer than this: while Slurm is not
/// there, its commands may wait for minutes.
fn run_within(
    limit: Duration,
    program: &'static str,
    arguments: &[impl AsRef<OsStr>],
) -> Result<String, SlurmError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    for name in slurms_own_variables() {
        command.env_remove(name);
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return answer_of(program, Err(error)),
    };
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let handle = handle.map_err(std::io::Error::from)?;
    let (sender, answer) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = answer.recv_timeout(limit) else {
        // The thread sees to what is left of it.
        let _ = pidfd_send_signal(handle, Signal::KILL);
        return Err(SlurmError::Refused {
            doing: program.to_owned(),
            said: format!("timed out after {} s", limit.as_secs()),
        });
    };
    answer_of(program, output)
}

/// What a command of Slurm has written, unless it says that something is wrong.
fn answer_of(program: &'static str, output: std::io::Result<Output>) -> Result<String, SlurmError> {
    let output = output.map_err(|error| match error.kind() {
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

/// Whether squeue says that jobs have ended so long ago that Slurm knows none of them. Others
/// may have written something, too: the loader, wrappers of the site.
fn tells_forgotten(said: &str) -> bool {
    said.contains("Invalid job id")
}

/// Whether scancel has failed only for jobs that have ended. What is said of one job counts for
/// that one only, and whatever else is written for none.
fn tells_ended(said: &str) -> bool {
    let ended = ["Invalid job id", "already completing"];
    let is_one = |line: &str| ended.iter().any(|words| line.contains(words));
    let lines = said.split("; ");
    let mut failed = lines.filter(|line| line.contains("Kill job error"));
    failed.next().is_some_and(is_one) && failed.all(is_one)
}

/// Makes a refusal say what was tried.
pub(crate) fn doing(what: &str) -> impl FnOnce(SlurmError) -> SlurmError {
    move |error| match error {
        SlurmError::Refused { said, .. } => SlurmError::Refused { doing: what.to_owned(), said },
        error => error,
    }
}

/// What is in the queue of these arrays, what has ended a while ago included.
pub(crate) fn squeue(jobs: &[SubmittedJob]) -> Result<Vec<QueuedElement>, SlurmError> {
    let format = format!("--format={QUEUE_FORMAT}");
    let mut queue = Vec::new();
    for (cluster, numbers) in by_cluster(jobs) {
        let list = format!("--jobs={}", numbers.join(","));
        let words = ["--noheader", "--array", "--states=all", &list, &format];
        match run_at(cluster, "squeue", &words) {
            Ok(text) => queue.extend(read_queue(&text)),
            Err(SlurmError::Refused { said, .. }) if tells_forgotten(&said) => {}
            Err(error) => return Err(doing("Slurm does not tell its queue")(error)),
        }
    }
    Ok(queue)
}

/// What is in the queue of a run on this cluster and is not over, whoever has submitted it, and
/// whether or not that was written down.
pub(crate) fn queue_of_run(
    folder: &SharedFolder,
    limit: Duration,
) -> Result<Vec<QueuedElement>, SlurmError> {
    let user = format!("--user={}", rustix::process::getuid().as_raw());
    let format = format!("--format={QUEUE_FORMAT}|%o");
    let words = ["--noheader", "--array", "--all", &user, &format];
    let text = run_within(limit, "squeue", &words);
    let text = text.map_err(doing("Slurm does not tell its queue"))?;
    // Earlier versions have submitted the script by its own name.
    let scripts = [folder.submitting(), folder.script()];
    let scripts = scripts.map(|path| path.display().to_string());
    let is_ours = |line: &&str| {
        let script = line.trim().splitn(6, '|').nth(5).unwrap_or_default();
        scripts.iter().any(|ours| {
            let behind = script.strip_prefix(ours);
            behind.is_some_and(|it| it.is_empty() || it.starts_with(['/', ' ']))
        })
    };
    let ours: Vec<&str> = text.lines().filter(is_ours).collect();
    Ok(read_queue(&ours.join("\n")))
}

/// Has a job that waits come after others, in Slurm's words; after none if there are none.
pub(crate) fn set_dependency(job: u32, after: &str, limit: Duration) -> Result<(), SlurmError> {
    let (job, after) = (format!("JobId={job}"), format!("Dependency={after}"));
    let changed = run_within(limit, "scontrol", &["update", &job, &after]);
    changed.map(drop).map_err(doing("Slurm did not change what the job comes after"))
}

/// Jobs of ours, each by its array, its index there, and the script that sbatch was given.
pub(crate) fn own_scripts() -> Result<Vec<(u32, u32, String)>, SlurmError> {
    let user = format!("--user={}", rustix::process::getuid().as_raw());
    let words = ["--noheader", "--array", "--all", "--states=all", &user, "--format=%F|%K|%o"];
    let text = run("squeue", &words).map_err(doing("Slurm does not tell its queue"))?;
    let read = |line: &str| {
        let mut parts = line.trim().splitn(3, '|');
        let mut number = || parts.next()?.parse().ok();
        let (job, index) = (number()?, number()?);
        Some((job, index, parts.next()?.to_owned()))
    };
    Ok(text.lines().filter_map(read).collect())
}

/// Slurm's word for how an element is.
pub(crate) fn state_of(element: &str) -> Result<String, SlurmError> {
    let job = format!("--jobs={element}");
    let words = ["--noheader", "--states=all", &job, "--format=%T"];
    let text = run("squeue", &words).map_err(doing("Slurm does not tell its queue"))?;
    Ok(text.trim().to_owned())
}

/// The numbers of jobs, by the cluster that they are on. `None`: this one.
fn by_cluster(jobs: &[SubmittedJob]) -> BTreeMap<Option<&str>, Vec<String>> {
    let mut clusters: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let here = if jobs.iter().any(|job| job.cluster.is_some()) { local_cluster() } else { None };
    for job in jobs {
        let theirs = job.cluster.as_deref();
        // Where nobody says which cluster this is, it is the one that there is.
        let elsewhere = theirs.filter(|_| here.is_some() && theirs != here.as_deref());
        let numbers = clusters.entry(elsewhere).or_default();
        numbers.push(job.job.to_string());
    }
    clusters
}

/// Runs a command of Slurm that is about jobs of this cluster, or of another. Numbers of jobs
/// mean others elsewhere.
fn run_at(
    cluster: Option<&str>,
    program: &'static str,
    words: &[&str],
) -> Result<String, SlurmError> {
    let Some(theirs) = cluster else {
        return run(program, words);
    };
    let option = format!("--clusters={theirs}");
    let words = [&[option.as_str()], words].concat();
    run(program, &words).map_err(|error| SlurmError::OtherCluster {
        theirs: theirs.to_owned(),
        here: local_cluster().unwrap_or_default(),
        error: Box::new(error),
    })
}

/// Takes jobs out of the queue, or signals them. Those that are over are no error.
pub(crate) fn scancel(options: &[&str], jobs: &[SubmittedJob]) -> Result<(), SlurmError> {
    for (cluster, numbers) in by_cluster(jobs) {
        let mut words = vec!["--quiet"];
        words.extend_from_slice(options);
        words.extend(numbers.iter().map(String::as_str));
        match run_at(cluster, "scancel", &words) {
            Err(SlurmError::Refused { said, .. }) if tells_ended(&said) => {}
            answer => {
                answer.map_err(doing("Slurm did not cancel the job"))?;
            }
        }
    }
    Ok(())
}

/// Puts an element that runs back into the queue, which ends it here.
pub(crate) fn requeue(element: &str) -> Result<(), SlurmError> {
    match run("scontrol", &["requeue", element]) {
        // What ends the job ends the command, too, if that is still there.
        Err(SlurmError::Refused { said, .. }) if said.starts_with("signal: ") => Ok(()),
        answer => answer.map(drop).map_err(doing("Slurm did not put the job back")),
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
    let fields = text.split_whitespace().filter_map(|word| word.split_once('='));
    Ok(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
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
    let text = run("scontrol", &["show", "job", element]).ok()?;
    // To the end of the line: names of folders may have blanks.
    let mut lines = text.lines().map(str::trim);
    lines.find_map(|line| line.strip_prefix("StdOut=").map(PathBuf::from))
}

/// The processors of a node that a job was given, by Slurm's numbers.
pub(crate) fn given_cores(element: &str) -> Option<Vec<usize>> {
    let text = run("scontrol", &["--details", "--oneliner", "show", "job", element]).ok()?;
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
    let size = setting("MaxArraySize");
    ClusterLimits {
        max_array_size: size.and_then(|size| size.parse().ok()),
        time: partition_time(partition),
    }
}

/// Whether some nodes are down, drained or reserved at the moment.
pub(crate) fn misses_nodes() -> bool {
    let states = run("sinfo", &["--noheader", "--format=%T"]).unwrap_or_default();
    let mut states = states.split_whitespace();
    let usual = ["idle", "mixed", "allocated", "completing", "planned"];
    states.any(|state| !usual.contains(&state))
}

/// The name of the cluster that this machine belongs to.
pub(crate) fn local_cluster() -> Option<String> {
    setting("ClusterName").filter(|name| !name.is_empty() && name != "(null)")
}

/// A value of Slurm's configuration, which is asked for once.
fn setting(wanted: &str) -> Option<String> {
    static CONFIG: OnceLock<String> = OnceLock::new();
    let config = if let Some(config) = CONFIG.get() {
        config
    } else {
        let config = run("scontrol", &["show", "config"]).ok()?;
        CONFIG.get_or_init(|| config)
    };
    let mut lines = config.lines().filter_map(|line| line.split_once('='));
    let value = lines.find(|(key, _)| key.trim() == wanted);
    value.map(|(_, value)| value.trim().to_owned())
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
    fn a_job_that_has_ended_does_not_hide_that_another_was_not_cancelled() {
        let ended = "scancel: error: Kill job error on job id 7: Invalid job id specified\n";
        let ending = "scancel: error: Kill job error on job id 8: \
                      Job/step already completing or completed\n";
        let busy = "scancel: error: Kill job error on job id 9: \
                    Socket timed out on send/recv operation\n";
        let tells = |text: &[&str]| tells_ended(&words("scancel", &text.concat()));
        assert!(tells(&[ended]) && tells(&[ended, ending]));
        assert!(!tells(&[busy]) && !tells(&[ended, busy]) && !tells(&[busy, ending]));
        assert!(!tells(&[]));
        // What others write says nothing of jobs.
        let loader = "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded: ignored.\n";
        assert!(tells(&[loader, ended]) && tells(&[ended, loader, ending]));
        assert!(!tells(&[loader]) && !tells(&[loader, ended, busy]));
        let nobody = "scancel: error: Unable to contact slurm controller (connect failure)\n";
        assert!(!tells(&[nobody]));
    }

    #[test]
    fn jobs_are_forgotten_whatever_else_is_written() {
        let loader = "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded: ignored.\n";
        let forgotten = "slurm_load_jobs error: Invalid job id specified\n";
        let tells = |text: &[&str]| tells_forgotten(&words("squeue", &text.concat()));
        assert!(tells(&[forgotten]) && tells(&[loader, forgotten]));
        assert!(!tells(&[loader]) && !tells(&[]));
    }

    #[test]
    fn a_command_that_does_not_answer_in_time_is_not_waited_for() {
        let answer = |limit, words: &[&str]| run_within(limit, "sh", words);
        let long = answer(Duration::from_millis(20), &["-c", "exec sleep 1000"]);
        let error = long.unwrap_err().to_string();
        assert!(error.contains("timed out"), "{error}");
        let short = answer(Duration::from_mins(5), &["-c", "echo here"]);
        assert_eq!(short.unwrap(), "here\n");
    }

    #[test]
    fn who_ends_a_job_is_told_by_why() {
        let tells = |text: &str| {
            let fields = text.split_whitespace().filter_map(|word| word.split_once('='));
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            tells_cut_off(&fields.collect())
        };
        let started = "JobState=COMPLETING Reason=None StartTime=2026-11-18T06:21:15";
        assert!(tells(&format!("{started} PreemptTime=2026-11-18T06:21:18")));
        // By scancel.
        assert!(!tells(&format!("{started} PreemptTime=None")));
        // The start before this one was.
        assert!(!tells(&format!("{started} PreemptTime=2026-11-18T05:00:00")));
        assert!(tells("JobState=COMPLETING Reason=TimeLimit"));
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(number_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(number_list("(null)"), None);
    }
}
