//! Installs what a fresh machine lacks.
//!
//! Everything is looked for first, so that the usual case, where nothing is missing, takes
//! almost no time. What cannot be installed is reported with the command that would do it.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Error, Result, anyhow};

use crate::folders::{cargo, target};

/// What the Python side of the tests needs: the originals to compare with, and NVIDIA's
/// bindings to NVML.
const REQUIREMENTS: [&str; 3] = ["simple-gpu-scheduler==0.1.4", "nvidia-ml-py", "PyYAML"];

/// The same without what they depend on: what is compared of cw2 needs nothing but PyYAML,
/// and pandas is large.
const ALONE: [&str; 1] = ["cw2==2.5.1"];

/// The file in a complete virtual environment that lists the requirements it was made for.
const STAMP: &str = "packhorse-requirements.txt";

/// Something that is not installed, and how to install it.
pub fn missing(what: &str, hint: impl Display) -> Error {
    anyhow!("missing: {what}\n  hint: {hint}")
}

/// Whether a missing part is a failure.
pub fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

/// Looks a program up on the PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Makes sure that a program is installed, from this Debian package.
pub fn program(program: &str, package: &str) -> Result<()> {
    if find(program).is_some() {
        return Ok(());
    }
    apt(&[package])
}

/// Makes sure that a component of the toolchain is installed, which a minimal toolchain
/// lacks. It provides this cargo subcommand.
pub fn component(component: &str, subcommand: &str) -> Result<()> {
    // Next to cargo: rustup's proxies on the PATH exist in any case.
    let beside = |cargo| Path::new(&cargo).with_file_name(format!("cargo-{subcommand}"));
    if env::var_os("CARGO").is_some_and(|cargo| beside(cargo).is_file())
        || succeeds(cargo().args([subcommand, "--version"]))
    {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["component", "add", component]);
    install(&mut rustup, component)
}

/// Makes sure that cargo-nextest is installed. Compiling it takes minutes, so outside CI
/// the tests do without it.
pub fn nextest() -> Result<()> {
    if succeeds(cargo().args(["nextest", "--version"])) {
        return Ok(());
    }
    let mut command = cargo();
    command.args(["install", "cargo-nextest", "--locked"]);
    if !in_ci() {
        return Err(missing("cargo-nextest", show(&command)));
    }
    install(&mut command, "cargo-nextest")
}

/// A Python virtual environment with the requirements in it.
pub struct Venv {
    folder: PathBuf,
    requirements: Vec<String>,
    /// What is installed without what it depends on.
    alone: Vec<String>,
}

impl Venv {
    /// The one of the Rust tests, created now if there is none.
    pub fn ready() -> Result<Self> {
        Self::made_of("test-venv", &REQUIREMENTS, &ALONE, python_with_venv)
    }

    /// One with something heavy to import.
    pub fn with_numpy() -> Result<Self> {
        Self::of("numpy-venv", &["numpy"], python_with_venv)
    }

    /// One with a name in the target folder, for these requirements. It is created now if
    /// there is none, by the Python that `python` finds.
    pub fn of<P: AsRef<OsStr>>(
        name: &str,
        requirements: &[&str],
        python: impl FnOnce() -> Result<P>,
    ) -> Result<Self> {
        Self::made_of(name, requirements, &[], python)
    }

    fn made_of<P: AsRef<OsStr>>(
        name: &str,
        requirements: &[&str],
        alone: &[&str],
        python: impl FnOnce() -> Result<P>,
    ) -> Result<Self> {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let folder = target().map_err(|error| missing("a target folder", error))?;
        let venv = Self {
            folder: folder.join(name),
            requirements: texts(requirements),
            alone: texts(alone),
        };
        if !venv.is_complete() {
            venv.create(python()?.as_ref())?;
        }
        Ok(venv)
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.bin().join("python")
    }

    /// The folder of its programs.
    pub fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }

    fn is_complete(&self) -> bool {
        let stamp = fs_err::read_to_string(self.folder.join(STAMP));
        // The interpreter is a link, which may dangle after an update of Python.
        stamp.is_ok_and(|stamp| stamp == self.stamp()) && self.python().is_file()
    }

    fn stamp(&self) -> String {
        [self.requirements.as_slice(), &self.alone].concat().join("\n")
    }

    fn create(&self, python: &OsStr) -> Result<()> {
        let mut venv = Command::new(python);
        venv.args(["-m", "venv", "--clear"]).arg(&self.folder);
        install(&mut venv, "a Python virtual environment")?;

        self.pip_install(&self.requirements, &[])?;
        if !self.alone.is_empty() {
            self.pip_install(&self.alone, &["--no-deps"])?;
        }
        fs_err::write(self.folder.join(STAMP), self.stamp())
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
fn python_with_venv() -> Result<&'static str> {
    let usable = |python: &&str| succeeds(Command::new(python).args(["-c", "import ensurepip"]));
    // The user's own Python may come first on the PATH and lack it, while Debian's package
    // is for Debian's Python.
    let candidates = ["python3", "/usr/bin/python3"];
    if let Some(python) = candidates.into_iter().find(usable) {
        return Ok(python);
    }
    apt(&["python3-venv"])?;
    let hint = "install Python 3 with its venv module";
    let python = candidates.into_iter().find(usable);
    python.ok_or_else(|| missing("python3 with venv", hint))
}

/// Installs Debian packages, where that is possible and permitted.
pub fn apt(packages: &[&str]) -> Result<()> {
    let what = packages.join(" ");
    let mut command = Command::new("apt-get");
    command.args(["install", "--quiet=2", "--yes", "--no-install-recommends"]);
    command.args(packages);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    if find("apt-get").is_none() {
        let hint = format!("no apt-get here: install what Debian calls {what}");
        return Err(missing(&what, hint));
    }
    if !rustix::process::geteuid().is_root() {
        let hint = format!("run as root: {}", show(&command));
        return Err(missing(&what, hint));
    }
    // What goes wrong is on standard error.
    command.stdout(Stdio::null());
    install(&mut command, &what).or_else(|_| {
        // A fresh image has no package lists, and an old one has stale ones.
        let mut update = Command::new("apt-get");
        install(update.args(["update", "--quiet=2"]), &what)?;
        install(&mut command, &what)
    })
}

/// Runs what installs something.
pub fn install(command: &mut Command, what: &str) -> Result<()> {
    println!("installing {what}: {}", show(command));
    let problem = match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("this failed ({status})"),
        Err(error) => format!("this could not start ({error})"),
    };
    let hint = format!("{problem}: {}", show(command));
    Err(missing(what, hint))
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
