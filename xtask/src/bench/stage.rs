//! The stage all contestants stand on: fresh release builds, a scratch folder
//! and the same environment for everyone.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::process::{Run, run};
use crate::folders::{cargo, target};
use crate::setup::{self, Venv, find, show};

/// Replaces the binary that is measured, for trying out the harness itself.
const OTHER_BINARY: &str = "PACKHORSE_BENCH_BIN";

/// How often to repeat.
#[derive(Clone, Copy)]
pub enum Effort {
    Quick,
    Full,
}

pub struct Stage {
    effort: Effort,
    packhorse: PathBuf,
    limit: PathBuf,
    /// The job that tells when it ran.
    pub job: PathBuf,
    /// Where PyPI's original is installed, if it is.
    original: Option<PathBuf>,
    scratch: TempDir,
}

impl Stage {
    /// Builds what is measured, and installs the peers where that is permitted.
    pub fn set(effort: Effort) -> Result<Self> {
        let target = target()?;
        let release = target.join("release");
        // Two builds: in one, the features that xtask wants of a shared crate
        // would be built into the binary that is measured.
        build(&["--package", "xtask", "--bins"])?;
        let packhorse = if let Some(binary) = env::var_os(OTHER_BINARY) {
            binary.into()
        } else {
            build(&["--package", "packhorse-cli"])?;
            release.join("packhorse")
        };
        for (program, package) in [
            ("xargs", "findutils"),
            ("make", "make"),
            ("parallel", "parallel"),
        ] {
            if let Err(missing) = setup::program(program, package) {
                println!("left out: {program}\n{missing}");
            }
        }
        let original = match Venv::ready() {
            Ok(venv) => Some(venv.bin()),
            Err(missing) => {
                println!("left out: simple_gpu_scheduler\n{missing}");
                None
            }
        };
        Ok(Self {
            effort,
            packhorse,
            limit: release.join("xtask"),
            job: release.join("bench-job"),
            original,
            // Not in the system's temporary folder: that is often memory, and
            // would make a durable store look cheaper than it is.
            scratch: tempfile::Builder::new()
                .prefix("bench-")
                .tempdir_in(target)?,
        })
    }

    /// As many rounds as asked for, or a few of them in a quick run.
    pub fn rounds(&self, full: usize) -> usize {
        match self.effort {
            Effort::Quick => full.div_ceil(4),
            Effort::Full => full,
        }
    }

    /// A program in the environment that all are measured in: ours, without
    /// what cargo put there and what would steer Packhorse.
    pub fn command(&self, program: impl AsRef<Path>) -> Result<Command> {
        let mut command = Command::new(program.as_ref());
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            let steers = ["CARGO", "RUST", "PACKHORSE", "LD_LIBRARY_PATH", "MAKE"];
            if steers.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs_err::File::create(self.stderr())?.into_file());
        Ok(command)
    }

    /// Packhorse, with its state in that folder.
    pub fn packhorse(&self, home: &Path) -> Result<Command> {
        let mut command = self.command(&self.packhorse)?;
        command.env("PACKHORSE_HOME", home);
        command.env("PACKHORSE_LEASES", home.join("leases"));
        Ok(command)
    }

    /// The limit program, up to the command it is to run.
    pub fn limit(&self, slots: usize, count: usize) -> Result<Command> {
        let mut command = self.command(&self.limit)?;
        command.args(["limit", "--slots", &slots.to_string()]);
        command.args(["--count", &count.to_string(), "--"]);
        Ok(command)
    }

    /// A peer, if it is installed.
    pub fn peer(&self, name: &str) -> Option<PathBuf> {
        find(name).or_else(|| {
            let file = self.original.as_ref()?.join(name);
            file.is_file().then_some(file)
        })
    }

    /// An empty folder that is gone when dropped.
    pub fn folder(&self) -> Result<TempDir> {
        Ok(TempDir::new_in(self.scratch.path())?)
    }

    /// Runs a command of [`Self::command`] to its end, which must be success.
    pub fn run(&self, command: &mut Command) -> Result<Run> {
        let run = run(command)?;
        if !run.status.success() {
            let name = show(command);
            bail!("{name}: {}{}", run.status, self.last_words());
        }
        Ok(run)
    }

    /// The end of what the last command wrote to stderr.
    pub fn last_words(&self) -> String {
        let text = fs_err::read(self.stderr()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let text = text.trim_end();
        let cut = text.rmatch_indices('\n').nth(4).map_or(0, |(at, _)| at + 1);
        text[cut..].lines().fold(String::new(), |mut words, line| {
            words.push_str("\n  ");
            words.push_str(line);
            words
        })
    }

    fn stderr(&self) -> PathBuf {
        self.scratch.path().join("stderr")
    }
}

fn build(what: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--release"]).args(what);
    let name = show(&command);
    println!("building: {name}");
    let status = command.status().with_context(|| name.clone())?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}
