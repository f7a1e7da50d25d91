use std::sync::atomic::{AtomicBool, Ordering};

use packhorse_gpu::{Config, DRIVER_PATIENCE_VARIABLE, GpuError};

use crate::commands::patience::patience;
use crate::complain;

/// Whether the driver was waited for in vain: once is enough.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Where to look for GPUs, and how long, as the environment says.
pub fn config() -> anyhow::Result<Config> {
    let mut config = Config::from_env();
    if let Some(time) = patience(DRIVER_PATIENCE_VARIABLE)? {
        config.driver_patience = time;
    }
    Ok(config)
}

/// Asks the driver. Whoever has to wait for it is told.
pub fn ask<T: Send + 'static>(
    config: &Config,
    question: impl FnOnce(&Config) -> T + Send + 'static,
) -> Result<T, GpuError> {
    let slow = || {
        complain(&format!(
            "the GPU driver does not answer yet; it is given up after {:?}",
            config.driver_patience
        ));
    };
    if SILENT.load(Ordering::Relaxed) {
        let after = config.driver_patience;
        return Err(GpuError::Silent { after });
    }
    let answer = packhorse_gpu::ask(config, slow, question);
    let silent = matches!(answer, Err(GpuError::Silent { .. }));
    SILENT.store(silent, Ordering::Relaxed);
    answer
}
