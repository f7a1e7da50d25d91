//! Jobs that Slurm itself loses.
//!
//! When many jobs begin at once, slurmd 22.05 sometimes does not see that it has begun the
//! prolog of one of them. Slurm takes that for a prolog that failed: it puts the job back into
//! its queue, holds it there, and drains the node. Nothing that is tested here has a part in
//! it, so the job is asked for again; but only if the node's log says that this has happened.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::SlurmLab;

/// The jobs that were lost and not asked for again, by node.
#[derive(Default)]
pub struct LostJobs {
    nodes: RefCell<BTreeMap<String, NodeLog>>,
}

/// What is known of a node's log.
#[derive(Default)]
struct NodeLog {
    /// How much of it was read.
    read: u64,
    lost: Vec<String>,
}

impl LostJobs {
    /// Asks again for jobs that were lost, and are held by now.
    pub fn ask_again(&self, lab: &SlurmLab) {
        for node in lab.nodes() {
            let mut nodes = self.nodes.borrow_mut();
            let log = nodes.entry(node.clone()).or_default();
            log.read_on(&lab.folder().join(format!("log/slurmd.{node}.log")));
            log.lost.retain(|job| !is_held(lab, job) || !ask_again(lab, &node, job));
        }
    }
}

impl NodeLog {
    /// Reads the lines that are new.
    fn read_on(&mut self, log: &Path) {
        let mut text = Vec::new();
        // There is none before the node is up.
        let _ = fs_err::File::open(log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut text)
        });
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += complete as u64;
        let text = String::from_utf8_lossy(&text[..complete]);
        self.lost.extend(text.lines().filter_map(lost_job).map(str::to_owned));
    }
}

/// The job that is lost if a node says this.
fn lost_job(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Waiting for JobId=")?;
    let (job, rest) = rest.split_once(' ')?;
    rest.starts_with("REQUEST_LAUNCH_PROLOG notification failed").then_some(job)
}

/// Lets a job start that is held, on a node that may be drained. Whether it was held still.
fn ask_again(lab: &SlurmLab, node: &str, job: &str) -> bool {
    let mut scontrol = lab.command("scontrol");
    let node = format!("nodename={node}");
    let _ = scontrol.args(["update", &node, "state=resume"]).output();
    let released = lab.command("scontrol").args(["release", job]).output();
    released.is_ok_and(|released| released.status.success())
}

/// Whether a job is in the queue and held: it has no priority then.
fn is_held(lab: &SlurmLab, job: &str) -> bool {
    let mut squeue = lab.command("squeue");
    let shown = squeue.args(["--noheader", "--format=%T %Q", "--jobs", job]).output();
    shown.is_ok_and(|shown| shown.stdout.trim_ascii() == b"PENDING 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_log_calls_lost_is_lost() {
        let line = "[2026-01-01T00:00:00.000] error: Waiting for JobId=7 \
                    REQUEST_LAUNCH_PROLOG notification failed, giving up after 20 sec";
        assert_eq!(lost_job(line), Some("7"));
        assert_eq!(lost_job("[2026-01-01T00:00:00.000] Waiting for JobId=7 to complete"), None);
    }

    #[test]
    fn each_line_is_read_once_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let line = "Waiting for JobId=7 REQUEST_LAUNCH_PROLOG notification failed";
        let mut log = NodeLog::default();
        log.read_on(&path);
        fs_err::write(&path, line).unwrap();
        log.read_on(&path);
        assert!(log.lost.is_empty());
        fs_err::write(&path, format!("{line}\n")).unwrap();
        log.read_on(&path);
        log.read_on(&path);
        assert_eq!(log.lost, ["7"]);
    }
}
