//! Handing an array to Slurm so that none is ever on the cluster without being known here.
//!
//! sbatch may fail although Slurm has taken the job: the answer came too late, a wrapper of the
//! site wrote something else, or somebody was killed before the number was written down. So
//! each array is handed over under a name of its own, a link to the script in `submitting/`.
//! Slurm tells the script of each job, so the array can be found by it. The link is removed
//! when it is written down what became of it; one that is left is looked for.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use fs_err as fs;
use packhorse_model::Timestamp;
use packhorse_store::new_run_uuid;

use crate::SlurmError;
use crate::arrays::ArrayPlan;
use crate::commands::{
    doing, local_cluster, misses_nodes, own_scripts, run_without, scancel, variables,
};
use crate::folder::{SharedFolder, SubmittedJob};
use crate::planning::rows;

/// What commands of Slurm say if they do not know what became of it themselves.
const CONTACT_TROUBLE: [&str; 6] =
    ["timed out", "Unable to contact", "Zero Bytes", "onnection", "ommunication", "signal:"];

/// Hands an array to Slurm, and has it written down by `record`. If that is not possible, it is
/// cancelled again.
pub(crate) fn submit_array(
    folder: &SharedFolder,
    plan: &ArrayPlan,
    options: &[String],
    record: impl FnOnce(&SubmittedJob) -> Result<(), SlurmError>,
) -> Result<SubmittedJob, SlurmError> {
    let link = Link::make(folder, plan.base)?;
    let job = match sbatch(options, &link.path(folder), &[plan.base.to_string()]) {
        Ok((job, cluster)) => SubmittedJob {
            job,
            base: plan.base,
            elements: plan.elements.clone(),
            at: Timestamp::now(),
            cluster: cluster.or_else(local_cluster),
        },
        Err(error) => link.found_or(folder, error)?,
    };
    if let Err(error) = record(&job) {
        let taken_back = take_back(std::slice::from_ref(&job), error);
        link.remove(folder);
        return Err(taken_back);
    }
    link.remove(folder);
    Ok(job)
}

/// Arrays of this folder that Slurm has, and that nobody has written down.
pub(crate) fn unrecorded(folder: &SharedFolder) -> Result<Vec<SubmittedJob>, SlurmError> {
    let links = Link::all(folder)?;
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let found = found(folder, &links)?;
    // In this order: one that is just being submitted may be written down meanwhile.
    let (known, here) = (folder.jobs()?, local_cluster());
    let is_known = |job: &SubmittedJob| {
        let mut known = known.iter();
        known.any(|it| it.job == job.job && (it.cluster.is_none() || it.cluster == here))
    };
    let mut jobs = Vec::new();
    for (link, job) in found {
        if is_known(&job) {
            link.remove(folder);
        } else {
            jobs.push(job);
        }
    }
    Ok(jobs)
}

/// Writes those down, and returns them. Only for whoever holds the run's lock.
pub(crate) fn adopt_unrecorded(folder: &SharedFolder) -> Result<Vec<SubmittedJob>, SlurmError> {
    let jobs = unrecorded(folder)?;
    for job in &jobs {
        folder.add_job(job)?;
    }
    Ok(jobs)
}

/// Cancels what was submitted, since the rest could not be.
pub(crate) fn take_back(submitted: &[SubmittedJob], error: SlurmError) -> SlurmError {
    if submitted.is_empty() {
        return error;
    }
    let names: Vec<String> = submitted.iter().map(|job| job.job.to_string()).collect();
    let names = names.join(" ");
    let rest = match scancel(&[], submitted) {
        Ok(()) => format!("what had been submitted before was cancelled again: job {names}"),
        Err(trouble) => format!(
            "what had been submitted before could not be cancelled: {trouble}\n\
             hint: `scancel {names}` ends it"
        ),
    };
    let error = Box::new(error);
    SlurmError::HalfSubmitted { error, rest }
}

