use std::path::PathBuf;
use std::time::Duration;

/// Why telemetry is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The NVML library that the configuration names cannot be loaded.
    #[error(
        "cannot load the NVML library {}: {reason}\n\
         hint: correct or unset PACKHORSE_NVML_LIBRARY", .path.display()
    )]
    Library {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// The driver is there but does not work.
    #[error(transparent)]
    Broken(#[from] BrokenDriver),
    /// The driver is there but does not answer.
    #[error(
        "the GPU driver has not answered for {after:?}: it, or one of its GPUs, hangs\n\
         hint: look for its last messages with `dmesg`; PACKHORSE_DRIVER_PATIENCE=5m waits \
         longer, and `packhorse run --gpus 0,1` runs without it"
    )]
    Silent {
        /// How long we waited.
        after: Duration,
    },
}

/// A driver that is installed but does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the NVIDIA driver does not work: {reason}{}", hint_line(.hint.as_deref()))]
pub struct BrokenDriver {
    /// What is wrong with it.
    pub reason: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

fn hint_line(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!("\nhint: {hint}"))
}
