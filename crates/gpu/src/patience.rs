use std::sync::mpsc::{self, RecvTimeoutError};

use crate::nvidia::Library;
use crate::{Amd, BrokenDriver, Config, GpuError, Nvidia, quiet};

/// Puts a question to the driver and waits for the answer, but not for ever: a
/// GPU that has crashed can make every call to the driver hang, and then the
/// thread that asks is left behind.
///
/// After a part of [`Config::driver_patience`] `slow` is called, once, to say that
/// we wait; after all of it the driver counts as [`GpuError::Silent`]. Where there
/// is no driver, nothing can hang, and no thread is started.
pub fn ask<T: Send + 'static>(
    config: &Config,
    slow: impl FnOnce(),
    question: impl FnOnce(&Config) -> T + Send + 'static,
) -> Result<T, GpuError> {
    let library = Nvidia::library(config);
    let mut theirs = config.clone();
    if library == Library::Absent {
        // Once is enough to look for it.
        theirs.nvml_library = Some("none".into());
    }
    if library != Library::There && Amd::find(config).is_none() {
        return Ok(question(&theirs));
    }
    let (answer, answers) = mpsc::sync_channel(1);
    let broken = |reason: String| BrokenDriver { reason, hint: None };
    quiet::spawn("driver", move || {
        // If it comes too late, nobody is there to hear it.
        let _ = answer.send(question(&theirs));
    })
    .map_err(|error| broken(format!("there is no thread to ask it: {error}")))?;
    let patience = config.driver_patience;
    let quick = patience * 3 / 20;
    let answered = answers.recv_timeout(quick).or_else(|error| {
        if error == RecvTimeoutError::Disconnected {
            return Err(error);
        }
        slow();
        answers.recv_timeout(patience.saturating_sub(quick))
    });
    answered.map_err(|error| match error {
        RecvTimeoutError::Timeout => GpuError::Silent { after: patience },
        RecvTimeoutError::Disconnected => broken("asking it went wrong".to_owned()).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::thread::current;
    use std::time::Duration;

    use super::*;

    fn config(library: &str) -> Config {
        Config {
            nvml_library: Some(PathBuf::from(library)),
            sysfs: "/nonexistent".into(),
            ..Config::default()
        }
    }

    #[test]
    fn where_there_is_no_driver_no_thread_is_started() {
        let here = current().id();
        let place = |library| ask(&config(library), || (), |_| current().id()).unwrap();
        assert_eq!(place("none"), here);
        assert_ne!(place("libsome.so"), here);
    }

    #[test]
    fn a_question_that_panics_is_a_driver_that_does_not_work() {
        let question = |_: &Config| -> () { panic!("it went wrong") };
        let error = ask(&config("libsome.so"), || (), question).unwrap_err();
        assert!(matches!(error, GpuError::Broken(_)), "{error}");
    }

    #[test]
    fn one_that_waits_is_told_so_once_and_then_that_it_waited_in_vain() {
        let (_keep, never) = mpsc::channel::<()>();
        let config = Config {
            driver_patience: Duration::from_millis(20),
            ..config("libsome.so")
        };
        let mut told = 0;
        let answer = ask(&config, || told += 1, move |_| never.recv());
        let after = config.driver_patience;
        assert_eq!(answer.unwrap_err(), GpuError::Silent { after });
        assert_eq!(told, 1);
    }
}