/// Whether Slurm would take a script with these options, as far as it can tell now.
pub(crate) fn test_script(script: &Path, plans: &[ArrayPlan]) -> Result<(), SlurmError> {
    let Some(plan) = plans.first() else {
        return Ok(());
    };
    let options = ["--test-only".to_owned(), plan.option(None)];
    match run_sbatch(&options, script, &[plan.base.to_string()]) {
        // It leaves out nodes that are down or drained at the moment, for which a job waits in
        // the queue.
        Err(SlurmError::Refused { said, .. })
            if (said.contains("not available") || said.contains("busy")) && misses_nodes() =>
        {
            Ok(())
        }
        answer => answer.map(drop),
    }
}

/// The script under a name that no other submission has: `BASE.ID.sh`.
struct Link {
    base: u32,
    name: String,
}

impl Link {
    fn make(folder: &SharedFolder, base: u32) -> Result<Self, SlurmError> {
        let link = Self { base, name: format!("{base}.{}.sh", new_run_uuid(Timestamp::now())) };
        let path = link.path(folder);
        // Folders of earlier versions do not have it.
        fs::create_dir_all(folder.submitting())?;
        fs_err::os::unix::fs::symlink("../script.sh", &path)?;
        Ok(link)
    }

    /// Those that are left.
    fn all(folder: &SharedFolder) -> Result<Vec<Self>, SlurmError> {
        let entries = match fs::read_dir(folder.submitting()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut links = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let base = name.split('.').next().and_then(|base| base.parse().ok());
            links.extend(base.map(|base| Self { base, name }));
        }
        Ok(links)
    }

    fn path(&self, folder: &SharedFolder) -> std::path::PathBuf {
        folder.submitting().join(&self.name)
    }

    /// It is known what became of it. If it cannot be removed, it is looked for in vain.
    fn remove(&self, folder: &SharedFolder) {
        let _ = fs::remove_file(self.path(folder));
    }

    /// The array, if Slurm has taken it although sbatch says this.
    fn found_or(
        &self,
        folder: &SharedFolder,
        error: SlurmError,
    ) -> Result<SubmittedJob, SlurmError> {
        match found(folder, std::slice::from_ref(self)) {
            Ok(mut jobs) => match jobs.pop() {
                Some((_, job)) => Ok(job),
                None if is_clear(&error) => {
                    self.remove(folder);
                    Err(error)
                }
                None => Err(SlurmError::Unanswered {
                    error: Box::new(error),
                    rest: ": it is not in the queue yet".to_owned(),
                }),
            },
            Err(trouble) if !matches!(error, SlurmError::NoCommand(_)) => {
                Err(SlurmError::Unanswered { error: Box::new(error), rest: format!(": {trouble}") })
            }
            Err(_) => {
                self.remove(folder);
                Err(error)
            }
        }
    }
}

/// Whether it is certain that Slurm has not done what it was asked for.
pub(crate) fn is_clear(error: &SlurmError) -> bool {
    match error {
        SlurmError::Refused { said, .. } => {
            !CONTACT_TROUBLE.iter().any(|words| said.contains(words))
        }
        SlurmError::Nonsense { .. } => false,
        _ => true,
    }
}

/// The arrays in Slurm's queue that were handed over by these links.
fn found<'l>(
    folder: &SharedFolder,
    links: &'l [Link],
) -> Result<Vec<(&'l Link, SubmittedJob)>, SlurmError> {
    let queue = own_scripts()?;
    let mut jobs = Vec::new();
    for link in links {
        let path = link.path(folder).display().to_string();
        // Older versions tell the arguments of the script, too.
        let is_it = |script: &str| {
            let behind = script.strip_prefix(&path);
            behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(' '))
        };
        let of_it = queue.iter().filter(|(.., script)| is_it(script));
        let Some(&(job, ..)) = of_it.clone().next() else {
            continue;
        };
        let indices = of_it.map(|(_, index, _)| link.base.saturating_add(*index));
        let job = SubmittedJob {
            job,
            base: link.base,
            elements: rows(indices.collect()),
            at: Timestamp::now(),
            cluster: local_cluster(),
        };
        jobs.push((link, job));
    }
    Ok(jobs)
}

