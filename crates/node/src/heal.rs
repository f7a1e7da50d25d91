//! Putting the state right: jobs that Slurm does not know any more.
//!
//! An epilog that never ran leaves a job's file behind. A job that has a cgroup on this
//! machine is there. Of the others Slurm is asked, once a minute at most, or at once if
//! there is no room otherwise. A job that Slurm knows, or that has a cgroup, stays; if
//! Slurm does not answer, all stay.

use std::path::Path;

use packhorse_orders::JobOrders;

use crate::slurm::Slurm;
use crate::state::{State, now};

/// How long to go on without asking again, in seconds.
const BETWEEN_QUESTIONS: u64 = 60;

/// When to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Not again within a minute.
    Usual,
    /// Now: there is no room, or somebody is looking.
    Now,
}

/// Removes the files of jobs that are not there any more. Says which. The state must not be
/// locked: Slurm may take its time.
pub fn forget_the_gone(
    state: &State,
    slurm: &Slurm,
    node: Option<&str>,
    except: Option<u32>,
    urgency: Urgency,
) -> Vec<JobOrders> {
    let now = now();
    let is_recent = state
        .asked()
        .is_some_and(|asked| asked <= now && now - asked < BETWEEN_QUESTIONS);
    if is_recent && urgency == Urgency::Usual {
        return Vec::new();
    }
    let Ok((jobs, _)) = state.jobs(None) else {
        return Vec::new();
    };
    let is_suspect = |job: &JobOrders| Some(job.job) != except && !has_cgroup(job);
    let suspects: Vec<JobOrders> = jobs.into_iter().filter(is_suspect).collect();
    if suspects.is_empty() {
        return Vec::new();
    }
    let node = node.map_or_else(host_name, str::to_owned);
    state.set_asked(now);
    let Some(known) = slurm.jobs_on(&node) else {
        return Vec::new();
    };
    let gone = suspects.into_iter().filter(|job| !known.contains(&job.job));
    let Ok(lock) = state.lock() else {
        return Vec::new();
    };
    // One that was written again meanwhile is there again.
    let gone = gone.filter(|job| state.job(job.job).as_ref() == Some(job));
    let gone: Vec<JobOrders> = gone
        .filter(|job| state.remove_job(&lock, job.job))
        .collect();
    for job in &gone {
        state.log(
            now,
            &format!(
                "job {} of {} is gone without an epilog: taken back",
                job.job, job.user
            ),
        );
    }
    gone
}

/// Whether a step of the job has a cgroup here. Slurm's folders have no fixed names.
fn has_cgroup(job: &JobOrders) -> bool {
    let below_user = format!("uid_{}/job_{}", job.uid, job.job);
    let below = format!("job_{}", job.job);
    let any = |root: &str, folder: &dyn Fn(&str) -> bool, path: &str| {
        let entries = fs_err::read_dir(root).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(folder))
            .any(|entry| entry.path().join(path).is_dir())
    };
    let is_slurm = |name: &str| name.starts_with("slurm");
    let is_scope = |name: &str| name.ends_with("slurmstepd.scope");
    ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/devices"]
        .iter()
        .any(|root| any(root, &is_slurm, &below_user))
        || any("/sys/fs/cgroup/system.slice", &is_scope, &below)
}

/// What Slurm calls this node, as far as we know: its name without the domain.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Whether there is such a program.
pub fn exists(path: &Path) -> bool {
    fs_err::metadata(path).is_ok_and(|found| found.is_file())
}
