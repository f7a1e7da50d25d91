use std::path::PathBuf;
use std::time::Duration;

use crate::mps;

/// Where to look for GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// The NVML library; `none` means to load none. `None`: the system's, if it has one.
    pub nvml_library: Option<PathBuf>,
    /// What to read as `/sys`.
    pub sysfs: PathBuf,
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
            driver_patience: Duration::from_secs(20),
            mps_control: PathBuf::from("nvidia-cuda-mps-control"),
            mps_pipes: PathBuf::from("/tmp/nvidia-mps"),
            mps_patience: Duration::from_secs(20),
        }
    }
}

impl GpuConfig {
    /// The defaults, unless MPS's own [`mps::PIPE_VARIABLE`] says otherwise. A variable that
    /// is set to nothing counts as unset. What Packhorse's own settings say is laid over it.
    pub fn from_env() -> Self {
        let defaults = Self::default();
        let pipes = std::env::var_os(mps::PIPE_VARIABLE).filter(|value| !value.is_empty());
        Self { mps_pipes: pipes.map_or(defaults.mps_pipes, PathBuf::from), ..defaults }
    }
}