/// Hands a script to Slurm, and returns the number that it gave, and the cluster if it says
/// which.
fn sbatch(
    options: &[String],
    script: &Path,
    arguments: &[String],
) -> Result<(u32, Option<String>), SlurmError> {
    let options = [&["--parsable".to_owned()], options].concat();
    let answer = run_sbatch(&options, script, arguments)?;
    number_in(&answer).ok_or_else(|| SlurmError::Nonsense {
        command: "sbatch --parsable",
        answer: answer.trim().to_owned(),
    })
}

fn run_sbatch(
    options: &[String],
    script: &Path,
    arguments: &[String],
) -> Result<String, SlurmError> {
    let mut words: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    words.push(script.as_os_str());
    words.extend(arguments.iter().map(OsStr::new));
    let text = fs::read_to_string(script)?;
    let said = said_variables(&text);
    let own = variables(|name| said.iter().any(|it| it == name));
    run_without(&own, "sbatch", &words).map_err(doing("Slurm did not take the job"))
}

/// The number in what sbatch wrote: `12`, or `12;cluster`. Wrappers of a site may write before.
fn number_in(answer: &str) -> Option<(u32, Option<String>)> {
    let mut lines = answer.lines().rev();
    lines.find_map(|line| {
        let line = line.trim();
        let (number, cluster) = match line.split_once(';') {
            Some((number, cluster)) => (number, Some(cluster)),
            None => (line, None),
        };
        let is_one_word = cluster.is_none_or(|name| !name.contains(char::is_whitespace));
        let cluster = cluster.filter(|name| !name.is_empty()).map(str::to_owned);
        number.parse().ok().filter(|_| is_one_word).map(|number| (number, cluster))
    })
}

/// The variables that sbatch would prefer to what the script says.
fn said_variables(script: &str) -> Vec<String> {
    let lines = script.lines().filter_map(|line| line.strip_prefix("#SBATCH"));
    let keys = lines.filter_map(|line| {
        let line = line.trim();
        let key = match line.strip_prefix("--") {
            Some(long) => long.split(['=', ' ']).next()?,
            None => line.strip_prefix('-')?.get(..1)?,
        };
        Some(match key {
            "p" => "SBATCH_PARTITION".to_owned(),
            "A" => "SBATCH_ACCOUNT".to_owned(),
            "t" | "time" => "SBATCH_TIMELIMIT".to_owned(),
            "J" => "SBATCH_JOB_NAME".to_owned(),
            "o" => "SBATCH_OUTPUT".to_owned(),
            "e" => "SBATCH_ERROR".to_owned(),
            "q" => "SBATCH_QOS".to_owned(),
            "C" => "SBATCH_CONSTRAINT".to_owned(),
            "G" => "SBATCH_GPUS".to_owned(),
            "mem" => "SBATCH_MEM_PER_NODE".to_owned(),
            long => format!("SBATCH_{}", long.replace('-', "_").to_uppercase()),
        })
    });
    let mut names: Vec<String> = keys.collect();
    // Each of these undoes the others.
    for group in [
        &["SBATCH_REQUEUE", "SBATCH_NO_REQUEUE"][..],
        &["SBATCH_MEM_PER_NODE", "SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU"],
    ] {
        if names.iter().any(|name| group.contains(&name.as_str())) {
            names.extend(group.iter().map(ToString::to_string));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_behind_whatever_a_site_writes() {
        assert_eq!(number_in("12\n"), Some((12, None)));
        assert_eq!(number_in("Welcome to 7\n12;south\n"), Some((12, Some("south".to_owned()))));
        assert_eq!(number_in("7 jobs\n12; or so\n"), None);
    }

    #[test]
    fn what_the_script_says_is_not_said_otherwise_by_a_variable() {
        let script = "#!/bin/sh\n#SBATCH --time=5\n#SBATCH -p gpu\n#SBATCH --gpus-per-node=2\n\
                      #SBATCH --mem=1\necho --qos=x\n";
        let names = said_variables(script);
        for name in [
            "SBATCH_TIMELIMIT",
            "SBATCH_PARTITION",
            "SBATCH_GPUS_PER_NODE",
            "SBATCH_MEM_PER_NODE",
            "SBATCH_MEM_PER_CPU",
        ] {
            assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
        }
        assert!(!names.iter().any(|it| it == "SBATCH_QOS"), "{names:?}");
    }
}
