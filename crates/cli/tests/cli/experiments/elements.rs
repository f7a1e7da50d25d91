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
        let sbatch = world.write("bin/sbatch", "#!/bin/sh\necho 4711\n");
        fs_err::set_permissions(sbatch, std::fs::Permissions::from_mode(0o755)).unwrap();
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
        let folder = format!("packhorse-slurm/{run}");
        let mut command = self.command(&["slurm", "element", &folder, "0"]);
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
        let said = cluster
            .world
            .read(&format!("results/exp/log/rep_0{rep}/out.log"));
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
