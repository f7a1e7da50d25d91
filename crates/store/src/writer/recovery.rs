//! Committing what is in the crash journals of processes that are gone.

use std::io::ErrorKind;
use std::path::Path;

use fs_err::DirEntry;
use packhorse_model::{RunId, TaskId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::crash_journal::{self, Contents};
use super::statements::{Statements, WriteError};
use crate::{Home, Record, StoreError, columns, database};

/// Commits what processes that are gone had not: of the run whose lock we hold,
/// else of all runs that nobody is at work on.
///
/// A journal that cannot be read does not keep the others from being recovered.
pub(crate) fn recover(home: &Home, locked: Option<RunId>) -> Result<(), StoreError> {
    let mut result = Ok(());
    for folder in [home.crash_journals_dir(), home.old_crash_journals_dir()] {
        let files = match fs_err::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            files => files?,
        };
        for file in files.flatten() {
            let Some(run) = run_of(&file) else {
                continue;
            };
            let abandoned = match locked {
                Some(locked) => run == locked,
                None => matches!(home.is_running(run), Ok(false)),
            };
            if abandoned {
                let recovered = database::refuse_foreign(file.path())
                    .and_then(|()| recover_one(home, run, &file.path()));
                result = result.and(recovered);
            }
        }
    }
    result
}

/// The run whose crash journal this is, if it is one.
fn run_of(file: &DirEntry) -> Option<RunId> {
    let run = file.path().file_stem()?.to_str()?.parse().ok()?;
    file.file_type().ok()?.is_file().then_some(run)
}

fn recover_one(home: &Home, run: RunId, path: &Path) -> Result<(), StoreError> {
    let bytes = match fs_err::read(path) {
        // Somebody else has just done it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    let Some(contents) = crash_journal::read(run, &bytes)? else {
        // A newer program's.
        return Ok(());
    };
    if !contents.records.is_empty() || contents.facts.is_some() {
        let db = database::open(home)?;
        commit(&db, run, contents, path).map_err(|refusal| refusal.of(home))?;
        database::close(db, home)?;
    }
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn commit(db: &Connection, run: RunId, contents: Contents, path: &Path) -> Result<(), WriteError> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    // If it is gone by now, somebody was first, and the run may even go on already.
    if path.exists() {
        let sql = "SELECT uuid FROM run WHERE id = ?1";
        let known: Option<Vec<u8>> = db.query_one(sql, [run.0], |row| row.get(0)).optional()?;
        let records = match known {
            // It was killed before it could be committed, and so were its tasks.
            None => contents.facts.map(|facts| vec![Record::NewRun { run, facts }]),
            Some(known) if contents.uuid.is_none_or(|uuid| known == uuid) => {
                Some(known_part(db, run, contents.records)?)
            }
            // Another had its number before, and its folder was removed.
            Some(_) => None,
        };
        Statements::prepare(db)?.apply(&records.unwrap_or_default())?;
    }
    db.execute_batch("COMMIT")?;
    Ok(())
}

/// Those that are about tasks that are known.
fn known_part(db: &Connection, run: RunId, records: Vec<Record>) -> rusqlite::Result<Vec<Record>> {
    // The run may have ended, and been resumed since: its end is none any more.
    let mut reopen =
        db.prepare("UPDATE run SET ended = NULL, exit = NULL WHERE id = ?1 AND ended < ?2")?;
    let mut task = db.prepare("SELECT 1 FROM task WHERE id = ?1")?;
    let mut known = Vec::with_capacity(records.len());
    for record in records {
        if let Some((id, at)) = about(&record) {
            if !task.exists([columns::task_key(id)])? {
                continue;
            }
            reopen.execute(params![run.0, at.0])?;
        }
        known.push(record);
    }
    Ok(known)
}

/// The task that a record is about, if it is not about the run, and when it was.
const fn about(record: &Record) -> Option<(TaskId, Timestamp)> {
    match record {
        Record::Started(start) => Some((start.task, start.at)),
        Record::AttemptEnded(end) => Some((end.task, end.at)),
        Record::TaskFinished { task, .. } => Some((*task, Timestamp(0))),
        _ => None,
    }
}
