//! Runs on a real Slurm: see `crates/slurm-lab`.

mod cut_off;
mod experiments;
mod not_submitted;
mod preempted;
mod refused;
mod settings;
mod submitting;
mod unanswered;
mod waiting;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use packhorse_slurm_lab::{LabSettings, SlurmLab};

use crate::support::{Done, Running, World, finish, finish_with};

/// Says in a file of the folder which task runs, and waits at the gate.
const WAITING: &str = "echo $PACKHORSE_TASK >> ran; read x < gate";

/// A cluster, and somebody who uses it.
struct Cluster {
    world: World,
    lab: SlurmLab,
}

impl Cluster {
    fn start() -> Self {
        Self::with(LabSettings::default())
    }

    /// The same with a single node.
    fn with_one_node() -> Self {
        Self::with(LabSettings { nodes: 1, ..LabSettings::default() })
    }

    fn with(settings: LabSettings) -> Self {
        let mut lab = SlurmLab::start(settings);
        let world = World::new();
        lab.watch(world.work());
        Self { world, lab }
    }

    /// The binary on the machine where people log in.
    fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.lab.command(env!("CARGO_BIN_EXE_packhorse"));
        command
            .args(words)
            .current_dir(self.world.work())
            .env("PACKHORSE_HOME", self.world.home())
            .env("PACKHORSE_NVML_LIBRARY", "none")
            .env("PACKHORSE_SYSFS", self.world.work().join("no-sys"))
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// Puts a script in front of one of Slurm's programs, for `command_with_wrappers`. Its
    /// `$REAL` is the program itself.
    fn wrap(&self, program: &str, script: &str) {
        fs_err::create_dir_all(self.world.work().join("bin")).unwrap();
        let script = format!("#!/bin/sh\nREAL=/usr/bin/{program}\n{script}");
        let file = self.world.write(&format!("bin/{program}"), &script);
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs_err::set_permissions(file, executable).unwrap();
    }

    fn command_with_wrappers<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.command(words);
        let bin = self.world.work().join("bin");
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
        command.env("PATH", path);
        command
    }

    fn packhorse<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Done {
        finish(self.command(words))
    }

    fn packhorse_with<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        input: impl AsRef<[u8]>,
    ) -> Done {
        finish_with(self.command(words), input)
    }

    /// Starts it with these commands for its standard input.
    fn start_with<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        input: impl AsRef<[u8]>,
    ) -> Running {
        let mut running = Running::start(self.command(words));
        running.send(input);
        running.end_input();
        running
    }

    /// The line for `[slurm]` that has jobs find these scripts, too.
    fn node_path(&self) -> String {
        let bin = self.world.work().join("bin");
        format!("sh_lines = [\"PATH={}:$PATH\"]\n", bin.display())
    }

    /// The folder that a run and its jobs share.
    fn folder(&self, run: u32) -> PathBuf {
        self.world.work().join(format!("packhorse-slurm/{run}"))
    }

    /// How many arrays were submitted from here, and how many by jobs.
    fn submitted(&self) -> (usize, usize) {
        let folder = self.folder(1);
        let here = fs_err::read_to_string(folder.join("jobs.jsonl")).unwrap();
        let by_jobs = fs_err::read_dir(folder.join("jobs")).unwrap();
        (here.lines().count(), by_jobs.count())
    }

    /// The number that Slurm gave to the first array of a run: it takes one for the question
    /// whether it would take the job.
    fn job(&self, run: u32) -> String {
        let jobs = fs_err::read_to_string(self.folder(run).join("jobs.jsonl")).unwrap();
        let first: serde_json::Value = serde_json::from_str(jobs.lines().next().unwrap()).unwrap();
        first["job"].to_string()
    }

    /// Waits until a file in the folder of work has so many lines.
    fn wait_for_lines(&self, name: &str, count: usize) {
        let lines = || self.world.read(name).lines().count();
        let there = self.lab.wait(|_| (lines() >= count).then_some(()));
        assert!(there.is_some(), "{name} has {} lines", lines());
    }

    /// Waits until a task of a run is known to run.
    fn wait_for_run(&self, run: u32) {
        self.wait_until(run, |status| status["running"] != 0);
    }

    /// Waits until the status of a run is as it should be.
    fn wait_until(&self, run: u32, is_right: impl Fn(&serde_json::Value) -> bool) {
        let run = run.to_string();
        let mut last = serde_json::Value::Null;
        let there = self.lab.wait(|_| {
            last = self.packhorse(["slurm", "status", "--json", &run]).json();
            is_right(&last).then_some(())
        });
        assert!(there.is_some(), "{last}");
    }

    /// What each task wrote first, in the order of their numbers.
    fn logs(&self, run: u32, tasks: u32) -> Vec<String> {
        let log = |task| self.folder(run).join(format!("logs/{task}.1.log"));
        let text = |task| fs_err::read_to_string(log(task)).unwrap_or_default();
        (1..=tasks).map(|task| text(task).trim().to_owned()).collect()
    }

    /// The outcomes of a run's tasks, as `show` has them.
    fn outcomes(&self, run: u32) -> Vec<String> {
        let shown = self.packhorse(["show", "--json", &run.to_string()]);
        let tasks = shown.events();
        let word = |task: &serde_json::Value| task["outcome"].as_str().unwrap_or("none").to_owned();
        tasks.iter().skip(1).map(word).collect()
    }
}

/// A command a line, so many times.
fn lines(command: &str, count: usize) -> String {
    format!("{command}\n").repeat(count)
}
