//! No job that runs is left uncounted, and none that has ended is counted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use packhorse_test_parts::needs;

use crate::fake_slurm::{FakeNode, exists};

#[test]
fn what_a_job_with_a_damaged_file_has_is_not_given_to_others() {
    let node = FakeNode::new("");
    for job in 1..=4 {
        node.prolog(job, 160);
    }
    fs_err::write(node.orders(4), "nonsense").unwrap();
    // Slurm says that it runs, so what it asked for is counted, on whichever GPU it is.
    node.prolog(5, 320);
    assert!(node.asked().contains("requeue 5"), "{}", node.asked());
    assert_eq!(node.used(), [320, 320, 320, 160]);
    let problems = node.status()["problems"].to_string();
    let told = "runs without orders: counted on every GPU, as its file is lost";
    assert!(problems.contains(told), "{problems}");
    // Its prolog chooses anew, and its epilog gives it back.
    node.prolog(4, 320);
    assert_eq!(node.used(), [160, 160, 160, 320]);
    node.epilog(4, 320);
    assert_eq!(node.used(), [160, 160, 160, 0]);
    // While Slurm does not answer, nobody knows, and the file is left to be told of.
    fs_err::write(node.orders(2), "nonsense").unwrap();
    node.falls_silent();
    node.prolog(6, 64);
    assert_eq!(node.gpus(6), [0_u32; 0], "it may be any that job 2 has");
    let orders = fs_err::read_to_string(node.orders(6)).unwrap();
    assert!(orders.contains("\nrefused the file of job 2"), "{orders}");
    let problems = node.status()["problems"].to_string();
    assert!(problems.contains("cannot read 2"), "{problems}");
    assert!(exists(&node.orders(2)));
}

/// A cgroup of a job of user 1000, as Slurm makes it. Tests that run at the same time see it, too:
/// its number is its own.
struct JobCgroup(PathBuf);

impl JobCgroup {
    fn new(job: u32) -> Self {
        let slurm = format!("/sys/fs/cgroup/freezer/slurm_test{}", std::process::id());
        let folder = Path::new(&slurm).join(format!("uid_1000/job_{job}/step_0"));
        fs_err::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A process in it, until it is dropped.
    fn run(&self) -> Running {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        fs_err::write(self.0.join("cgroup.procs"), child.id().to_string()).unwrap();
        Running(child)
    }
}

impl Drop for JobCgroup {
    fn drop(&mut self) {
        for folder in self.0.ancestors().take(4) {
            let _ = fs_err::remove_dir(folder);
        }
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_that_runs_without_orders_is_counted_and_told() {
    needs!(Cgroups1);
    let job = 70_007;
    let cgroup = JobCgroup::new(job);
    let node = FakeNode::new("");
    node.says(job, 64);
    node.says(8, 64);
    assert_eq!(node.used(), [0; 4], "neither has begun");
    let running = cgroup.run();
    assert_eq!(node.used(), [64, 0, 0, 0]);
    let problems = node.status()["problems"].to_string();
    assert_eq!(problems.matches("runs without orders").count(), 1, "{problems}");
    node.prolog(8, 64);
    assert_eq!(node.gpus(8), [1], "it is not where the other most likely is");
    // Prologs look, too.
    fs_err::remove_file(node.orders(job)).unwrap();
    node.forgets();
    node.prolog(9, 320);
    assert_eq!(node.used(), [64, 64, 320, 0]);
    drop(running);
    node.epilog(job, 64);
    assert_eq!(node.used(), [0, 64, 320, 0], "it has ended");
}

#[test]
fn an_empty_cgroup_that_stayed_behind_keeps_no_share() {
    needs!(Cgroups1);
    let job = 70_008;
    let cgroup = JobCgroup::new(job);
    let node = FakeNode::new("");
    node.prolog(job, 64);
    node.knows(&[]);
    let running = cgroup.run();
    assert_eq!(node.used(), [64, 0, 0, 0], "it has a process");
    drop(running);
    assert_eq!(node.used(), [0; 4]);
}

#[test]
fn a_job_that_slurm_cannot_take_back_is_ended_by_its_orders() {
    let node = FakeNode::new("");
    node.says(1, 320);
    for job in 1..=5 {
        node.prolog(job, 320);
    }
    let orders = fs_err::read_to_string(node.orders(5)).unwrap();
    assert!(orders.contains("\nrefused no GPU has mps:320 left"), "{orders}");
    assert!(orders.contains("\ndeny 1 3\n"), "{orders}");
    assert!(!orders.contains("\nallow "), "{orders}");
    let status = node.status();
    assert_eq!(status["refused"][0]["job"], 5, "{status}");
    // It was written before Slurm was asked, which may take long.
    fs_err::write(node.path("bin/scontrol"), "#!/bin/sh\nkill -9 $PPID\n").unwrap();
    node.prolog(6, 320);
    let orders = fs_err::read_to_string(node.orders(6)).unwrap();
    assert!(orders.contains("\nrefused "), "{orders}");
}

#[test]
fn a_slow_slurm_refuses_no_job_that_is_allowed() {
    let node = FakeNode::new("[[allow]]\nmost = 64\n");
    node.falls_silent();
    node.prolog(1, 64);
    assert!(!node.asked().contains("scancel"), "{}", node.asked());
    // It is 64 to 76, and counted as the most.
    assert_eq!(node.used(), [76, 0, 0, 0]);
    node.prolog(2, 77);
    let orders = fs_err::read_to_string(node.orders(2)).unwrap();
    assert!(orders.contains("\nrefused mps:77 is too much"), "{orders}");
    // A whole GPU is one GPU all the same.
    let node = FakeNode::new("");
    node.falls_silent();
    node.prolog(1, 320);
    assert_eq!(node.used(), [320, 0, 0, 0]);
}

#[test]
fn a_job_whose_amount_slurm_does_not_show_is_counted_as_a_whole_gpu_when_its_file_is_lost() {
    let node = FakeNode::new("");
    node.prolog(1, 64);
    // As with --tres-per-task.
    fs_err::write(node.path("job.1"), "N/A").unwrap();
    fs_err::write(node.orders(1), "nonsense").unwrap();
    assert_eq!(node.used(), [320; 4]);
}

#[test]
fn a_job_that_is_refused_when_its_prolog_runs_again_has_what_it_had_until_it_ends() {
    let node = FakeNode::new("");
    node.prolog(1, 64);
    node.configure("[[allow]]\nmost = 32\n");
    node.prolog(1, 64);
    assert!(node.asked().contains("scancel 1"), "{}", node.asked());
    assert_eq!(node.used(), [64, 0, 0, 0]);
    node.epilog(1, 64);
    assert_eq!(node.used(), [0; 4]);
}

#[test]
fn a_job_that_another_node_has_sent_back_is_not_cancelled() {
    let node = FakeNode::new("");
    for job in 1..=4 {
        node.prolog(job, 320);
    }
    fs_err::write(node.path("requeue"), "1").unwrap();
    node.says_state(5, "PENDING");
    node.prolog(5, 320);
    assert!(node.asked().contains("requeue 5"), "{}", node.asked());
    assert!(!node.asked().contains("scancel 5"), "{}", node.asked());
    // One that Slurm does not take back is ended.
    node.says_state(6, "CONFIGURING");
    node.prolog(6, 320);
    assert!(node.asked().contains("scancel 6"), "{}", node.asked());
}
