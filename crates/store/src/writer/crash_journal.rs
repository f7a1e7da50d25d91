//! A run's last moments, kept in a file that outlives SIGKILL.
//!
//! Records are committed every 20 ms. Until then, those that say how attempts ended
//! are also in a small file for each run, which the kernel keeps however the process
//! ends. Whoever opens the store next finds the file of a process that is gone, and
//! commits what that process had not: all but the note of an end, and the rest of a
//! long message.
//!
//! New tasks are not in it. Those that had only just been read are lost together with
//! how they ended, and so is a run that had only just begun.
//!
//! ```text
//!   0  MAGIC
//!   8  the place of the last record that is committed
//!  16  the run's UUID; zeros if the run was resumed
//!  32  which boot of the machine this is. After a power cut, the file may be older
//!      than the database.
//! 128  entries of 128 bytes, used in a ring
//!        0  the record's place
//!        8  kind, whether another attempt follows, outcome, length of the text;
//!           detail (4 bytes)
//!       16  task number, attempt (4 bytes each)
//!       24  time
//!       32  peak, -1 for none
//!       40  text: the device of a start, the message of an end
//! ```
//!
//! The run itself is in the file's name. Numbers are in this machine's byte order. An
//! entry lies within one page, so it is written whole or not at all.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use fs_err::File;
use packhorse_model::{Outcome, RunId, TaskId, Timestamp};
use uuid::Uuid;

use crate::columns::{self, outcome_code};
use crate::{EndedAttempt, Home, Record, StartedAttempt, StoreError};

const MAGIC: &[u8; 8] = b"PHCRASH1";
/// Files of version 2. They are laid out in the same way.
const OLD_MAGIC: &[u8; 8] = b"PHSLATE1";
const COMMITTED: usize = 8;
const UUID: usize = 16;
const BOOT: usize = 32;
const ENTRY: usize = 128;
/// In 20 ms a few dozen come. If nothing can be committed for so long that this is
/// not enough, the oldest are overwritten.
const ENTRIES: usize = 2048;

/// Where the parts of an entry begin.
const KIND: usize = 8;
const ANOTHER_FOLLOWS: usize = 9;
const OUTCOME: usize = 10;
const LENGTH: usize = 11;
const DETAIL: usize = 12;
const TASK: usize = 16;
const ATTEMPT: usize = 20;
const AT: usize = 24;
const PEAK: usize = 32;
const TEXT: usize = 40;

/// An outcome has no detail.
const NO_DETAIL: i32 = i32::MIN;
const NO_PEAK: i64 = -1;

const STARTED: u8 = 1;
const ATTEMPT_ENDED: u8 = 2;
const TASK_FINISHED: u8 = 3;

/// The file of a run that is being written.
///
/// Not a memory map: on a file system that writes to a new place each time, a full
/// disk would then kill the process. Here an entry is lost, which matters only if the
/// process is killed as well.
#[derive(Debug)]
pub(super) struct CrashJournal {
    file: File,
    path: PathBuf,
    /// Where the next entry goes.
    next: usize,
    /// Starts that are not in the file. If the process is killed, nothing is lost with
    /// them, so they are written together with the next end.
    starts: Vec<u8>,
    /// The place of the last record that was added.
    last: u64,
    /// Whether the file has entries that it does not know to be committed.
    has_entries: bool,
}

impl CrashJournal {
    /// Makes the file. None on a network disk, where each entry might take a while.
    pub(super) fn create(home: &Home, run: RunId, uuid: Uuid) -> Result<Option<Self>, StoreError> {
        if home.network_filesystem().is_some() {
            return Ok(None);
        }
        let folder = home.crash_journals_dir();
        let path = folder.join(format!("{run}.{}", Timestamp::now().0));
        let mut file = match File::create(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs_err::create_dir_all(&folder)?;
                File::create(&path)?
            }
            other => other?,
        };
        let mut header = [0; ENTRY];
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[UUID..BOOT].copy_from_slice(uuid.as_bytes());
        header[BOOT..].copy_from_slice(&boot()?);
        file.write_all(&header)?;
        Ok(Some(Self {
            file,
            path,
            next: 0,
            starts: Vec::new(),
            last: 0,
            has_entries: false,
        }))
    }

    /// Adds a record of this run, if it is of a kind that belongs here.
    pub(super) fn add(&mut self, place: u64, record: &Record) {
        let Some(mut entry) = encode(record) else {
            return;
        };
        self.last = place;
        entry[..KIND].copy_from_slice(&place.to_ne_bytes());
        self.starts.extend_from_slice(&entry);
        if entry[KIND] == STARTED {
            return;
        }
        let count = self.starts.len() / ENTRY;
        if self.next + count > ENTRIES {
            self.next = 0;
        }
        let offset = (ENTRY + self.next * ENTRY) as u64;
        self.next += count;
        self.has_entries = true;
        let _ = self.file.file().write_all_at(&self.starts, offset);
        self.starts.clear();
    }

    /// Everything up to this place is committed.
    pub(super) fn set_committed(&mut self, place: u64) {
        if self.has_entries {
            let place = place.to_ne_bytes();
            let _ = self.file.file().write_all_at(&place, COMMITTED as u64);
        }
        if self.last <= place {
            self.next = 0;
            self.starts.clear();
            self.has_entries = false;
        }
    }

    /// Removes the file, after everything was committed.
    pub(super) fn remove(self) {
        // If it stays, it holds nothing that is not committed.
        let _ = fs_err::remove_file(self.path);
    }
}

