//! What the last moments brought, kept where SIGKILL does not reach it.
//!
//! Records are committed every 20 ms. Until then, those that tell how tasks fared
//! are also in a small file that is mapped into memory: to write there takes no call
//! to the kernel, which keeps it however the process ends. Whoever opens the store
//! next finds the file of a process that is gone, and commits what it had not.
//!
//! ```text
//!   0  MAGIC
//!   8  the place of the last record that is committed
//!  16  (unused)
//! 128  entries of 128 bytes, used in a ring
//!        0  the record's place; written last, so that no entry is half there
//!        8  kind, verdict, outcome, length of the text; detail (4 bytes)
//!       16  task, attempt (4 bytes each)
//!       24  time
//!       32  peak, -1 for none
//!       40  text: the device of a start, the message of an end
//! ```
//!
//! Numbers are as this machine has them: nobody else reads the file.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, compiler_fence};

use fs_err::OpenOptions;
use memmap2::MmapMut;
use packhorse_model::{Outcome, RunId};
use rusqlite::Connection;

use super::statements::{Refusal, Statements};
use crate::columns::{self, outcome_code};
use crate::{End, Error, Home, Record, Start, UnixMicros, Verdict, database};

const MAGIC: &[u8; 8] = b"PHSLATE1";
const COMMITTED: usize = 8;
const ENTRY: usize = 128;
/// In 20 ms come a few dozen. If nothing can be committed for longer than this
/// lasts, the oldest are overwritten.
const ENTRIES: usize = 2048;

/// Where the parts of an entry begin.
const KIND: usize = 8;
const VERDICT: usize = 9;
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

/// The file of a process that writes.
#[derive(Debug)]
pub(super) struct Slate {
    map: MmapMut,
    path: PathBuf,
    next: usize,
}

impl Slate {
    /// Makes the file. None on a network disk: that could take a page back.
    pub(super) fn new(home: &Home, run: RunId) -> Result<Option<Self>, Error> {
        if home.network_filesystem().is_some() {
            return Ok(None);
        }
        let folder = home.slates_dir();
        let path = folder.join(format!("{run}.{}", std::process::id()));
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
        };
        let mut file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs_err::create_dir_all(&folder)?;
                open()?
            }
            other => other?,
        };
        // Written, not only made so long: then the disk has room for it.
        let mut empty = vec![0; ENTRY + ENTRIES * ENTRY];
        empty[..MAGIC.len()].copy_from_slice(MAGIC);
        let mapped = file
            .write_all(&empty)
            // SAFETY: the file is of this process alone until it has ended; nobody
            // makes it shorter.
            .and_then(|()| unsafe { MmapMut::map_mut(file.file()) });
        match mapped {
            Ok(map) => Ok(Some(Self { map, path, next: 0 })),
            Err(error) => {
                let _ = fs_err::remove_file(path);
                Err(error.into())
            }
        }
    }

    /// Notes the record, if it tells how a task fared.
    pub(super) fn note(&mut self, place: u64, record: &Record) {
        let mut entry = [0; ENTRY];
        if !encode(record, &mut entry) {
            return;
        }
        let start = ENTRY + self.next * ENTRY;
        self.next = (self.next + 1) % ENTRIES;
        let old = &mut self.map[start..start + ENTRY];
        // Nobody else runs between these: what counts is the order of the stores.
        old[..KIND].fill(0);
        compiler_fence(Ordering::SeqCst);
        old[KIND..].copy_from_slice(&entry[KIND..]);
        compiler_fence(Ordering::SeqCst);
        old[..KIND].copy_from_slice(&place.to_ne_bytes());
    }

    /// Everything up to this place is committed; `all` if that is all there is.
    pub(super) fn set_committed(&mut self, place: u64, all: bool) {
        self.map[COMMITTED..COMMITTED + 8].copy_from_slice(&place.to_ne_bytes());
        if all {
            self.next = 0;
        }
    }

    /// Takes the file away, after everything was committed.
    pub(super) fn remove(self) {
        // One that stays has nothing in it that is not committed.
        let _ = fs_err::remove_file(self.path);
    }
}

