//! The file that says that nothing more of a run is to start: it was cancelled, or what runs
//! is to be the last.
//!
//! Signals alone are not enough. A job that is just starting does not hear them, and one that
//! is just ending may already be on its way back into the queue. So the file is written before
//! jobs are signalled; jobs look for it when they start and before they go on, and so does
//! whoever follows the run before anything is submitted again.

use std::io::ErrorKind;

use fs_err as fs;

use crate::SlurmError;
use crate::folder::SharedFolder;

const STOP: &str = "stop";

/// Why nothing more is to start. For whoever looks into the folder: both mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopOrder {
    /// What runs may come to its end.
    Draining,
    /// Nothing may.
    Cancelled,
}

impl StopOrder {
    /// Writes it down. Several may do so at a time.
    pub(crate) fn write(self, folder: &SharedFolder) -> Result<(), SlurmError> {
        let word = match self {
            Self::Draining => "draining\n",
            Self::Cancelled => "cancelled\n",
        };
        Ok(fs::write(folder.file(STOP), word)?)
    }
}

/// Whether nothing more is to start. Opening the file has a network file system ask whether it
/// is still there: the run may have been resumed a moment ago.
pub(crate) fn is_stopped(folder: &SharedFolder) -> bool {
    fs::File::open(folder.file(STOP)).is_ok()
}

/// The run goes on.
pub(crate) fn remove_stop(folder: &SharedFolder) -> Result<(), SlurmError> {
    match fs::remove_file(folder.file(STOP)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
