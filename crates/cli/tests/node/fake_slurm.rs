//! A node whose Slurm are three scripts.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Any character devices do for GPUs.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random"];

/// A node with four GPUs of 320 `mps` each.
pub struct FakeNode {
    folder: TempDir,
}

/// What a finished command left.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl FakeNode {
    /// A node with this in its configuration beside the GPUs.
    pub fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Self { folder };
        fs_err::create_dir(node.path("bin")).unwrap();
        node.script(
            "scontrol",
            "[ \"$1\" != requeue ] || exit \"$(cat \"$here/requeue\" 2>/dev/null || echo 0)\"",
        );
        // What is known of a job, and the jobs on the node, are in files. Without the second,
        // all that is known of is on the node.
        node.script(
            "squeue",
            "[ ! -e \"$here/silent\" ] || exit 1\n\
             if [ -e \"$here/jobs\" ]; then jobs=$(cat \"$here/jobs\"); \
             else jobs=$(cd \"$here\"; echo job.*); fi\n\
             for job in $jobs; do job=${job#job.}\n\
             state=$(cat \"$here/state.$job\" 2>/dev/null || echo RUNNING)\n\
             echo \"$job|1000|$state|$(cat \"$here/job.$job\" 2>/dev/null || echo N/A)\"; done",
        );
        node.script("scancel", "");
        node.configure(more);
        node
    }

    fn script(&self, name: &str, text: &str) {
        let here = self.folder.path().display();
        let text =
            format!("#!/bin/sh\nhere={here}\necho \"{name} $*\" >>\"$here/asked\"\n{text}\n");
        let file = self.path("bin").join(name);
        fs_err::write(&file, text).unwrap();
        fs_err::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Writes the configuration anew.
    pub fn configure(&self, more: &str) {
        let (state, scontrol) = (self.state(), self.path("bin/scontrol"));
        let mut text = format!(
            "count = 1280\nstate = \"{}\"\nscontrol = \"{}\"\n{}\n",
            state.display(),
            scontrol.display(),
            more.split('[').next().unwrap_or_default(),
        );
        for (index, file) in DEVICES.iter().enumerate() {
            text.push_str(&format!(
                "[[gpus]]\nfile = \"{file}\"\nuuid = \"GPU-{index}\"\nmemory = \"24G\"\n"
            ));
        }
        if let Some(at) = more.find('[') {
            text.push_str(&more[at..]);
        }
        if !more.contains("[mps]") {
            text.push_str("[mps]\nservers = false\n");
        }
        // Never where a real node of this machine has its servers.
        let folder = format!("[mps]\nfolder = \"{}\"\n", self.path("mps").display());
        let text = text.replace("[mps]\n", &folder);
        fs_err::write(self.config(), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn config(&self) -> PathBuf {
        self.path("node.toml")
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The file of a job's orders.
    pub fn orders(&self, job: u32) -> PathBuf {
        self.state().join("jobs").join(job.to_string())
    }

    pub fn gpus(&self, job: u32) -> Vec<u32> {
        let text = fs_err::read_to_string(self.orders(job)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.strip_prefix("gpu "));
        let gpu = |line: &str| line.split(' ').next().unwrap().parse().unwrap();
        lines.map(gpu).collect()
    }

    /// The value of a variable in a job's orders.
    pub fn variable(&self, job: u32, name: &str) -> Option<String> {
        let text = fs_err::read_to_string(self.orders(job)).unwrap();
        let mut lines = text.lines();
        let prefix = format!("set {name}=");
        lines.find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    }

    /// What Slurm's commands were asked.
    pub fn asked(&self) -> String {
        fs_err::read_to_string(self.path("asked")).unwrap_or_default()
    }

    /// What a job asked for, by `squeue`.
    pub fn says(&self, job: u32, mps: u64) {
        let file = self.path(&format!("job.{job}"));
        fs_err::write(file, format!("gres:mps:{mps}")).unwrap();
    }

    /// The state that a job is in, by `squeue`.
    pub fn says_state(&self, job: u32, state: &str) {
        fs_err::write(self.path(&format!("state.{job}")), state).unwrap();
    }

    /// The jobs that `squeue` knows.
    pub fn knows(&self, jobs: &[u32]) {
        let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        fs_err::write(self.path("jobs"), jobs.join("\n")).unwrap();
    }

    /// Slurm does not answer from now on.
    pub fn falls_silent(&self) {
        fs_err::write(self.path("silent"), "").unwrap();
    }

    /// Lets what Slurm has said be forgotten, as if it were long ago.
    pub fn forgets(&self) {
        let _ = fs_err::remove_file(self.state().join("queue"));
    }

    /// A command of the node, in the environment of a job's prolog: there is no PATH.
    pub fn command(&self, verb: &str, job: u32, mps: Option<u64>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
        command
            .args(["node", verb, "--config"])
            .arg(self.config())
            .env_clear()
            .env("SLURM_JOB_ID", job.to_string())
            .env("SLURM_JOB_UID", "1000")
            .env("SLURM_JOB_GID", "1000")
            .env("SLURM_JOB_USER", "alice")
            .env("SLURM_JOB_PARTITION", "gpu")
            .env("SLURMD_NODENAME", "n1")
            .env("CUDA_VISIBLE_DEVICES", "0")
            .stdin(Stdio::null());
        if let Some(mps) = mps {
            let percent = (mps * 100 / 1280).max(1);
            command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent.to_string());
            self.says(job, mps);
        }
        command
    }

    pub fn prolog(&self, job: u32, mps: u64) -> Done {
        finish(&mut self.command("prolog", job, Some(mps)))
    }

    pub fn epilog(&self, job: u32, mps: u64) -> Done {
        finish(&mut self.command("epilog", job, Some(mps)))
    }

    /// What `packhorse node status --json` says.
    pub fn status(&self) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
        command.args(["node", "status", "--json", "--node", "n1", "--config"]);
        let done = finish(command.arg(self.config()).env_clear());
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    }

    /// How much is given out of each GPU.
    pub fn used(&self) -> Vec<u64> {
        let status = self.status();
        let gpus = status["gpus"].as_array().unwrap();
        gpus.iter().map(|gpu| gpu["used"].as_u64().unwrap()).collect()
    }
}

impl Drop for FakeNode {
    /// Removes the cgroups of servers that nobody has ended.
    fn drop(&mut self) {
        let Ok(state) = fs_err::metadata(self.state()) else {
            return;
        };
        let group = format!("/sys/fs/cgroup/devices/packhorse-{}", state.ino());
        let below = fs_err::read_dir(&group).into_iter().flatten().flatten();
        for folder in below.filter(|entry| entry.path().is_dir()) {
            let _ = fs_err::remove_dir(folder.path());
        }
        let _ = fs_err::remove_dir(group);
    }
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether a file is there.
pub fn exists(path: &Path) -> bool {
    fs_err::symlink_metadata(path).is_ok()
}
