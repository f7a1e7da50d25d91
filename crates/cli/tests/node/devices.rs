//! A task can open its own GPU and no other, however it was started.

use packhorse_slurm_lab::{Cgroups, SlurmVersion};
use packhorse_test_parts::needs;

use crate::fake_slurm::finish;
use crate::lab::{NOBODY, NodeLab, NodeSettings};

fn every_task_sees_its_own_gpu(version: SlurmVersion, cgroups: Cgroups) {
    let settings = NodeSettings {
        version,
        cgroups,
        slurm_conf: &["PrologFlags=Alloc,Contain"],
        ..NodeSettings::default()
    };
    let lab = NodeLab::start(settings);
    // On GPU 0, which is the one that Slurm counts on.
    let first = lab.submit_lasting(NOBODY, 64);
    lab.wait_for_work(&first);

    let look = |name: &str| lab.look(name);
    let script = format!(
        "{}; srun -n2 --mem=10 sh -c '{}'; srun -n1 --mem=10 sh -c \"srun --overlap --mem=0 -n1 sh look.sh\"; {}",
        look("batch"),
        look("srun").replace('\'', "'\\''"),
        // Slurm 22.05 takes from it what it did not give itself, when a step begins.
        look("after"),
    );
    fs_err::write(lab.folder().join("out/look.sh"), look("nested")).unwrap();
    let options = ["-n2", "--gres=mps:64", "--output=batch.txt"];
    let job = lab.submit(NOBODY, &options, &script);
    lab.slurm.wait_for_job(&job, "COMPLETED");
    let text = lab.wrote("batch.txt");
    for (name, count) in [("batch", 1), ("srun", 2), ("nested", 1), ("after", 1)] {
        let line = format!("{name} visible=0 threads=20 opens=1");
        let found = text.lines().filter(|other| **other == line).count();
        assert_eq!(found, count, "{line}:\n{text}");
    }

    // An allocation with steps, and one task of an interactive step.
    let mut salloc = lab.by(NOBODY, "salloc");
    salloc.args(["-n2", "--mem=50", "--gres=mps:64", "srun", "sh", "-c", &look("salloc")]);
    let text = lab.slurm.output(&mut salloc);
    let line = "salloc visible=0 threads=20 opens=1";
    assert_eq!(text.lines().filter(|other| *other == line).count(), 2, "{text}");
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["--mem=50", "--gres=mps:64", "sh", "-c", &look("interactive")]);
    let text = lab.slurm.output(&mut srun);
    assert!(text.contains("interactive visible=0 threads=20 opens=1"), "{text}");

    let mut salloc = lab.by(NOBODY, "salloc");
    salloc.args(["--mem=50", "--gres=mps:64", "srun", "--interactive", "--mem=0"]);
    let text = lab.slurm.output(salloc.args(["sh", "-c", &look("shell")]));
    assert!(text.contains("shell visible=0 threads=20 opens=1"), "{text}");

    // What logs in to a job's node is put into a cgroup of the job's own. Here root does that.
    let script = format!(
        "for folder in $(find /sys/fs/cgroup/devices -path \"*/job_$SLURM_JOB_ID/step_extern\"; \
         find /sys/fs/cgroup -path \"*/job_$SLURM_JOB_ID/step_extern/user/task_special\"); do \
         echo $$ >$folder/cgroup.procs; {}; done",
        look("login")
    );
    let root = (0, "root");
    let job = lab.submit(root, &["--gres=mps:64", "--output=login.txt"], &script);
    lab.slurm.wait_for_job(&job, "COMPLETED");
    let text = lab.wrote("login.txt");
    assert!(text.contains("login visible=0 threads=20 opens=1"), "{text}");

    a_login_before_the_first_step_sees_its_jobs_gpu(&lab);
    steps_at_once_do_not_end_each_other(&lab, cgroups);
    elements_of_an_array_are_jobs_of_their_own(&lab);

    // A job with a whole GPU is as Slurm made it.
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["--mem=50", "--gres=gpu:1", "sh", "-c", &look("whole")]);
    let text = lab.slurm.output(&mut srun);
    let (_, opens) = text.trim().split_once("opens=").unwrap();
    assert_eq!(opens.len(), 1, "{text}");
    assert!(text.contains(" threads= "), "{text}");
    lab.end_lasting();
    lab.slurm.wait_for_job(&first, "COMPLETED");
}

fn a_login_before_the_first_step_sees_its_jobs_gpu(lab: &NodeLab) {
    let mut salloc = lab.by(NOBODY, "salloc");
    let given = finish(salloc.args(["--no-shell", "--mem=50", "--gres=mps:64"]));
    let number = |line: &str| line.strip_prefix("salloc: Granted job allocation ")?.parse().ok();
    let job: u32 = given.stderr.lines().find_map(number).unwrap();
    let script = format!(
        "for folder in $(find /sys/fs/cgroup/devices -path '*/job_{job}/step_extern'; \
         find /sys/fs/cgroup -path '*/job_{job}/step_extern/user/task_special'); do \
         echo $$ >$folder/cgroup.procs; {}; done",
        lab.look("login")
    );
    let options = ["--gres=mps:64", "--output=early.txt"];
    let other = lab.submit((0, "root"), &options, &script);
    lab.slurm.wait_for_job(&other, "COMPLETED");
    let text = lab.wrote("early.txt");
    assert!(text.contains("opens=1\n"), "{text}");
    let mut scancel = lab.by(NOBODY, "scancel");
    lab.slurm.output(scancel.arg(job.to_string()));
    lab.slurm.wait_for_job(&job.to_string(), "CANCELLED");
}

