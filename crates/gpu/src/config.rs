use std::path::PathBuf;

/// The environment variable that names the NVML library to load, in place of
/// the one that the system's loader finds; `none` means to look for none.
pub const NVML_LIBRARY_VARIABLE: &str = "PACKHORSE_NVML_LIBRARY";

/// The environment variable that names the folder to read as `/sys`.
pub const SYSFS_VARIABLE: &str = "PACKHORSE_SYSFS";

/// Where to look for GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The NVML library. `None`: the system's, if it has one.
    pub nvml_library: Option<PathBuf>,
    /// What to read as `/sys`.
    pub sysfs: PathBuf,
    /// What to read as `/proc`.
    pub proc: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nvml_library: None,
            sysfs: PathBuf::from("/sys"),
            proc: PathBuf::from("/proc"),
        }
    }
}

impl Config {
    /// The usual places, unless [`NVML_LIBRARY_VARIABLE`] or [`SYSFS_VARIABLE`]
    /// say otherwise. A variable that is set to nothing is not set.
    pub fn from_env() -> Self {
        let path = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let usual = Self::default();
        Self {
            nvml_library: path(NVML_LIBRARY_VARIABLE),
            sysfs: path(SYSFS_VARIABLE).unwrap_or(usual.sysfs),
            proc: usual.proc,
        }
    }
}