/// Commits what processes that are gone had not: of the run whose lock we have,
/// else of all runs that nobody is at work on.
pub(crate) fn take_in(home: &Home, locked: Option<RunId>) -> Result<(), Error> {
    let files = match fs_err::read_dir(home.slates_dir()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    for file in files {
        let path = file?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let Some(run) = name.and_then(|run| run.parse().ok()) else {
            continue;
        };
        let abandoned = match locked {
            Some(locked) => run == locked,
            None => !home.is_running(run)?,
        };
        if abandoned {
            take_in_one(home, run, &path)?;
        }
    }
    Ok(())
}

fn take_in_one(home: &Home, run: RunId, path: &Path) -> Result<(), Error> {
    let bytes = match fs_err::read(path) {
        // Somebody else has just done it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    // One that is too short was never used; one of another kind is a newer program's.
    if bytes.len() >= ENTRY && !bytes.starts_with(MAGIC) {
        return Ok(());
    }
    let records = decode_all(&bytes);
    if !records.is_empty() {
        let db = database::open(home)?;
        commit(&db, run, records, path).map_err(|source| Error::Sqlite {
            path: home.db(),
            source,
        })?;
        database::close(db, home)?;
    }
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn commit(
    db: &Connection,
    run: RunId,
    mut records: Vec<Record>,
    path: &Path,
) -> rusqlite::Result<()> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    // If it is gone by now, somebody was first, and the run may even go on already.
    let there = path.exists()
        && db
            .prepare("SELECT 1 FROM run WHERE id = ?1")?
            .exists([run.0])?;
    if there {
        if !matches!(records.last(), Some(Record::RunEnded { .. })) {
            let sql = "UPDATE run SET ended = NULL, exit = NULL WHERE id = ?1";
            db.execute(sql, [run.0])?;
        }
        let mut task = db.prepare("SELECT 1 FROM task WHERE id = ?1")?;
        let mut known = Vec::with_capacity(records.len());
        for record in &records {
            known.push(match task_of(record) {
                Some(number) => task.exists([columns::task_key(run, number)])?,
                None => true,
            });
        }
        let mut known = known.into_iter();
        records.retain(|_| known.next().unwrap_or_default());
        match Statements::prepare(db, run)?.apply(&records) {
            // There is no record of a new run among them.
            Ok(()) | Err(Refusal::NumberTaken) => {}
            Err(Refusal::Sqlite(error)) => return Err(error),
        }
    }
    db.execute_batch("COMMIT")
}

const fn task_of(record: &Record) -> Option<u32> {
    match record {
        Record::Started(start) => Some(start.task),
        Record::AttemptEnded(end) => Some(end.task),
        Record::TaskFinished { task, .. } => Some(*task),
        _ => None,
    }
}

/// Lays out the record, if it is of a kind that is noted.
fn encode(record: &Record, entry: &mut [u8; ENTRY]) -> bool {
    let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
    let mut text = None;
    match record {
        Record::Started(start) => {
            put(KIND, &[STARTED]);
            put(TASK, &start.task.to_ne_bytes());
            put(ATTEMPT, &start.attempt.to_ne_bytes());
            put(AT, &start.at.0.to_ne_bytes());
            text = start.device.as_deref();
        }
        Record::AttemptEnded(end) => {
            let again = end.verdict == Verdict::Again;
            put(KIND, &[ATTEMPT_ENDED, again.into(), code(end.outcome)]);
            put(DETAIL, &detail(end.outcome).to_ne_bytes());
            put(TASK, &end.task.to_ne_bytes());
            put(ATTEMPT, &end.attempt.to_ne_bytes());
            put(AT, &end.at.0.to_ne_bytes());
            let peak = end.peak.map_or(NO_PEAK, columns::bytes_column);
            put(PEAK, &peak.to_ne_bytes());
            text = end.message.as_deref();
        }
        Record::TaskFinished { task, outcome } => {
            put(KIND, &[TASK_FINISHED, 0, code(*outcome)]);
            put(DETAIL, &detail(*outcome).to_ne_bytes());
            put(TASK, &task.to_ne_bytes());
        }
        Record::RunEnded { at, exit } => {
            put(KIND, &[RUN_ENDED]);
            put(DETAIL, &i32::from(*exit).to_ne_bytes());
            put(AT, &at.0.to_ne_bytes());
        }
        _ => return false,
    }
    if let Some(text) = text {
        let text = &text[..text.floor_char_boundary(ENTRY - TEXT)];
        put(TEXT, text.as_bytes());
        put(LENGTH, &[u8::try_from(text.len()).unwrap_or_default()]);
    }
    true
}

fn code(outcome: Outcome) -> u8 {
    u8::try_from(outcome_code(outcome)).unwrap_or_default()
}

fn detail(outcome: Outcome) -> i32 {
    outcome.detail().unwrap_or(NO_DETAIL)
}

/// The records that are not committed, in their order.
fn decode_all(bytes: &[u8]) -> Vec<Record> {
    let committed = u64::from_ne_bytes(part(bytes, COMMITTED));
    let entries = bytes.chunks_exact(ENTRY).skip(1);
    let mut found: Vec<(u64, Record)> = entries
        .map(|entry| (u64::from_ne_bytes(part(entry, 0)), entry))
        .filter(|(place, _)| *place > committed)
        .filter_map(|(place, entry)| Some((place, decode(entry)?)))
        .collect();
    found.sort_unstable_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, record)| record).collect()
}

fn decode(entry: &[u8]) -> Option<Record> {
    let text = entry.get(TEXT..TEXT + usize::from(*entry.get(LENGTH)?))?;
    let text = std::str::from_utf8(text).ok()?;
    let text = (!text.is_empty()).then_some(text);
    let detail = i32::from_ne_bytes(part(entry, DETAIL));
    let outcome = columns::outcome(
        entry[OUTCOME].into(),
        (detail != NO_DETAIL).then_some(detail),
    );
    let task = u32::from_ne_bytes(part(entry, TASK));
    let attempt = u32::from_ne_bytes(part(entry, ATTEMPT));
    let at = UnixMicros(i64::from_ne_bytes(part(entry, AT)));
    let peak = i64::from_ne_bytes(part(entry, PEAK));
    Some(match entry[KIND] {
        STARTED => Record::Started(Start {
            task,
            attempt,
            at,
            device: text.map(Into::into),
        }),
        ATTEMPT_ENDED => Record::AttemptEnded(End {
            task,
            attempt,
            at,
            outcome: outcome?,
            message: text.map(Into::into),
            peak: (peak != NO_PEAK).then(|| columns::bytes(peak)),
            note: None,
            verdict: match entry[VERDICT] {
                0 => Verdict::Final,
                _ => Verdict::Again,
            },
        }),
        TASK_FINISHED => Record::TaskFinished {
            task,
            outcome: outcome?,
        },
        RUN_ENDED => Record::RunEnded {
            at,
            exit: u8::try_from(detail).ok()?,
        },
        _ => return None,
    })
}

/// So many bytes from there; zeros behind the end.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        part.copy_from_slice(found);
    }
    part
}
