//! Putting the state right by what Slurm says of this node.
//!
//! - An epilog that never ran leaves a job's file behind. A job that Slurm does not know, and
//!   that has no process here, is forgotten.
//! - A job whose prolog never ran, or whose file is damaged, runs without being counted. What
//!   it asked for is taken from wherever it may be.
//!
//! Whoever asks Slurm does this for all: once a minute, whenever a job has to be looked up, or
//! at once if there is no room otherwise. If Slurm does not answer, all stays as it is.

use std::path::Path;

use packhorse_orders::{GpuPart, JobOrders};

use crate::cgroups::SlurmCgroups;
use crate::config::{Config, Mode};
use crate::queue::{AnswerNeed, NodeQueue, QueuedJob, ask};
use crate::servers::{self, is_used};
use crate::slurm::Slurm;
use crate::state::{Damaged, State, StateError, StateLock, now};

/// A node whose state can be put right.
#[derive(Clone, Copy, Debug)]
pub struct Healer<'a> {
    /// Its configuration.
    pub config: &'a Config,
    pub state: &'a State,
    /// What Slurm calls it, if that is known.
    pub node: Option<&'a str>,
    /// A job to leave alone: its prolog is asking.
    pub except: Option<u32>,
}

impl Healer<'_> {
    /// What Slurm says, and the MPS servers to look after: their jobs turned out to be gone, or
    /// nobody knows of any. The state must not be locked: Slurm may take its time.
    pub fn heal(&self, need: AnswerNeed) -> (Option<NodeQueue>, Vec<String>) {
        let before = || self.state.jobs(None).map(|(jobs, _)| jobs);
        let node = self.node.map_or_else(host_name, str::to_owned);
        let slurm = Slurm::new(&self.config.scontrol);
        let mut servers = Vec::new();
        let queue = ask(self.state, &slurm, &node, need, before, |queue, before| {
            let (Ok(before), Ok(lock)) = (before, self.state.lock()) else {
                return false;
            };
            let cgroups = SlurmCgroups::find();
            self.forget_the_gone(&lock, queue, &cgroups, before);
            let counted = self.count_the_uncounted(&lock, queue, &cgroups);
            servers = servers::names(&self.config.mps.folder);
            servers.retain(|name| !counted.as_ref().is_ok_and(|jobs| is_used(jobs, name)));
            counted.is_ok()
        });
        (queue, servers)
    }

    /// Removes the files of jobs that are not there any more. Of those `before` Slurm was
    /// asked: it does not know yet of whatever came later.
    fn forget_the_gone(
        &self,
        lock: &StateLock,
        queue: &NodeQueue,
        cgroups: &SlurmCgroups,
        before: Vec<JobOrders>,
    ) {
        let is_gone = |job: &JobOrders| {
            Some(job.job) != self.except
                && queue.job(job.job).is_none()
                && !cgroups.has_processes(job.uid, job.job)
                // One that was written again meanwhile is there again.
                && self.state.job(job.job).as_ref() == Some(job)
                && self.state.remove_job(lock, job.job)
        };
        for job in before.into_iter().filter(is_gone) {
            let (number, user) = (job.job, &job.user);
            let text = format!("job {number} of {user} is gone without an epilog: taken back");
            self.state.log(now(), &text);
        }
    }

    /// Removes damaged files, and counts the jobs that run without orders. Those that had some
    /// before.
    fn count_the_uncounted(
        &self,
        lock: &StateLock,
        queue: &NodeQueue,
        cgroups: &SlurmCgroups,
    ) -> Result<Vec<JobOrders>, StateError> {
        let (jobs, damaged) = self.state.jobs(Some(lock))?;
        for file in &damaged {
            self.state.log(now(), &format!("dropped {}: {}", file.name, file.why));
            self.state.remove_damaged(lock, file);
        }
        let had_orders = |job: u32| damaged.iter().any(|file| file.is_of(job));
        for job in &queue.jobs {
            // A job whose prolog is still to come has no process yet, and one whose epilog
            // has been has none any more.
            if job.is_running
                && Some(job.job) != self.except
                && !jobs.iter().any(|other| other.job == job.job)
                && (had_orders(job.job) || cgroups.has_processes(job.uid, job.job))
            {
                self.count(lock, job, had_orders(job.job));
            }
        }
        Ok(jobs)
    }

    /// Counts a job where it may be: on GPU 0, where Slurm counts, if it never had orders;
    /// else on all of them, since nobody knows any more which it was given.
    fn count(&self, lock: &StateLock, job: &QueuedJob, had_orders: bool) {
        let mps = match job.mps {
            Some(mps) => mps,
            // It was asked for in another way, which Slurm does not show.
            None if had_orders => self.config.per_gpu(),
            None => return,
        };
        let (number, uid) = (job.job, job.uid);
        let runs = format!("job {number} of user {uid} runs without orders");
        let (gpus, place) = if self.config.mode == Mode::Native {
            (Vec::new(), "no GPU of ours, since Slurm counts")
        } else if had_orders {
            let units = mps.min(self.config.per_gpu());
            let all = (0..).zip(&self.config.gpus);
            let all = all.map(|(gpu, _)| GpuPart { gpu, units });
            (all.collect(), "every GPU, as its file is lost")
        } else {
            (vec![GpuPart { gpu: 0, units: mps }], "GPU 0")
        };
        let orders = JobOrders {
            job: number,
            uid,
            // Its name may have to be asked for in the network, and the state is locked.
            user: uid.to_string(),
            boot: self.state.boot().to_owned(),
            since: now(),
            share: mps,
            gpus,
            ..JobOrders::default()
        };
        let text = match self.state.write_job(lock, &orders) {
            Ok(()) => format!("{runs}: counted on {place}"),
            Err(error) => format!("{runs}, and cannot be counted: {error}"),
        };
        self.state.log(now(), &text);
    }
}

impl Damaged {
    fn is_of(&self, job: u32) -> bool {
        self.name == job.to_string()
    }
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
