use std::io;
use std::path::PathBuf;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::FakeState;
use crate::state::{if_there, read};

/// NVML's number for the kind of event that carries an Xid.
pub(crate) const XID: u64 = 8;

/// Something that happened to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FakeEvent {
    /// The device's index.
    pub(crate) device: u32,
    /// NVML's number for the kind.
    pub(crate) kind: u64,
    /// Of an Xid, its code.
    pub(crate) data: u64,
}

impl FakeState {
    /// Adds an event behind all that there are.
    pub(crate) fn post(&self, event: FakeEvent) -> io::Result<()> {
        let _lock = self.lock()?;
        let number = self.last_event()? + 1;
        self.replace(&self.event_folder().join(format!("{number}.json")), &event)
    }

    /// The number of the last event; 0 before the first.
    pub(crate) fn last_event(&self) -> io::Result<u64> {
        let mut last = 0;
        for entry in if_there(fs::read_dir(self.event_folder()))?.into_iter().flatten() {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok());
            last = last.max(number.unwrap_or(0));
        }
        Ok(last)
    }

    pub(crate) fn event(&self, number: u64) -> io::Result<FakeEvent> {
        read(&self.event_folder().join(format!("{number}.json")))
    }

    pub(crate) fn event_folder(&self) -> PathBuf {
        self.path().join("events")
    }
}