/// Tells this boot of the machine from others.
fn boot() -> Result<[u8; ENTRY - BOOT], StoreError> {
    let mut boot = [0; ENTRY - BOOT];
    // Earlier versions wrote the line's end too.
    let line = packhorse_proc::boot_id()? + "\n";
    for (byte, read) in boot.iter_mut().zip(line.bytes()) {
        *byte = read;
    }
    Ok(boot)
}

/// Lays out the record, if it is of a kind that belongs here.
fn encode(record: &Record) -> Option<[u8; ENTRY]> {
    let mut entry = [0; ENTRY];
    let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
    let (task, text) = match record {
        Record::Started(start) => {
            put(KIND, &[STARTED]);
            put(ATTEMPT, &start.attempt.to_ne_bytes());
            put(AT, &start.at.0.to_ne_bytes());
            (start.task, start.device.as_deref())
        }
        Record::AttemptEnded(end) => {
            let another = !end.is_final;
            put(KIND, &[ATTEMPT_ENDED, another.into(), code(end.outcome)]);
            put(DETAIL, &detail(end.outcome).to_ne_bytes());
            put(ATTEMPT, &end.attempt.to_ne_bytes());
            put(AT, &end.at.0.to_ne_bytes());
            let peak = end.peak.map_or(NO_PEAK, columns::bytes_column);
            put(PEAK, &peak.to_ne_bytes());
            (end.task, end.message.as_deref())
        }
        Record::TaskFinished { task, outcome } => {
            put(KIND, &[TASK_FINISHED, 0, code(*outcome)]);
            put(DETAIL, &detail(*outcome).to_ne_bytes());
            (*task, None)
        }
        _ => return None,
    };
    put(TASK, &task.number.to_ne_bytes());
    if let Some(text) = text {
        let text = &text[..text.floor_char_boundary(ENTRY - TEXT)];
        put(TEXT, text.as_bytes());
        put(LENGTH, &[u8::try_from(text.len()).unwrap_or_default()]);
    }
    Some(entry)
}

fn code(outcome: Outcome) -> u8 {
    u8::try_from(outcome_code(outcome)).unwrap_or_default()
}

fn detail(outcome: Outcome) -> i32 {
    outcome.detail().unwrap_or(NO_DETAIL)
}

/// What a crash journal holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The run's UUID, if it was a new one.
    pub(super) uuid: Option<[u8; 16]>,
    /// What is not committed, in its order.
    pub(super) records: Vec<Record>,
}

/// Reads the bytes of a run's file. None if it is of another kind; one that is too
/// short was never used.
pub(super) fn read(run: RunId, bytes: &[u8]) -> Result<Option<Contents>, StoreError> {
    let Some(header) = bytes.get(..ENTRY) else {
        return Ok(Some(Contents::default()));
    };
    if !header.starts_with(MAGIC) && !header.starts_with(OLD_MAGIC) {
        return Ok(None);
    }
    if header[BOOT..] != boot()? {
        return Ok(Some(Contents::default()));
    }
    let committed = u64::from_ne_bytes(part(header, COMMITTED));
    let entries = bytes.chunks_exact(ENTRY).skip(1);
    let mut found: Vec<(u64, Record)> = entries
        .map(|entry| (u64::from_ne_bytes(part(entry, 0)), entry))
        .filter(|(place, _)| *place > committed)
        .filter_map(|(place, entry)| Some((place, decode(run, entry)?)))
        .collect();
    found.sort_unstable_by_key(|(place, _)| *place);
    Ok(Some(Contents {
        uuid: Some(part(header, UUID)).filter(|uuid| *uuid != [0; 16]),
        records: found.into_iter().map(|(_, record)| record).collect(),
    }))
}

fn decode(run: RunId, entry: &[u8]) -> Option<Record> {
    let text = entry.get(TEXT..TEXT + usize::from(*entry.get(LENGTH)?))?;
    let text = std::str::from_utf8(text).ok()?;
    let text = (!text.is_empty()).then_some(text);
    let detail = i32::from_ne_bytes(part(entry, DETAIL));
    let outcome = columns::outcome(
        entry[OUTCOME].into(),
        (detail != NO_DETAIL).then_some(detail),
    );
    let task = TaskId::new(run, u32::from_ne_bytes(part(entry, TASK)));
    let attempt = u32::from_ne_bytes(part(entry, ATTEMPT));
    let at = Timestamp(i64::from_ne_bytes(part(entry, AT)));
    let peak = i64::from_ne_bytes(part(entry, PEAK));
    Some(match entry[KIND] {
        STARTED => Record::Started(StartedAttempt {
            task,
            attempt,
            at,
            device: text.map(Into::into),
        }),
        ATTEMPT_ENDED => Record::AttemptEnded(EndedAttempt {
            task,
            attempt,
            at,
            outcome: outcome?,
            message: text.map(Into::into),
            peak: (peak != NO_PEAK).then(|| columns::bytes(peak)),
            note: None,
            is_final: entry[ANOTHER_FOLLOWS] == 0,
        }),
        TASK_FINISHED => Record::TaskFinished {
            task,
            outcome: outcome?,
        },
        _ => return None,
    })
}

/// So many bytes from `at`; zeros if they are not there.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        part.copy_from_slice(found);
    }
    part
}

#[cfg(test)]
mod tests;
