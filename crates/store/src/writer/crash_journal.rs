//! A run's last moments, kept in a file that outlives SIGKILL.
//!
//! Records are committed every 20 ms. Until then, those that say how attempts and the run
//! ended are also in a small file for each run, which the kernel keeps however the process
//! ends. Whoever opens the store next finds the file of a process that is gone, and
//! commits what that process had not: all but the note of an end, the rest of a long
//! message, and the last values of metrics.
//!
//! The facts of a new run are in it too, from before its first task starts. New tasks are
//! not: those that had only just been read are lost together with how they ended, which is
//! why nobody is told of an end before its task is committed.
//!
//! ```text
//!   0  MAGIC
//!   8  the place of the last record that is committed
//!  16  the run's UUID; zeros if the run was resumed
//!  32  which boot of the machine this is. After a power cut, the file may be older
//!      than the database.
//! 120  how long the facts of the run are
//! 128  the facts as JSON, and zeros up to a multiple of 128; then entries of 128 bytes,
//!      used in a ring
//!        0  the record's place
//!        8  kind, whether another attempt follows, outcome, length of the text;
//!           detail or exit status (4 bytes)
//!       16  task number, attempt (4 bytes each)
//!       24  time; of the end of input, the place of the tasks that must be committed
//!       32  peak, -1 for none
//!       40  text: the device of a start, the message of an end
//! ```
//!
//! The run itself is in the file's name. Numbers are in this machine's byte order. An
//! entry lies within one page, so it is written whole or not at all.

use std::borrow::Cow;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use fs_err::File;
use packhorse_model::{ByteString, NewRun, Outcome, RunId, RunSpec, TaskId, Timestamp};
use packhorse_trust::{create_private, ensure_private_folder};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::columns::{self, outcome_code};
use crate::{EndedAttempt, Home, Record, StartedAttempt, StoreError};

const MAGIC: &[u8; 8] = b"PHCRASH2";
/// Files of earlier programs. They are laid out in the same way, but without facts.
const OLD_MAGIC: [&[u8; 8]; 2] = [b"PHCRASH1", b"PHSLATE1"];
const COMMITTED: usize = 8;
const UUID: usize = 16;
const BOOT: usize = 32;
const FACTS_LENGTH: usize = 120;
const ENTRY: usize = 128;
/// In 20 ms a few dozen come. If nothing can be committed for so long that this is
/// not enough, the file grows.
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
const RUN_ENDED: u8 = 4;
const INPUT_COMPLETE: u8 = 5;

/// The file of a run that is being written.
///
/// Not a memory map: on a file system that writes to a new place each time, a full
/// disk would then kill the process. Here an entry is lost, which matters only if the
/// process is killed as well.
#[derive(Debug)]
pub(super) struct CrashJournal {
    file: File,
    path: PathBuf,
    /// Where the entries begin.
    entries: usize,
    /// Where the next entry goes.
    next: usize,
    /// The place of the record in each entry of the file.
    places: Vec<u64>,
    committed: u64,
    /// Starts, and the end of input, that are not in the file. If the process is killed,
    /// nothing is lost with them, so they are written together with the next end.
    starts: Vec<u8>,
    /// The place of the last new tasks, which are not in the file; 0 if they are committed.
    last_tasks: u64,
    /// The place of the last record that was added.
    last: u64,
    /// Whether the file has entries that it does not know to be committed.
    has_entries: bool,
    /// From this place on, an end may be missing in the file: it could not be written.
    failed: Option<u64>,
}

