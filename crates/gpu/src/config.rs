use std::path::PathBuf;
use std::time::Duration;

use crate::mps;

/// The environment variable that names the NVML library to load instead of the
/// one that the system's loader finds; `none` means to load none.
pub const NVML_LIBRARY_VARIABLE: &str = "PACKHORSE_NVML_LIBRARY";

/// The environment variable that names the folder to read as `/sys`.
pub const SYSFS_VARIABLE: &str = "PACKHORSE_SYSFS";

/// The environment variable that names the program `nvidia-cuda-mps-control`
/// instead of the one on the `PATH`.
pub const MPS_CONTROL_VARIABLE: &str = "PACKHORSE_MPS_CONTROL";

/// The environment variable that says how long to wait for a driver that does not
/// answer. [`GpuConfig::from_env`] does not read it: parsing a duration, and saying
/// what is wrong with it, is up to the program.
pub const DRIVER_PATIENCE_VARIABLE: &str = "PACKHORSE_DRIVER_PATIENCE";

/// Where to look for GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// The NVML library. `None`: the system's, if it has one.
    pub nvml_library: Option<PathBuf>,
    /// What to read as `/sys`.
    pub sysfs: PathBuf,
    /// What to read as `/proc`.
    pub proc: PathBuf,
    /// How long to wait for a driver that does not answer. A machine with many
    /// GPUs and no persistence mode takes seconds.
    pub driver_patience: Duration,
    /// The program that controls MPS: a path, or a name to look up on the `PATH`.
    pub mps_control: PathBuf,
    /// The pipe folder of an MPS daemon that somebody else may run.
    pub mps_pipes: PathBuf,
    /// How long one command to an MPS daemon may take. The first has to set up the
    /// GPU, which takes seconds on a machine without persistence mode.
    pub mps_patience: Duration,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            nvml_library: None,
            sysfs: PathBuf::from("/sys"),
            proc: PathBuf::from("/proc"),
            driver_patience: Duration::from_secs(20),
            mps_control: PathBuf::from("nvidia-cuda-mps-control"),
            mps_pipes: PathBuf::from("/tmp/nvidia-mps"),
            mps_patience: Duration::from_secs(20),
        }
    }
}

impl GpuConfig {
    /// The defaults, unless [`NVML_LIBRARY_VARIABLE`], [`SYSFS_VARIABLE`],
    /// [`MPS_CONTROL_VARIABLE`] or MPS's own [`mps::PIPE_VARIABLE`] say otherwise.
    /// A variable that is set to nothing counts as unset.
    pub fn from_env() -> Self {
        let path = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let defaults = Self::default();
        Self {
            nvml_library: path(NVML_LIBRARY_VARIABLE),
            sysfs: path(SYSFS_VARIABLE).unwrap_or(defaults.sysfs),
            proc: defaults.proc,
            driver_patience: defaults.driver_patience,
            mps_control: path(MPS_CONTROL_VARIABLE).unwrap_or(defaults.mps_control),
            mps_pipes: path(mps::PIPE_VARIABLE).unwrap_or(defaults.mps_pipes),
            mps_patience: defaults.mps_patience,
        }
    }
}
