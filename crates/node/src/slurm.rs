//! Slurm's own commands, each with a time limit.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A controller that is busy answers within this time, or the prolog goes on without it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where `scontrol` is, unless the configuration names another place.
pub const SCONTROL: &str = "/usr/bin/scontrol";

/// Slurm's commands on this node.
#[derive(Clone, Debug)]
pub struct Slurm {
    scontrol: PathBuf,
}

impl Slurm {
    /// `squeue` and `scancel` are beside `scontrol`.
    pub fn new(scontrol: &Path) -> Self {
        Self {
            scontrol: scontrol.to_owned(),
        }
    }

    /// `scontrol` in one of the places where it usually is.
    pub fn find() -> Option<PathBuf> {
        let mut usual = [
            SCONTROL,
            "/usr/local/bin/scontrol",
            "/opt/slurm/bin/scontrol",
        ]
        .iter()
        .map(PathBuf::from);
        usual.find(|file| file.exists())
    }

    /// What `scontrol` says of a job, with what it has of each node.
    pub fn show_job(&self, job: u32) -> Option<String> {
        self.run("scontrol", &["-o", "-d", "show", "job", &job.to_string()])
    }

    /// How Slurm is configured.
    pub fn show_config(&self) -> Option<String> {
        self.run("scontrol", &["show", "config"])
    }

    /// What Slurm knows of a node.
    pub fn show_node(&self, node: &str) -> Option<String> {
        self.run("scontrol", &["-o", "show", "node", node])
    }

    /// The jobs that are on this node. `None`: Slurm does not answer.
    pub fn jobs_on(&self, node: &str) -> Option<BTreeSet<u32>> {
        let answer = self.run("squeue", &["-h", "-r", "-w", node, "-o", "%A"])?;
        let jobs = answer
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        // An answer that cannot be understood is none.
        jobs.map(|line| line.parse().ok()).collect()
    }

    /// Sends a job back to the queue, or cancels it if it cannot go there.
    pub fn send_back(&self, job: u32, why: &str) {
        self.comment(job, why);
        if self
            .run("scontrol", &["requeue", &job.to_string()])
            .is_none()
        {
            self.run("scancel", &[&job.to_string()]);
        }
    }

    /// Ends a job.
    pub fn cancel(&self, job: u32, why: &str) {
        self.comment(job, why);
        self.run("scancel", &[&job.to_string()]);
    }

    /// Says to whoever looks at the job what became of it.
    fn comment(&self, job: u32, why: &str) {
        let why = why.lines().next().unwrap_or_default();
        let (job, comment) = (format!("JobId={job}"), format!("Comment=packhorse: {why}"));
        self.run("scontrol", &["update", &job, &comment]);
    }

    /// What a command says, if it succeeds in time. There is no PATH in a prolog.
    fn run(&self, name: &str, words: &[&str]) -> Option<String> {
        let program = self.scontrol.with_file_name(name);
        let mut child = Command::new(program)
            .args(words)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let deadline = Instant::now() + PATIENCE;
        let mut output = child.stdout.take()?;
        let mut text = Vec::new();
        let mut part = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            let ready = poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&left));
            match ready {
                Err(rustix::io::Errno::INTR) => {}
                Ok(1..) => match output.read(&mut part) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => text.extend_from_slice(&part[..count]),
                },
                _ => {
                    let _ = child.kill();
                    break;
                }
            }
        }
        let status = child.wait().ok()?;
        status
            .success()
            .then(|| String::from_utf8_lossy(&text).into_owned())
    }
}