impl CrashJournal {
    /// Makes the file of a run, which is new if its facts are given. None on a network disk,
    /// where each entry might take a while.
    pub(super) fn create(
        home: &Home,
        run: RunId,
        facts: Option<&NewRun>,
    ) -> Result<Option<Self>, StoreError> {
        if home.network_filesystem().is_some() {
            return Ok(None);
        }
        let folder = home.crash_journals_dir();
        let path = folder.join(format!("{run}.{}", Timestamp::now().0));
        let file = match create_private(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                ensure_private_folder(&folder)?;
                create_private(&path)?
            }
            other => other?,
        };
        let mut file = File::from_parts(file, &path);
        let mut header = vec![0; ENTRY];
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[BOOT..FACTS_LENGTH].copy_from_slice(&boot()?);
        if let Some(facts) = facts {
            header[UUID..BOOT].copy_from_slice(facts.uuid.as_bytes());
            serde_json::to_writer(&mut header, &RunFacts::of(facts))
                .map_err(std::io::Error::from)?;
            let length = (header.len() - ENTRY) as u64;
            header[FACTS_LENGTH..ENTRY].copy_from_slice(&length.to_ne_bytes());
            header.resize(header.len().next_multiple_of(ENTRY), 0);
        }
        file.write_all(&header)?;
        Ok(Some(Self {
            file,
            path,
            entries: header.len(),
            next: 0,
            places: Vec::new(),
            committed: 0,
            starts: Vec::new(),
            last_tasks: 0,
            last: 0,
            has_entries: false,
            failed: None,
        }))
    }

    /// Adds a record of this run, if it is of a kind that belongs here.
    pub(super) fn add(&mut self, place: u64, record: &Record) {
        if matches!(record, Record::Tasks(_)) {
            self.last_tasks = place;
        }
        let Some(mut entry) = encode(record, self.last_tasks) else {
            return;
        };
        self.last = place;
        entry[..KIND].copy_from_slice(&place.to_ne_bytes());
        self.starts.extend_from_slice(&entry);
        if matches!(entry[KIND], STARTED | INPUT_COMPLETE) {
            return;
        }
        let count = self.starts.len() / ENTRY;
        if self.next + count > ENTRIES {
            self.next = 0;
        }
        let mut used = self.places.iter().skip(self.next).take(count);
        if used.any(|&place| place > self.committed) {
            // What is not committed is not overwritten.
            self.next = self.places.len();
        }
        let length = self.places.len().max(self.next + count);
        self.places.resize(length, 0);
        self.places[self.next..self.next + count].fill(place);
        let offset = (self.entries + self.next * ENTRY) as u64;
        self.next += count;
        self.has_entries = true;
        if self.file.file().write_all_at(&self.starts, offset).is_err() {
            self.failed.get_or_insert(place);
        }
        self.starts.clear();
    }

    /// Everything up to this place is committed.
    pub(super) fn set_committed(&mut self, place: u64) {
        self.committed = place;
        if self.has_entries {
            let place = place.to_ne_bytes();
            let _ = self.file.file().write_all_at(&place, COMMITTED as u64);
        }
        if self.last_tasks <= place {
            self.last_tasks = 0;
        }
        // Which of the later ones are missing, nobody knows.
        self.failed = self.failed.map(|failed| failed.max(place + 1));
        if self.last <= place {
            self.next = 0;
            self.starts.clear();
            self.has_entries = false;
            self.failed = None;
        }
    }

    /// From which place on an end may be missing.
    pub(super) fn failed(&self) -> Option<u64> {
        self.failed
    }

    /// Removes the file, after everything was committed.
    pub(super) fn remove(self) {
        // If it stays, it holds nothing that is not committed.
        let _ = fs_err::remove_file(self.path);
    }
}

/// The facts of a new run, but for its UUID.
#[derive(Serialize, Deserialize)]
struct RunFacts<'a> {
    started: i64,
    cwd: ByteString,
    argv: Vec<ByteString>,
    host: Cow<'a, str>,
    pid: u32,
    spec: Cow<'a, RunSpec>,
}

impl<'a> RunFacts<'a> {
    fn of(run: &'a NewRun) -> Self {
        Self {
            started: run.started.0,
            cwd: run.cwd.clone().into_os_string().into(),
            argv: run.argv.iter().cloned().map(Into::into).collect(),
            host: Cow::Borrowed(&run.host),
            pid: run.pid,
            spec: Cow::Borrowed(&run.spec),
        }
    }

    fn with(self, uuid: Uuid) -> NewRun {
        let words = self.argv.iter().map(|word| word.as_os_str().to_owned());
        NewRun {
            uuid,
            started: Timestamp(self.started),
            cwd: self.cwd.as_os_str().into(),
            argv: words.collect(),
            host: self.host.into_owned(),
            pid: self.pid,
            spec: self.spec.into_owned(),
        }
    }
}

