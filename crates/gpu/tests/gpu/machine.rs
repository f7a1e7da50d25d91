//! A pretended machine.

use std::path::Path;

use packhorse_fake_nvml::{Active, FakeDevice, FakeState, library_path};
use packhorse_gpu::{Device, Driver, GpuConfig, Inventory, Selection, Unit, resolve};
use tempfile::TempDir;

/// A pretended machine, which this test has for itself.
pub struct Machine {
    folder: TempDir,
    pub state: FakeState,
    _turn: Active,
}

impl Machine {
    /// A machine with these GPUs of NVIDIA's.
    pub fn new(devices: &[FakeDevice]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = FakeState::new(folder.path().join("state"));
        for device in devices {
            state.device(device);
        }
        Self { _turn: state.activate(), folder, state }
    }

    /// A machine with so many ordinary GPUs of NVIDIA's.
    pub fn with(count: u32) -> Self {
        let devices: Vec<FakeDevice> = (0..count).map(FakeDevice::new).collect();
        Self::new(&devices)
    }

    pub fn config(&self) -> GpuConfig {
        GpuConfig {
            nvml_library: Some(library_path()),
            sysfs: self.folder.path().join("sys"),
            ..GpuConfig::default()
        }
    }

    pub fn driver(&self) -> Driver {
        Driver::detect(&self.config()).unwrap()
    }

    pub fn devices(&self) -> Vec<Device> {
        self.driver().devices().unwrap()
    }

    pub fn inventory(&self) -> Inventory {
        self.driver().inventory()
    }

    /// The units that a person would choose with `--gpus`.
    pub fn units(&self, gpus: &str) -> Vec<Unit> {
        let selection = Selection::parse(&[gpus]).unwrap();
        resolve(&selection, &self.inventory(), None).unwrap().units
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the machine's sysfs, and the folders above it.
    pub fn sysfs(&self, file: &str, text: &str) {
        let file = self.config().sysfs.join(file);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, text).unwrap();
    }
}
