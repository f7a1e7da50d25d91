use std::sync::mpsc::{self, RecvTimeoutError};

use crate::nvidia::NvmlLibrary;
use crate::{Amd, BrokenDriver, GpuConfig, GpuError, Nvidia, thread};

/// Runs `call` in a thread and waits for its result, but not for ever: a GPU that
/// has crashed can make every call to the driver hang. Then the thread is left
/// behind.
///
/// After a part of [`GpuConfig::driver_patience`] calls `on_slow`, once, to say that
/// we are waiting; after all of it returns [`GpuError::Silent`]. Where there is no
/// driver, nothing can hang, and no thread is started.
pub fn call_driver<T: Send + 'static>(
    config: &GpuConfig,
    on_slow: impl FnOnce(),
    call: impl FnOnce(&GpuConfig) -> T + Send + 'static,
) -> Result<T, GpuError> {
    let library = Nvidia::library(config);
    let mut config_of_call = config.clone();
    if library == NvmlLibrary::Absent {
        // Looking for it once is enough.
        config_of_call.nvml_library = Some("none".into());
    }
    if library != NvmlLibrary::Present && Amd::find(config).is_none() {
        return Ok(call(&config_of_call));
    }
    let (sender, results) = mpsc::sync_channel(1);
    let broken = |reason: String| BrokenDriver { reason, hint: None };
    thread::spawn_without_signals("driver", move || {
        // A result that comes too late has no receiver.
        let _ = sender.send(call(&config_of_call));
    })
    .map_err(|error| broken(format!("cannot start a thread to call it: {error}")))?;
    let patience = config.driver_patience;
    let quick = patience * 3 / 20;
    let result = results.recv_timeout(quick).or_else(|error| {
        if error == RecvTimeoutError::Disconnected {
            return Err(error);
        }
        on_slow();
        results.recv_timeout(patience.saturating_sub(quick))
    });
    result.map_err(|error| match error {
        RecvTimeoutError::Timeout => GpuError::Silent { after: patience },
        RecvTimeoutError::Disconnected => broken("a call to it panicked".to_owned()).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::thread::current;
    use std::time::Duration;

    use super::*;

    fn config(library: &str) -> GpuConfig {
        GpuConfig {
            nvml_library: Some(PathBuf::from(library)),
            sysfs: "/nonexistent".into(),
            ..GpuConfig::default()
        }
    }

    #[test]
    fn where_there_is_no_driver_no_thread_is_started() {
        let here = current().id();
        let thread_of_call =
            |library| call_driver(&config(library), || (), |_| current().id()).unwrap();
        assert_eq!(thread_of_call("none"), here);
        assert_ne!(thread_of_call("libsome.so"), here);
    }

    #[test]
    fn a_call_that_panics_is_a_driver_that_does_not_work() {
        let call = |_: &GpuConfig| -> () { panic!("it went wrong") };
        let error = call_driver(&config("libsome.so"), || (), call).unwrap_err();
        assert!(matches!(error, GpuError::Broken(_)), "{error}");
    }

    #[test]
    fn a_caller_is_told_once_that_it_waits_and_then_that_nothing_came() {
        let (_keep, never) = mpsc::channel::<()>();
        let config =
            GpuConfig { driver_patience: Duration::from_millis(20), ..config("libsome.so") };
        let mut told = 0;
        let result = call_driver(&config, || told += 1, move |_| never.recv());
        let after = config.driver_patience;
        assert_eq!(result.unwrap_err(), GpuError::Silent { after });
        assert_eq!(told, 1);
    }
}
