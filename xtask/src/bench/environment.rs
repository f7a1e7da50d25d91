//! What all contestants share: fresh release builds, a scratch folder and the same
//! environment variables.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use packhorse_test_parts::find;
use tempfile::TempDir;

use super::figures::Figures;
use super::process::{FinishedProcess, run};
use crate::debian;
use crate::folders::{cargo, target};
use crate::setup::{Venv, python_with_venv, show};

/// The environment variable that names another binary to measure, for testing the bench
/// itself.
const OTHER_BINARY: &str = "PACKHORSE_BENCH_BIN";

/// How many repetitions.
#[derive(Clone, Copy)]
pub enum Effort {
    Quick,
    Full,
}

pub struct BenchEnvironment {
    effort: Effort,
    packhorse: PathBuf,
    xtask: PathBuf,
    /// A job that records when it ran.
    pub job: PathBuf,
    /// The programs of the original from PyPI, if it is installed.
    original: Option<PathBuf>,
    scratch: TempDir,
}

impl BenchEnvironment {
    /// Builds what is measured, and installs similar programs where that is permitted.
    pub fn prepare(effort: Effort) -> Result<Self> {
        let target = target()?;
        let release = target.join("release");
        // Two builds: in one, features of a shared crate that only xtask needs would also be
        // built into the binary that is measured.
        build(&["--package", "xtask", "--bins"])?;
        let packhorse = if let Some(binary) = env::var_os(OTHER_BINARY) {
            binary.into()
        } else {
            build(&["--package", "packhorse-cli"])?;
            release.join("packhorse")
        };
        for (program, package) in
            [("xargs", "findutils"), ("make", "make"), ("parallel", "parallel")]
        {
            if let Err(missing) = debian::program(program, package) {
                println!("left out: {program}\n{missing}");
            }
        }
        let original = match Venv::of_tests().and_then(|venv| venv.ready(python_with_venv)) {
            Ok(venv) => Some(venv.bin()),
            Err(missing) => {
                println!("left out: simple_gpu_scheduler\n{missing}");
                None
            }
        };
        Ok(Self {
            effort,
            packhorse,
            xtask: release.join("xtask"),
            job: release.join("bench-job"),
            original,
            // Not in the system's temporary folder: that is often in memory, and would make a
            // durable store look cheaper than it is.
            scratch: tempfile::Builder::new().prefix("bench-").tempdir_in(target)?,
        })
    }

    /// This many rounds, or a quarter of them in a quick run.
    pub fn rounds(&self, full: usize) -> usize {
        match self.effort {
            Effort::Quick => full.div_ceil(4),
            Effort::Full => full,
        }
    }

    /// A program with the environment in which all are measured: ours, without the variables
    /// that cargo sets and those that would influence Packhorse.
    pub fn command(&self, program: impl AsRef<Path>) -> Result<Command> {
        let mut command = Command::new(program.as_ref());
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            let removed = ["CARGO", "RUST", "PACKHORSE", "LD_LIBRARY_PATH", "MAKE"];
            if removed.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        self.silence(&mut command)?;
        Ok(command)
    }

    /// Gives a command nothing to read, and keeps only what it writes to stderr.
    pub fn silence(&self, command: &mut Command) -> Result<()> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs_err::File::create(self.stderr())?.into_file());
        Ok(())
    }

    /// The binary that is measured.
    pub fn binary(&self) -> &Path {
        &self.packhorse
    }

    /// Packhorse, with its state in this folder.
    pub fn packhorse(&self, home: &Path) -> Result<Command> {
        let mut command = self.command(&self.packhorse)?;
        command.env("PACKHORSE_HOME", home);
        command.env("PACKHORSE_LEASES", home.join("leases"));
        Ok(command)
    }

    /// The limit program; the command to run has yet to be added.
    pub fn limit(&self, slots: usize, count: usize) -> Result<Command> {
        let mut command = self.command(&self.xtask)?;
        command.args(["limit", "--slots", &slots.to_string()]);
        command.args(["--count", &count.to_string(), "--"]);
        Ok(command)
    }

    /// Runs a simulation: see [`SimulateArgs`](super::SimulateArgs).
    pub fn simulate<const N: usize>(&self, arguments: [&str; N]) -> Result<Figures> {
        let mut command = Command::new(&self.xtask);
        Figures::printed_by(command.arg("simulate").args(arguments))
    }

    /// A similar program, if it is installed.
    pub fn peer(&self, name: &str) -> Option<PathBuf> {
        find(name).or_else(|| {
            let file = self.original.as_ref()?.join(name);
            file.is_file().then_some(file)
        })
    }

    /// The Python that has the originals, if they are installed.
    pub fn python_of_originals(&self) -> Option<PathBuf> {
        Some(self.original.as_ref()?.join("python"))
    }

    /// An empty folder that is removed when dropped.
    pub fn folder(&self) -> Result<TempDir> {
        Ok(TempDir::new_in(self.scratch.path())?)
    }

    /// Runs a command of [`Self::command`] to its end, and fails if the command does.
    pub fn run(&self, command: &mut Command) -> Result<FinishedProcess> {
        let run = run(command)?;
        self.check(command, &run)?;
        Ok(run)
    }

    /// Fails if the command did.
    pub fn check(&self, command: &Command, run: &FinishedProcess) -> Result<()> {
        if !run.status.success() {
            let name = show(command);
            bail!("{name}: {}{}", run.status, self.last_stderr_lines());
        }
        Ok(())
    }

    /// The last lines that the last command wrote to stderr.
    pub fn last_stderr_lines(&self) -> String {
        let text = fs_err::read(self.stderr()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let last = &lines[lines.len().saturating_sub(5)..];
        last.iter().flat_map(|line| ["\n  ", line]).collect()
    }

    fn stderr(&self) -> PathBuf {
        self.scratch.path().join("stderr")
    }
}

/// Makes a release build.
pub fn build(what: &[&str]) -> Result<()> {
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