fn steps_at_once_do_not_end_each_other(lab: &NodeLab, cgroups: Cgroups) {
    let script = format!(
        "for step in 1 2 3 4 5 6 7 8; do srun --overlap --mem=0 sh -c '{}' & done; wait",
        lab.look("beside").replace('\'', "'\\''")
    );
    let job = lab.submit(NOBODY, &["--gres=mps:64", "--output=steps.txt"], &script);
    lab.slurm.wait_for_job(&job, "COMPLETED");
    let text = lab.wrote("steps.txt");
    // With version 1, Slurm takes it away from the others for a moment when a step begins.
    let is_right = |line: &&str| {
        line.ends_with(" opens=1") || cgroups == Cgroups::Version1 && line.ends_with(" opens=")
    };
    assert_eq!(text.lines().filter(is_right).count(), 8, "{text}");
}

fn elements_of_an_array_are_jobs_of_their_own(lab: &NodeLab) {
    let options = ["--array=0-1", "--gres=mps:64", "--output=array.%a.txt"];
    let job = lab.submit(NOBODY, &options, &lab.look("element"));
    lab.slurm.wait_for_job(&job, "COMPLETED");
    for name in ["array.0.txt", "array.1.txt"] {
        let text = lab.wrote(name);
        let (_, opens) = text.split_once("visible=0 threads=20 opens=").unwrap();
        assert!(["1", "2", "3"].contains(&opens.trim()), "{text}");
    }
}

/// Slurm gives each part of such a job a number of its own, and tells all tasks that of the
/// first.
fn each_part_of_a_heterogeneous_job_has_its_own_share(version: SlurmVersion) {
    let settings = NodeSettings { nodes: 2, count: 100, version, ..NodeSettings::default() };
    let lab = NodeLab::start(settings);
    let script = format!(
        "#!/bin/sh\n#SBATCH --mem=50 --gres=mps:5 --output=parts.txt\n#SBATCH hetjob\n\
         #SBATCH --mem=50 --gres=mps:20\n\
         srun --het-group=0,1 sh -c '{}'\n",
        lab.look("part$SLURM_PROCID").replace('\'', "'\\''")
    );
    fs_err::write(lab.folder().join("out/parts.sh"), script).unwrap();
    let mut sbatch = lab.by(NOBODY, "sbatch");
    let job = lab.slurm.output(sbatch.args(["--parsable", "parts.sh"]));
    lab.slurm.wait_for_job(&format!("{}+0", job.trim()), "COMPLETED");
    let text = lab.wrote("parts.txt");
    for (part, threads) in [("part0 ", " threads=20 "), ("part1 ", " threads=80 ")] {
        let line = text.lines().find(|line| line.starts_with(part));
        assert!(line.is_some_and(|line| line.contains(threads)), "{text}");
    }
}

#[test]
fn each_part_of_a_heterogeneous_job_has_its_own_share_with_slurm_22_05() {
    needs!(Slurm);
    each_part_of_a_heterogeneous_job_has_its_own_share(SlurmVersion::Host);
}

#[test]
fn each_part_of_a_heterogeneous_job_has_its_own_share_with_slurm_24_11() {
    needs!(Slurm24);
    each_part_of_a_heterogeneous_job_has_its_own_share(SlurmVersion::V24_11);
}

#[test]
fn with_cgroups_of_version_1() {
    needs!(Slurm);
    every_task_sees_its_own_gpu(SlurmVersion::Host, Cgroups::Version1);
}

#[test]
fn with_cgroups_of_version_2() {
    needs!(Slurm);
    every_task_sees_its_own_gpu(SlurmVersion::Host, Cgroups::Version2);
}

#[test]
fn with_cgroups_of_version_1_and_slurm_24_11() {
    needs!(Slurm24);
    every_task_sees_its_own_gpu(SlurmVersion::V24_11, Cgroups::Version1);
}

#[test]
fn with_cgroups_of_version_2_and_slurm_24_11() {
    needs!(Slurm24);
    every_task_sees_its_own_gpu(SlurmVersion::V24_11, Cgroups::Version2);
}

#[test]
fn where_nothing_keeps_jobs_apart_each_is_told_its_own_gpu_and_the_nodes_log_says_so() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings::default());
    let first = lab.submit_lasting(NOBODY, 64);
    lab.wait_for_work(&first);
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["--mem=50", "--gres=mps:64", "sh", "-c", &lab.look("open")]);
    let text = lab.slurm.output(&mut srun);
    assert_eq!(text, "open visible=1 threads=20 opens=0123\n");
    let log = fs_err::read_to_string(lab.folder().join("log/slurmd.n1.log")).unwrap();
    assert!(log.contains("is in no cgroup for devices"), "{log}");
}
