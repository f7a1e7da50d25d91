//! The Python package: its wheel, and its tests in fresh virtual environments.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use packhorse_fake_nvml::{FakeDevice, FakeState};

use crate::folders::{target, workspace};
use crate::setup::{Venv, missing};

/// What builds wheels.
const BUILDER: [&str; 1] = ["maturin==1.16.0"];
/// What the package's tests need.
const REQUIREMENTS: [&str; 4] = ["pytest", "cloudpickle", "mypy", "pandas"];
/// The oldest Python that the package supports: 3.10.
const OLDEST: u32 = 10;

/// A virtual environment for each Python of the machine, and what builds the wheel.
pub struct PythonTests {
    builder: Venv,
    /// The newest Python's is the last.
    venvs: Vec<(Venv, PathBuf)>,
    wheels: PathBuf,
    wheels_by_pip: PathBuf,
    /// A folder that describes a pretended machine with two GPUs, to be copied.
    machine: PathBuf,
}

impl PythonTests {
    /// Finds the Pythons, and describes their environments.
    pub fn find() -> Result<Self> {
        let pythons = pythons();
        if pythons.is_empty() {
            let hint = "install Python 3.10 or newer, with its venv module";
            return Err(missing("a Python for the tests of the package", hint));
        }
        let venv = |(minor, python): (u32, PathBuf)| {
            Ok((Venv::named(&format!("python/3.{minor}"), &REQUIREMENTS)?, python))
        };
        let folder = target()?.join("python");
        Ok(Self {
            builder: builder()?,
            venvs: pythons.into_iter().map(venv).collect::<Result<_>>()?,
            wheels: folder.join("wheels"),
            wheels_by_pip: folder.join("wheels-by-pip"),
            machine: folder.join("machine"),
        })
    }

    /// What is installed in all of the environments.
    pub fn contents() -> String {
        [BUILDER.as_slice(), &REQUIREMENTS].concat().join(", ")
    }

    /// The environments that are not there yet, and the Pythons that make them.
    pub fn absent(&self) -> Vec<(&Venv, &Path)> {
        let (_, newest) = self.venvs.last().expect("there is a Python");
        let all = [(&self.builder, newest.as_path())];
        let venvs = self.venvs.iter().map(|(venv, python)| (venv, python.as_path()));
        all.into_iter().chain(venvs).filter(|(venv, _)| !venv.is_complete()).collect()
    }

    /// Describes the pretended machine, and removes wheels of before: only those that are
    /// built now are to be found there.
    pub fn tidy(&self) -> Result<()> {
        for folder in [&self.wheels, &self.wheels_by_pip, &self.machine] {
            if folder.exists() {
                fs_err::remove_dir_all(folder)?;
            }
        }
        let state = FakeState::new(self.machine.clone());
        for index in 0..2 {
            state.device(&FakeDevice::new(index));
        }
        Ok(())
    }

    /// What builds the wheels that are tested.
    pub fn wheels(&self) -> [Command; 2] {
        // The profile of the other tests: the binary is there already.
        let mut wheel = maturin(&self.builder, "dev", &self.wheels);
        wheel.arg("--strip");
        [wheel, pip_wheel(&self.builder, &self.wheels_by_pip)]
    }

    /// For each Python, what installs a wheel, and what tests it then.
    pub fn suites(&self) -> Vec<[Command; 2]> {
        let last = self.venvs.len() - 1;
        let suite = |(number, (venv, _)): (usize, &(Venv, PathBuf))| {
            // The newest Python has what `pip install .` makes.
            let wheels = if number == last { &self.wheels_by_pip } else { &self.wheels };
            [install(venv, wheels), self.pytest(venv)]
        };
        self.venvs.iter().enumerate().map(suite).collect()
    }

