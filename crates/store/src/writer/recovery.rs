//! Taking in the slates of processes that are gone.

use std::io::ErrorKind;
use std::path::Path;

use packhorse_model::RunId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::slate::{self, Said};
use super::statements::{Refusal, Statements};
use crate::{Error, Home, Record, UnixMicros, columns, database};

/// Commits what processes that are gone had not: of the run whose lock we have,
/// else of all runs that nobody is at work on.
///
/// One that cannot be taken in keeps nobody from the others.
pub(crate) fn take_in(home: &Home, locked: Option<RunId>) -> Result<(), Error> {
    let files = match fs_err::read_dir(home.slates_dir()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    let mut done = Ok(());
    for file in files.flatten() {
        let path = file.path();
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let Some(run) = name.and_then(|run| run.parse().ok()) else {
            continue;
        };
        if !file.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let abandoned = match locked {
            Some(locked) => run == locked,
            None => matches!(home.is_running(run), Ok(false)),
        };
        if abandoned {
            done = done.and(take_in_one(home, run, &path));
        }
    }
    done
}

fn take_in_one(home: &Home, run: RunId, path: &Path) -> Result<(), Error> {
    let bytes = match fs_err::read(path) {
        // Somebody else has just done it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    let Some(said) = slate::read(&bytes)? else {
        // A newer program's.
        return Ok(());
    };
    if !said.records.is_empty() {
        let db = database::open(home)?;
        commit(&db, run, said, path).map_err(|source| Error::Sqlite {
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

fn commit(db: &Connection, run: RunId, said: Said, path: &Path) -> rusqlite::Result<()> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    // If it is gone by now, somebody was first, and the run may even go on already.
    if path.exists() && is_about(db, run, &said)? {
        // It may have ended before, and gone on since.
        let mut reopen =
            db.prepare("UPDATE run SET ended = NULL, exit = NULL WHERE id = ?1 AND ended < ?2")?;
        let mut task = db.prepare("SELECT 1 FROM task WHERE id = ?1")?;
        let mut known = Vec::with_capacity(said.records.len());
        for record in said.records {
            if let Some((number, at)) = about(&record)
                && task.exists([columns::task_key(run, number)])?
            {
                reopen.execute(params![run.0, at.0])?;
                known.push(record);
            }
        }
        match Statements::prepare(db, run)?.apply(&known) {
            // There is no record of a new run among them.
            Ok(()) | Err(Refusal::NumberTaken) => {}
            Err(Refusal::Sqlite(error)) => return Err(error),
        }
    }
    db.execute_batch("COMMIT")
}

/// Whether the run in the database is the one that the slate is about. Another may
/// have had its number before, if its folder was removed.
fn is_about(db: &Connection, run: RunId, said: &Said) -> rusqlite::Result<bool> {
    let sql = "SELECT uuid FROM run WHERE id = ?1";
    let known: Option<Vec<u8>> = db.query_one(sql, [run.0], |row| row.get(0)).optional()?;
    Ok(known.is_some_and(|known| said.uuid.is_none_or(|uuid| known == uuid)))
}

/// The task that a record is about, and when it was.
const fn about(record: &Record) -> Option<(u32, UnixMicros)> {
    match record {
        Record::Started(start) => Some((start.task, start.at)),
        Record::AttemptEnded(end) => Some((end.task, end.at)),
        Record::TaskFinished { task, .. } => Some((*task, UnixMicros(0))),
        _ => None,
    }
}
