//! Asking what there is. A reader has its own connection, which cannot write
//! and never makes a writer wait.

mod learned;
mod rows;

use packhorse_model::{RunId, TaskId};
use rusqlite::{Connection, OptionalExtension, Params, Row};

pub use learned::{Drained, Learned};
pub use rows::{Attempt, Counts, Listed, Run, RunState, StoredTask};

use crate::columns::{code, task_key};
use crate::schema::TALLY;
use crate::{Error, Home, database};

/// Reads what is recorded. Without a database there is nothing, which is not
/// an error.
#[derive(Debug)]
pub struct Reader {
    home: Home,
    db: Option<Connection>,
}

/// Which tasks of a run to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// All of them.
    All,
    /// Those without a final outcome: waiting, running or interrupted.
    Unfinished,
    /// Those with a final outcome other than success.
    Failed,
    /// Those that succeeded.
    Succeeded,
}

impl Select {
    /// The outcome codes selected, first and last.
    const fn codes(self) -> (i64, i64) {
        match self {
            Self::All => (code::WAITING, code::LAST),
            Self::Unfinished => (code::WAITING, code::INTERRUPTED),
            Self::Failed => (code::FAILED, code::LAST),
            Self::Succeeded => (code::SUCCEEDED, code::SUCCEEDED),
        }
    }
}

impl Reader {
    /// Opens the database of this folder, if there is one.
    pub fn open(home: &Home) -> Result<Self, Error> {
        // What cannot be taken in now will be the next time.
        let _ = crate::writer::take_in(home, None);
        Ok(Self {
            home: home.clone(),
            db: database::open_to_read(home)?,
        })
    }

    /// The newest runs, newest first.
    pub fn runs(&self, limit: u32) -> Result<Vec<Run>, Error> {
        let sql = "SELECT * FROM run ORDER BY id DESC LIMIT ?1";
        let runs = self.all(sql, [limit], Run::from_row)?;
        runs.into_iter().map(|run| self.complete(run)).collect()
    }

    /// How many runs there are.
    pub fn how_many_runs(&self) -> Result<u64, Error> {
        let count: Option<i64> = self.one("SELECT count(*) FROM run", [], |row| row.get(0))?;
        Ok(count.unwrap_or_default().cast_unsigned())
    }

    /// One run.
    pub fn run(&self, run: RunId) -> Result<Option<Run>, Error> {
        let found = self.one("SELECT * FROM run WHERE id = ?1", [run.0], Run::from_row)?;
        found.map(|run| self.complete(run)).transpose()
    }

    /// The newest run.
    pub fn latest_run(&self) -> Result<Option<RunId>, Error> {
        let sql = "SELECT id FROM run ORDER BY id DESC LIMIT 1";
        self.one(sql, [], |row| row.get(0).map(RunId))
    }

    /// How many tasks of the run came out how.
    pub fn counts(&self, run: RunId) -> Result<Counts, Error> {
        let sql = "SELECT tally.* FROM tally JOIN run ON run.id = tally.run \
                   WHERE run.id = ?1 AND run.ended IS NOT NULL";
        if let Some(known) = self.one(sql, [run.0], Counts::from_row)? {
            return Ok(known);
        }
        let keys = [task_key(run, 0), task_key(run, u32::MAX)];
        let counted = self.one(TALLY, [keys[0], keys[1], run.0.into()], Counts::from_row)?;
        let mut counts = counted.unwrap_or_default();
        if self.home.is_running(run)? {
            let sql = "SELECT count(*) FROM attempt \
                       WHERE task BETWEEN ?1 AND ?2 AND outcome IS NULL";
            let running: Option<i64> = self.one(sql, keys, |row| row.get(0))?;
            counts.running = running.unwrap_or_default().cast_unsigned();
            counts.waiting = counts.waiting.saturating_sub(counts.running);
        }
        Ok(counts)
    }

