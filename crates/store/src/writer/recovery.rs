//! Taking in the slates of processes that are gone.

use std::io::ErrorKind;
use std::path::Path;

use packhorse_model::RunId;
use rusqlite::Connection;

use super::slate;
use super::statements::{Refusal, Statements};
use crate::{Error, Home, Record, columns, database};

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
    let Some(records) = slate::read(&bytes) else {
        // A newer program's.
        return Ok(());
    };
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
