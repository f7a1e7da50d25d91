//! `packhorse exp --slurm` without a Slurm: whoever is called `sbatch` takes every job, and
//! the test runs its elements when it likes.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::cores::our_cores;
use crate::support::{Done, World, finish};

/// A world with a cluster that never starts anything by itself.
struct PretendedCluster {
    world: World,
}

impl PretendedCluster {
    fn new() -> Self {
        let world = World::new();
        fs_err::create_dir(world.work().join("bin")).unwrap();
        // Nobody asks a cluster that is really there.
        for (name, does) in [
            ("sbatch", "echo 4711"),
            ("squeue", "exit 1"),
            ("scontrol", "exit 1"),
            ("scancel", "exit 1"),
        ] {
            let path = world.write(&format!("bin/{name}"), format!("#!/bin/sh\n{does}\n"));
            fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { world }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        let bin = self.world.work().join("bin");
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        command
    }

    fn packhorse(&self, words: &[&str]) -> Done {
        finish(self.command(words))
    }

    /// Submits the repetitions of a file.
    fn exp(&self, file: &str, words: &[&str]) -> Done {
        self.world.write("config.yml", file);
        self.packhorse(&[&["exp", "config.yml", "--slurm"], words].concat())
    }

    /// Runs an element of a run, in a job with one GPU and all cores.
    fn element(&self, run: u32, index: u32) -> Done {
        self.element_in(&format!("packhorse-slurm/{run}"), index)
    }

    fn element_in(&self, folder: &str, index: u32) -> Done {
        let mut command = self.command(&["slurm", "element", folder, "0"]);
        command
            .env("SLURM_ARRAY_TASK_ID", index.to_string())
            .env("SLURM_ARRAY_JOB_ID", "4711")
            .env("SLURM_JOB_ID", "4711")
            .env("SLURMD_NODENAME", "n1")
            .env("SLURM_CPUS_ON_NODE", our_cores().len().to_string())
            .env("CUDA_VISIBLE_DEVICES", "3");
        finish(command)
    }
}

#[test]
fn equal_parts_of_a_jobs_cores_are_those_of_as_many_as_run_at_a_time() {
    let cluster = PretendedCluster::new();
    let file = "{name: exp, path: results, repetitions: 2, reps_per_job: 2, reps_in_parallel: 1}\n\
        ---\n{name: SLURM, scheduler: horeka, gpus_per_rep: 0.5, sbatch_args: {gres: 'gpu:1'}}\n";
    let task = "echo $CUDA_VISIBLE_DEVICES $PACKHORSE_CPU_CORES";
    let done = cluster.exp(file, &["--", "sh", "-c", task]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.element(1, 0).code, 0);
    for rep in 0..2 {
        let said = cluster.world.read(&format!("results/exp/log/rep_0{rep}/out.log"));
        let (gpu, cores) = said.trim().split_once(' ').unwrap();
        assert_eq!((gpu, cores.split(',').count()), ("3", our_cores().len()));
    }
}

#[test]
fn nobody_is_warned_of_room_that_is_not_there() {
    let cluster = PretendedCluster::new();
    let file = "{name: exp, path: results, repetitions: 256, reps_per_job: 128, \
        reps_in_parallel: 128}\n---\n{name: SLURM, cpus-per-task: 128, cpus_per_rep: 1}\n";
    let done = cluster.exp(file, &["--dry-run", "--", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
}

const TWO_REPS: &str = "{name: exp, path: results, repetitions: 2, reps_per_job: 2}";

#[test]
fn what_waits_on_the_cluster_is_not_submitted_again() {
    let cluster = PretendedCluster::new();
    let task = ["--", "sh", "-c", "echo x >> runs"];
    assert_eq!(cluster.exp(TWO_REPS, &task).code, 0);
    let again = |words: &[&str]| {
        let done = cluster.packhorse(&[&["exp", "config.yml"], words, &task].concat());
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        assert_eq!(
            done.stderr,
            "error: `results/exp/log/rep_00` belongs to task 1.1, which is still to run on the \
             cluster\nhint: wait for it with `packhorse slurm wait 1`, or end its run with \
             `packhorse stop 1`\n"
        );
    };
    again(&["--slurm"]);
    again(&["--slurm", "-o"]);
    again(&[]);
    // A grid that would use the same folder: the same.
    let grid = "scheduler_config: {gpu: ['0'], result_root_folder: tests}\ncommand: 'true'\n\
        test_config:\n- a: [1]\n";
    cluster.world.write("tests.yaml", grid);
    let words = ["grid", "tests.yaml", "--slurm"];
    assert_eq!(cluster.packhorse(&words).code, 0);
    let done = cluster.packhorse(&words);
    assert!(done.code == 2 && done.stderr.contains("belongs to task 2.1"), "{done:?}");
    // Others are not in its way; and what has ended is done.
    let file = TWO_REPS.replace("name: exp", "name: other");
    assert_eq!(cluster.exp(&file, &task).code, 0);
    assert_eq!(cluster.element(1, 0).code, 0);
    let done = cluster.exp(TWO_REPS, &task);
    assert!(done.stderr.starts_with("nothing to do"), "{done:?}");
    assert_eq!(cluster.world.read("runs").lines().count(), 2);
}

#[test]
fn what_another_run_has_done_meanwhile_is_kept_unless_it_is_to_be_overwritten() {
    let cluster = PretendedCluster::new();
    let task = ["--", "sh", "-c", "echo x >> runs"];
    cluster.world.write("config.yml", TWO_REPS);
    // Somebody else, whose runs nobody here knows.
    let other = |words: &[&str]| {
        let submit = ["exp", "config.yml", "--slurm", "--slurm-folder", "others"];
        let mut command = cluster.command(&[&submit, words, &task].concat());
        command.env("PACKHORSE_HOME", cluster.world.work().join("other-home"));
        assert_eq!(finish(command).code, 0);
    };
    other(&[]);
    assert_eq!(cluster.exp(TWO_REPS, &task).code, 0);
    assert_eq!(cluster.element(1, 0).code, 0);
    let runs = || cluster.world.read("runs").lines().count();
    assert_eq!(runs(), 2);
    assert_eq!(cluster.element_in("others/1", 0).code, 0);
    assert_eq!(runs(), 2, "both were done");
    let marker = cluster.world.json_of("results/exp/log/rep_00/.packhorse.json");
    let events = cluster.world.read("others/1/outcomes/0.1.jsonl");
    let kept = "another run has done it meanwhile: its results were kept";
    assert_eq!(events.matches(kept).count(), 2, "{events}");
    assert_eq!(marker["outcome"], "succeeded");
    other(&["-o"]);
    assert_eq!(cluster.element_in("others/2", 0).code, 0);
    assert_eq!(runs(), 4);
}

#[test]
fn a_job_leaves_alone_what_another_run_may_do_unless_it_was_told_that_this_is_over() {
    let cluster = PretendedCluster::new();
    let task = ["--", "sh", "-c", "echo $PACKHORSE_RESULTS >> runs"];
    let file = TWO_REPS;
    let local = ["exp", "config.yml", "--slots", "1", "--", "false"];
    cluster.world.write("config.yml", file);
    assert_eq!(cluster.packhorse(&local).code, 1);
    let running = |rep: u32, run: Option<&str>| {
        let path = format!("results/exp/log/rep_0{rep}/.packhorse.json");
        let mut marker = cluster.world.json_of(&path);
        marker["outcome"] = "running".into();
        if let Some(run) = run {
            marker["run"] = run.into();
        }
        cluster.world.write(&path, marker.to_string());
    };
    // One was left by a run that was killed. The other begins on another node, once the job is
    // submitted.
    running(0, None);
    assert_eq!(cluster.exp(file, &task).code, 0);
    running(1, Some("01234567-89ab-7cde-8f01-23456789abcd"));
    let done = cluster.element(2, 0);
    assert_eq!(done.code, 1, "{done:?}");
    let runs = cluster.world.read("runs");
    assert!(runs.lines().count() == 1 && runs.contains("rep_00"), "{runs}");
    let events = cluster.world.read("packhorse-slurm/2/outcomes/0.1.jsonl");
    let told = "`results/exp/log/rep_01` is in use: task 1.2 of another state folder or machine";
    assert!(events.contains(told), "{events}");
}

#[test]
fn a_dry_run_of_a_grid_leaves_its_folder_as_it_is() {
    let cluster = PretendedCluster::new();
    let grid = "scheduler_config: {gpu: ['0']}\ncommand: 'true'\ntest_config:\n- a: [1]\n";
    cluster.world.write("tests.yaml", grid);
    // What a run that was killed has left, long ago.
    let left = cluster.world.work().join("results/.packhorse-3.7-1234");
    fs_err::create_dir_all(&left).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    let opened = fs_err::File::open(&left).unwrap();
    opened.file().set_modified(old).unwrap();
    let words = ["grid", "tests.yaml", "--slurm"];
    let done = cluster.packhorse(&[&words[..], &["--dry-run"]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(left.exists());
    assert_eq!(cluster.packhorse(&words).code, 0);
    assert!(!left.exists());
}

#[test]
fn a_job_is_one_element_whatever_stands_between_its_documents() {
    let cluster = PretendedCluster::new();
    let file = "{name: DEFAULT, path: results, reps_per_job: 2}\n---\n\
        {name: a, params: {x: 1}}\n---\n{name: b, params: {x: 2}}\n---\n\
        {name: a, path: more, params: {x: 3}}\n";
    let done = cluster.exp(file, &["--", "sh", "-c", "echo {x}"]);
    assert_eq!(done.stdout, "run 1: 3 tasks in 2 jobs, submitted to Slurm as 4711\n", "{done:?}");
    assert_eq!(cluster.element(1, 0).code, 0);
    for (path, said) in [("results", "1\n"), ("more", "3\n")] {
        let log = format!("{path}/a/log/rep_00/out.log");
        assert_eq!(cluster.world.read(&log), said);
    }
    assert!(!cluster.world.work().join("results/b/log").exists());
    assert_eq!(cluster.element(1, 1).code, 0);
    assert_eq!(cluster.world.read("results/b/log/rep_00/out.log"), "2\n");
}