    fn pytest(&self, venv: &Venv) -> Command {
        let mut tests = Command::new(venv.python());
        tests.args(["-m", "pytest", "-p", "no:cacheprovider", "python/tests"]);
        tests.current_dir(workspace());
        // The package that is tested is the one that was installed.
        tests.env_remove("PYTHONPATH");
        tests.env_remove("PACKHORSE_BINARY");
        tests.env("PACKHORSE_TEST_MACHINE", &self.machine);
        if let Ok(target) = target() {
            tests.env("PACKHORSE_TEST_BUILT", target.join("debug"));
        }
        tests
    }
}

/// What `pip install .` does before it installs: builds a wheel into a folder, as the
/// project says how. In the profile of the other tests, and with the builder that is there.
fn pip_wheel(builder: &Venv, folder: &Path) -> Command {
    let mut pip = Command::new(builder.python());
    pip.args(["-m", "pip", "wheel", "--quiet", "--no-build-isolation"]);
    pip.args(["--no-deps", "--no-index", "--disable-pip-version-check"]);
    pip.arg("--no-cache-dir").arg("--wheel-dir").arg(folder);
    pip.arg(".").current_dir(workspace());
    let path = env::var_os("PATH").unwrap_or_default();
    let path = [builder.bin()].into_iter().chain(env::split_paths(&path));
    if let (Ok(path), Ok(target)) = (env::join_paths(path), target()) {
        pip.env("PATH", path).env("CARGO_TARGET_DIR", target);
    }
    pip.env("MATURIN_PEP517_ARGS", "--profile dev --locked --strip");
    pip
}

/// Installs the wheel that was built into a folder.
pub fn install(venv: &Venv, wheels: &Path) -> Command {
    let mut pip = Command::new(venv.python());
    pip.args(["-m", "pip", "install", "--quiet", "--force-reinstall"]);
    pip.args(["--no-deps", "--no-index", "--disable-pip-version-check"]);
    pip.arg("--find-links").arg(wheels).arg("packhorse");
    pip
}

/// What builds wheels, run by the newest Python there is.
pub fn builder_ready() -> Result<Venv> {
    let pythons = pythons();
    let (_, newest) = pythons.last().context("there is no Python 3.10 or newer")?;
    builder()?.ready(|| Some(newest))
}

fn builder() -> Result<Venv> {
    Venv::named("python/builder", &BUILDER)
}

/// Builds a wheel of the workspace into a folder.
pub fn maturin(builder: &Venv, profile: &str, folder: &Path) -> Command {
    let mut command = Command::new(builder.bin().join("maturin"));
    command.args(["build", "--quiet", "--locked", "--profile", profile]);
    command.arg("--out").arg(folder);
    command.current_dir(workspace());
    if let Ok(target) = target() {
        // Beside what cargo has built.
        command.env("CARGO_TARGET_DIR", target);
    }
    command
}

/// The machine's Pythons, one of each version, the newest last: those on the PATH, then
/// pyenv's.
pub fn pythons() -> Vec<(u32, PathBuf)> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).flat_map(|folder| {
        let versions = (OLDEST..OLDEST + 10).map(|minor| format!("python3.{minor}"));
        let names = ["python3".to_owned()].into_iter().chain(versions);
        names.map(move |name| folder.join(name)).collect::<Vec<_>>()
    });
    let pyenv = env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let installed = pyenv.and_then(|folder| fs_err::read_dir(folder).ok());
    let installed = installed.into_iter().flatten().flatten();
    let installed = installed.map(|version| version.path().join("bin/python3"));
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for python in folders.chain(installed).filter(|python| python.is_file()) {
        if let Some((minor, python)) = look_at(&python)
            && minor >= OLDEST
            && found.iter().all(|(known, _)| *known != minor)
        {
            found.push((minor, python));
        }
    }
    found.sort();
    found
}

/// Which version it is, if it works and can make virtual environments, and where it really
/// is: a shim of pyenv may stand for any.
fn look_at(python: &Path) -> Option<(u32, PathBuf)> {
    let code = "import ensurepip, sys; print(sys.version_info[1], sys.executable)";
    let mut command = Command::new(python);
    let command = command.args(["-c", code]).stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (minor, path) = text.trim_end().split_once(' ')?;
    Some((minor.parse().ok()?, PathBuf::from(path)))
}
