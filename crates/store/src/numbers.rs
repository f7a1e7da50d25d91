//! Giving out run numbers without opening the database: whoever makes the
//! folder `runs/N` has the number N.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use packhorse_model::RunId;
use packhorse_trust::{create_private_folder, ensure_private_folder, open_private};
use rustix::fs::OFlags;

use crate::home_id::read_at_once;
use crate::{Home, Reader, RunLock, StoreError};

/// Task keys hold the run in the upper half of a signed 64-bit integer.
const HIGHEST: u32 = i32::MAX.cast_unsigned();

/// Writes the number down, always in the same width: to truncate the file
/// first would make ext4 write it to disk when it is closed.
fn write_hint(hint: &Path, number: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    // Whoever put a fifo there is not waited for.
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut file = open_private(&mut options, hint)?;
    file.write_all(format!("{number:10}\n").as_bytes())
}

impl Home {
    /// Takes the next run number, makes the run's folder and locks it for
    /// this process.
    pub fn new_run(&self) -> Result<(RunId, RunLock), StoreError> {
        let runs = self.runs_dir();
        let hint = runs.join("last");
        let mut number: u32 = match read_at_once(&hint).map(|text| text.trim().parse()) {
            Ok(Ok(last)) if last < HIGHEST => last,
            _ => self.highest_number()?,
        };
        loop {
            if number >= HIGHEST {
                return Err(StoreError::NoNumberLeft);
            }
            number += 1;
            let folder = runs.join(number.to_string());
            match create_private_folder(&folder) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
        let run = RunId(number);
        // Another process may write a lower number after us, or we may fail to
        // write ours. All that costs is a few more tries for the next run.
        let _ = write_hint(&hint, number);
        Ok((run, self.lock_new_run(run)?))
    }

    /// The highest number in use, found the slow way. The database counts as
    /// well: folders may have been removed to save space.
    fn highest_number(&self) -> Result<u32, StoreError> {
        let runs = self.runs_dir();
        let mut highest = 0;
        ensure_private_folder(&runs)?;
        for entry in fs_err::read_dir(&runs)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        }
        let recorded = Reader::open(self)?.latest_run()?.map_or(0, |run| run.0);
        Ok(highest.max(recorded))
    }
}
