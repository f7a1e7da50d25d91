//! Slurm's own commands, each with a time limit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use packhorse_orders::SCONTROL;

use crate::limited::{self, Heard, Limits};
use crate::queue::{NodeQueue, QueuedJob};

/// A controller that is busy answers within this time, or the prolog goes on without it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `squeue` is asked of a job: its number, its user, its state, what it asked for, its
/// array and its place in that.
const ROW: &str = "%A|%U|%T|%b|%F|%K";

/// No answer is longer.
const MOST_ANSWER: usize = 1 << 24;

/// Who has orders that end a job which must not run, if Slurm does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrdersOf {
    /// The job itself.
    Job,
    /// Nobody: they could not be written.
    Nobody,
}

/// Slurm's commands on this node.
#[derive(Clone, Debug)]
pub struct Slurm {
    scontrol: PathBuf,
}

impl Slurm {
    /// `squeue` and `scancel` are beside `scontrol`.
    pub fn new(scontrol: &Path) -> Self {
        Self { scontrol: scontrol.to_owned() }
    }

    /// `scontrol` in one of the places where it usually is.
    pub fn find() -> Option<PathBuf> {
        let mut usual = [SCONTROL, "/usr/local/bin/scontrol", "/opt/slurm/bin/scontrol"]
            .iter()
            .map(PathBuf::from);
        usual.find(|file| file.exists())
    }

    /// How Slurm is configured.
    pub fn show_config(&self) -> Option<String> {
        self.run("scontrol", &["show", "config"])
    }

    /// What Slurm knows of a node.
    pub fn show_node(&self, node: &str) -> Option<String> {
        self.run("scontrol", &["-o", "show", "node", node])
    }

    /// The jobs that are on this node, as [`crate::queue::NodeQueue`] reads them. `None`: Slurm
    /// does not answer.
    pub fn queue(&self, node: &str) -> Option<String> {
        // All: those in hidden partitions, too.
        let words = ["-h", "-a", "-r", "-w", node, "-o", ROW];
        self.run("squeue", &words)
    }

    /// Sends a job back to the queue, or cancels it if it cannot go there.
    pub fn send_back(&self, job: u32, why: &str, orders: OrdersOf) {
        let Some(name) = self.name_of(job, orders) else {
            return;
        };
        self.comment(&name, why);
        if self.run("scontrol", &["requeue", &name]).is_some() {
            return;
        }
        // The prolog of another node may have done that, or Slurm was too slow to say so.
        let queue = self.find_job(job);
        let is_there = |queue: &NodeQueue| queue.job(job).is_some_and(|job| job.has_node);
        if queue.as_ref().map_or(orders == OrdersOf::Nobody, is_there) {
            self.run("scancel", &[&name]);
        }
    }

    /// Ends a job.
    pub fn cancel(&self, job: u32, why: &str, orders: OrdersOf) {
        if let Some(name) = self.name_of(job, orders) {
            self.comment(&name, why);
            self.run("scancel", &[&name]);
        }
    }

    /// What to call a job that is to end, if that can be said.
    fn name_of(&self, job: u32, orders: OrdersOf) -> Option<String> {
        match (self.find_job(job), orders) {
            (Some(queue), _) => queue.job(job).map(QueuedJob::name),
            // By its number it may be an array: its own orders end it, and nothing else.
            (None, OrdersOf::Job) => None,
            (None, OrdersOf::Nobody) => Some(job.to_string()),
        }
    }

    /// What Slurm knows of one job. By its number it shows all elements of the job's array, if
    /// the job has the number of that. `None`: it does not answer.
    fn find_job(&self, job: u32) -> Option<NodeQueue> {
        let words = ["-h", "-a", "-r", "-j", &job.to_string(), "-o", ROW];
        NodeQueue::parse(&self.run("squeue", &words)?)
    }

    /// Says to whoever looks at the job what became of it.
    fn comment(&self, job: &str, why: &str) {
        let why = why.lines().next().unwrap_or_default();
        let (job, comment) = (format!("JobId={job}"), format!("Comment=packhorse: {why}"));
        self.run("scontrol", &["update", &job, &comment]);
    }

    /// What a command says, if it succeeds in time. There is no PATH in a prolog.
    fn run(&self, name: &str, words: &[&str]) -> Option<String> {
        let mut command = Command::new(self.scontrol.with_file_name(name));
        command.args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let limits = Limits { patience: PATIENCE, most: MOST_ANSWER };
        let (status, text) = limited::run(&mut command, Heard::Output, limits).ok()?;
        status.success().then_some(text)
    }
}