/// Tells this boot of the machine from others.
fn boot() -> Result<[u8; FACTS_LENGTH - BOOT], StoreError> {
    let mut boot = [0; FACTS_LENGTH - BOOT];
    // Earlier versions wrote the line's end too.
    let line = packhorse_proc::boot_id()? + "\n";
    for (byte, read) in boot.iter_mut().zip(line.bytes()) {
        *byte = read;
    }
    Ok(boot)
}

/// Lays out the record, if it is of a kind that belongs here.
fn encode(record: &Record, last_tasks: u64) -> Option<[u8; ENTRY]> {
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
        Record::RunEnded { run, at, exit } => {
            put(KIND, &[RUN_ENDED]);
            put(DETAIL, &i32::from(*exit).to_ne_bytes());
            put(AT, &at.0.to_ne_bytes());
            (TaskId::new(*run, 0), None)
        }
        Record::InputComplete { run } => {
            put(KIND, &[INPUT_COMPLETE]);
            put(AT, &last_tasks.to_ne_bytes());
            (TaskId::new(*run, 0), None)
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
    /// Its facts then.
    pub(super) facts: Option<Box<NewRun>>,
    /// What is not committed, in its order.
    pub(super) records: Vec<Record>,
}

/// Reads the bytes of a run's file. None if it is of another kind; one that is too
/// short was never used.
pub(super) fn read(run: RunId, bytes: &[u8]) -> Result<Option<Contents>, StoreError> {
    let Some(header) = bytes.get(..ENTRY) else {
        return Ok(Some(Contents::default()));
    };
    if !header.starts_with(MAGIC) && !OLD_MAGIC.iter().any(|old| header.starts_with(*old)) {
        return Ok(None);
    }
    if header[BOOT..FACTS_LENGTH] != boot()? {
        return Ok(Some(Contents::default()));
    }
    let committed = u64::from_ne_bytes(part(header, COMMITTED));
    let uuid = Some(part(header, UUID)).filter(|uuid| *uuid != [0; 16]);
    let length = usize::try_from(u64::from_ne_bytes(part(header, FACTS_LENGTH))).unwrap_or(0);
    let (facts, entries) =
        bytes[ENTRY..].split_at_checked(length.next_multiple_of(ENTRY)).unwrap_or_default();
    let facts = facts.get(..length).zip(uuid);
    let facts = facts.and_then(|(json, uuid)| {
        let facts: RunFacts = serde_json::from_slice(json).ok()?;
        Some(Box::new(facts.with(Uuid::from_bytes(uuid))))
    });
    let entries = entries.chunks_exact(ENTRY);
    let mut found: Vec<(u64, Record)> = entries
        .map(|entry| (u64::from_ne_bytes(part(entry, 0)), entry))
        .filter(|(place, _)| *place > committed)
        .filter_map(|(place, entry)| Some((place, decode(run, entry, committed)?)))
        .collect();
    found.sort_unstable_by_key(|(place, _)| *place);
    Ok(Some(Contents {
        uuid,
        facts,
        records: found.into_iter().map(|(_, record)| record).collect(),
    }))
}

fn decode(run: RunId, entry: &[u8], committed: u64) -> Option<Record> {
    let text = entry.get(TEXT..TEXT + usize::from(*entry.get(LENGTH)?))?;
    let text = std::str::from_utf8(text).ok()?;
    let text = (!text.is_empty()).then_some(text);
    let detail = i32::from_ne_bytes(part(entry, DETAIL));
    let outcome = columns::outcome(entry[OUTCOME].into(), (detail != NO_DETAIL).then_some(detail));
    let task = TaskId::new(run, u32::from_ne_bytes(part(entry, TASK)));
    let attempt = u32::from_ne_bytes(part(entry, ATTEMPT));
    let at = Timestamp(i64::from_ne_bytes(part(entry, AT)));
    let peak = i64::from_ne_bytes(part(entry, PEAK));
    Some(match entry[KIND] {
        STARTED => {
            Record::Started(StartedAttempt { task, attempt, at, device: text.map(Into::into) })
        }
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
        TASK_FINISHED => Record::TaskFinished { task, outcome: outcome? },
        RUN_ENDED => Record::RunEnded { run, at, exit: u8::try_from(detail).ok()? },
        // Where tasks are lost, more input is to be read than the store knows of.
        INPUT_COMPLETE if u64::from_ne_bytes(part(entry, AT)) <= committed => {
            Record::InputComplete { run }
        }
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