    /// Tasks of a run in order, at most `limit` of those whose numbers are
    /// above `after`, each with its last attempt.
    pub fn tasks(
        &self,
        run: RunId,
        select: Select,
        after: u32,
        limit: u32,
    ) -> Result<Vec<Listed>, Error> {
        let stored = self.stored(run, select, after, limit)?;
        let with_last = |task: StoredTask| {
            let sql = "SELECT * FROM attempt WHERE task = ?1 ORDER BY attempt DESC LIMIT 1";
            let last = self.one(sql, [task.key()], Attempt::from_row)?;
            Ok(Listed { task, last })
        };
        stored.into_iter().map(with_last).collect()
    }

    /// A task and all its attempts, first to last.
    pub fn task(&self, id: TaskId) -> Result<Option<(StoredTask, Vec<Attempt>)>, Error> {
        let before = id.number.saturating_sub(1);
        let found = self.stored(id.run, Select::All, before, 1)?;
        let Some(task) = found.into_iter().find(|task| task.id == id) else {
            return Ok(None);
        };
        let sql = "SELECT * FROM attempt WHERE task = ?1 ORDER BY attempt";
        let attempts = self.all(sql, [task.key()], Attempt::from_row)?;
        Ok(Some((task, attempts)))
    }

    /// The tasks that `resume` has to run, in order: those without a final
    /// outcome. The number of the last one is the next call's `after`, so a
    /// whole run is gone through once, however many calls that takes.
    pub fn unfinished(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<StoredTask>, Error> {
        self.stored(run, Select::Unfinished, after, limit)
    }

    /// Those of [`Reader::unfinished`] that have nothing but a command.
    pub fn plain_unfinished(
        &self,
        run: RunId,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, Error> {
        let plain = "AND name IS NULL AND gpus IS NULL AND cores IS NULL AND priority IS NULL \
                     AND retries IS NULL AND time_limit IS NULL AND after IS NULL \
                     AND vram IS NULL AND cpu IS NULL AND ram IS NULL AND model IS NULL \
                     AND signature IS NULL AND folder IS NULL";
        self.stored_where(plain, run, Select::Unfinished, after, limit)
    }

    /// The tasks that `retry` has to run, in order: those with a final outcome
    /// other than success.
    pub fn failed(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<StoredTask>, Error> {
        self.stored(run, Select::Failed, after, limit)
    }

    fn stored(
        &self,
        run: RunId,
        select: Select,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, Error> {
        self.stored_where("", run, select, after, limit)
    }

    fn stored_where(
        &self,
        condition: &str,
        run: RunId,
        select: Select,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, Error> {
        // A scan along the key that looks at the first bytes of each row only:
        // a million finished tasks are skipped in less time than an index
        // would have cost while they ran.
        let sql = format!(
            "SELECT id, outcome, detail, words, name, gpus, cores, priority, retries, \
             time_limit, after, command, \
             (SELECT max(attempt) FROM attempt WHERE attempt.task = task.id), \
             vram, cpu, ram, model, signature, folder \
             FROM task WHERE id > ?1 AND id <= ?2 AND outcome BETWEEN ?3 AND ?4 {condition} \
             ORDER BY id LIMIT ?5"
        );
        let (first, last) = select.codes();
        let (from, to) = (task_key(run, after), task_key(run, u32::MAX));
        self.all(
            &sql,
            [from, to, first, last, limit.into()],
            StoredTask::from_row,
        )
    }

    /// What the run's row does not tell.
    fn complete(&self, mut run: Run) -> Result<Run, Error> {
        run.counts = self.counts(run.id)?;
        run.state = if self.home.is_running(run.id)? {
            RunState::Running
        } else if run.ended.is_none() {
            RunState::Died
        } else if run.input_complete && run.counts.unfinished() == 0 {
            RunState::Finished
        } else {
            RunState::Interrupted
        };
        Ok(run)
    }

    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let Some(db) = &self.db else {
            return Ok(Vec::new());
        };
        let rows = || {
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map(values, read)?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        };
        rows().map_err(|source| self.failed_to_read(source))
    }

    fn one<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        let Some(db) = &self.db else {
            return Ok(None);
        };
        let row = || db.prepare_cached(sql)?.query_row(values, read).optional();
        row().map_err(|source| self.failed_to_read(source))
    }

    fn failed_to_read(&self, source: rusqlite::Error) -> Error {
        let path = self.home.db();
        Error::Sqlite { path, source }
    }
}
