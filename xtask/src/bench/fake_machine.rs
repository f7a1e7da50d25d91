//! A machine with pretended GPUs: the real binary and NVML calls, a fake driver and fake
//! CUDA programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use packhorse_fake_nvml::{FakeDevice, FakeState, STATE_VARIABLE};
use tempfile::TempDir;

use super::environment::{BenchEnvironment, build};
use crate::folders::target;

/// Such a machine, and a folder for its files that is removed when it is dropped.
pub struct FakeMachine {
    folder: TempDir,
    driver: FakeState,
    release: PathBuf,
}

impl FakeMachine {
    /// With so many GPUs, on each of which programs can have so many bytes.
    pub fn new(bench: &BenchEnvironment, gpus: u32, memory: u64) -> Result<Self> {
        build(&["--package", "packhorse-fake-nvml"])?;
        let folder = bench.folder()?;
        let driver = FakeState::new(folder.path().join("driver"));
        for index in 0..gpus {
            let mut device = FakeDevice::new(index);
            device.memory_total = memory;
            device.memory_reserved = 0;
            driver.device(&device);
        }
        Ok(Self { folder, driver, release: target()?.join("release") })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A program that takes memory on it.
    pub fn cuda_program(&self) -> PathBuf {
        self.release.join("fake-cuda")
    }

    /// Packhorse on this machine, started in its folder, with its state in this folder.
    pub fn packhorse(&self, bench: &BenchEnvironment, home: &Path) -> Result<Command> {
        let library = self.release.join("libpackhorse_fake_nvml.so");
        let mut command = bench.packhorse(home)?;
        command
            .env("PACKHORSE_NVML_LIBRARY", library)
            .env("PACKHORSE_SYSFS", self.folder.path().join("sys"))
            .env(STATE_VARIABLE, self.driver.path())
            .current_dir(self.folder.path());
        Ok(command)
    }

    /// What `packhorse show --json` tells of the last run.
    pub fn show(&self, bench: &BenchEnvironment, home: &Path) -> Result<String> {
        let mut command = self.packhorse(bench, home)?;
        let shown = command.args(["show", "--json"]).stdout(Stdio::piped()).output()?;
        ensure!(!shown.stdout.is_empty(), "`packhorse show` tells nothing");
        Ok(String::from_utf8_lossy(&shown.stdout).into_owned())
    }
}
