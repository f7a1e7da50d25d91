//! Installs what a fresh machine lacks.
//!
//! Everything is looked for first, so that the usual case, where nothing is missing, takes
//! almost no time. What cannot be installed is reported with the command that would do it.

use std::env;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Error, Result, anyhow};
use packhorse_test_parts::VENV_STAMP;

use crate::folders::{cargo, target};

/// What the Python side of the tests needs: the originals to compare with, and NVIDIA's
/// bindings to NVML.
const REQUIREMENTS: [&str; 3] = ["simple-gpu-scheduler==0.1.4", "nvidia-ml-py", "PyYAML"];

/// The same without what they depend on: what is compared of cw2 needs nothing but PyYAML,
/// and pandas is large.
const ALONE: [&str; 1] = ["cw2==2.5.1"];

/// Something that is not installed, and how to install it.
pub fn missing(what: &str, hint: impl Display) -> Error {
    anyhow!("missing: {what}\n  hint: {hint}")
}

/// Whether a missing part is a failure.
pub fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

/// Whether a component of the toolchain is installed, which a minimal toolchain lacks. It
/// provides this cargo subcommand.
pub fn has_component(subcommand: &str) -> bool {
    // Next to cargo: rustup's proxies on the PATH exist in any case.
    let beside = |cargo| Path::new(&cargo).with_file_name(format!("cargo-{subcommand}"));
    env::var_os("CARGO").is_some_and(|cargo| beside(cargo).is_file())
        || succeeds(cargo().args([subcommand, "--version"]))
}

/// Installs a component of the toolchain.
pub fn add_component(component: &str) -> Result<()> {
    let mut rustup = Command::new("rustup");
    rustup.args(["component", "add", component]);
    install(&mut rustup, component)
}

/// A Python virtual environment with the requirements in it.
pub struct Venv {
    folder: PathBuf,
    requirements: Vec<String>,
    /// What is installed without what it depends on.
    alone: Vec<String>,
}

impl Venv {
    /// The one of the Rust tests.
    pub fn of_tests() -> Result<Self> {
        Ok(Self { alone: texts(&ALONE), ..Self::named("test-venv", &REQUIREMENTS)? })
    }

    /// One with something heavy to import.
    pub fn with_numpy() -> Result<Self> {
        Self::named("numpy-venv", &["numpy"])?.ready(python_with_venv)
    }

    /// One with a name in the target folder, for these requirements.
    pub fn named(name: &str, requirements: &[&str]) -> Result<Self> {
        let folder = target().map_err(|error| missing("a target folder", error))?.join(name);
        Ok(Self { folder, requirements: texts(requirements), alone: Vec::new() })
    }

    /// Creates it if it is not complete, by the Python that `python` finds.
    pub fn ready<P: AsRef<Path>>(self, python: impl FnOnce() -> Option<P>) -> Result<Self> {
        if !self.is_complete() {
            let hint = "install Python 3 with its venv module";
            let python = python().ok_or_else(|| missing("python3 with venv", hint))?;
            self.create(python.as_ref())?;
        }
        Ok(self)
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.bin().join("python")
    }

    /// The folder of its programs.
    pub fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// What is installed in it.
    pub fn contents(&self) -> String {
        [self.requirements.as_slice(), &self.alone].concat().join(", ")
    }

    pub fn is_complete(&self) -> bool {
        let stamp = fs_err::read_to_string(self.folder.join(VENV_STAMP));
        // The interpreter is a link, which may dangle after an update of Python.
        stamp.is_ok_and(|stamp| stamp == self.stamp()) && self.python().is_file()
    }

    fn stamp(&self) -> String {
        [self.requirements.as_slice(), &self.alone].concat().join("\n")
    }

    /// Creates it anew.
    pub fn create(&self, python: &Path) -> Result<()> {
        let mut venv = Command::new(python);
        venv.args(["-m", "venv", "--clear"]).arg(&self.folder);
        install(&mut venv, "a Python virtual environment")?;

        self.pip_install(&self.requirements, &[])?;
        if !self.alone.is_empty() {
            self.pip_install(&self.alone, &["--no-deps"])?;
        }
        fs_err::write(self.folder.join(VENV_STAMP), self.stamp())
            .map_err(|error| missing("a Python virtual environment", error))
    }
}

impl Venv {
    fn pip_install(&self, requirements: &[String], options: &[&str]) -> Result<()> {
        let mut pip = Command::new(self.python());
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.arg("--disable-pip-version-check");
        pip.args(options).args(requirements);
        install(&mut pip, &requirements.join(" and "))
    }
}

/// A Python that can create virtual environments: Debian has a separate package for that.
pub fn python_with_venv() -> Option<&'static str> {
    let usable = |python: &&str| succeeds(Command::new(python).args(["-c", "import ensurepip"]));
    // The user's own Python may come first on the PATH and lack it, while Debian's package
    // is for Debian's Python.
    ["python3", "/usr/bin/python3"].into_iter().find(usable)
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// Runs what installs something. What it writes is shown if it fails, in one piece, since
/// several of them may run side by side.
pub fn install(command: &mut Command, what: &str) -> Result<()> {
    println!("installing {what}: {}", show(command));
    let problem = match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("this failed ({}): {}\n{}", output.status, show(command), said.trim_end())
        }
        Err(error) => format!("this could not start ({error}): {}", show(command)),
    };
    Err(missing(what, problem))
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A command as it would be typed.
pub fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let words = [program].into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
