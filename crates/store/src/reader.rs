//! Asking what there is. A reader has its own connection, which cannot write
//! and never makes a writer wait.

mod learned;
mod rows;

use std::collections::BTreeMap;

use packhorse_model::{MetricSummary, Outcome, RunId, RunSpec, StoredTask, TaskId};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use uuid::Uuid;

pub use learned::{DrainedDevice, LearnedSignature};
use rows::TaskRow;
pub use rows::{ListedTask, RunState, StoredAttempt, StoredRun, TaskCounts};

use crate::columns::{self, code, task_key, task_keys};
use crate::schema::TALLY;
use crate::{Home, StoreError, database};

/// Reads what is recorded. Without a database there is nothing, which is not
/// an error.
#[derive(Debug)]
pub struct Reader {
    home: Home,
    db: Option<Connection>,
}

/// Whether a run was handed to a cluster.
const ON_SLURM: &str =
    "iif(json_valid(settings), json_extract(settings, '$.slurm'), NULL) IS NOT NULL";

/// Which tasks of a run to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskFilter {
    /// All of them.
    All,
    /// Those that `resume` has to run: waiting, running or interrupted.
    Unfinished,
    /// Those of them that have nothing but a command.
    PlainUnfinished,
    /// Those that `retry` has to run: with a final outcome other than success.
    Failed,
    /// Those that succeeded.
    Succeeded,
}

impl TaskFilter {
    /// The outcome codes selected, first and last.
    const fn codes(self) -> (i64, i64) {
        match self {
            Self::All => (code::WAITING, code::LAST),
            Self::Unfinished | Self::PlainUnfinished => (code::WAITING, code::INTERRUPTED),
            Self::Failed => (code::FAILED, code::LAST),
            Self::Succeeded => (code::SUCCEEDED, code::SUCCEEDED),
        }
    }

    /// What else is asked of them.
    const fn condition(self) -> &'static str {
        match self {
            Self::PlainUnfinished => "AND spec IS NULL AND after IS NULL",
            _ => "",
        }
    }
}

impl Reader {
    /// Opens the database of this folder, if there is one.
    pub fn open(home: &Home) -> Result<Self, StoreError> {
        // What cannot be recovered now will be the next time.
        let _ = crate::writer::recover(home, None);
        Ok(Self { home: home.clone(), db: database::open_to_read(home)? })
    }

    /// The newest runs, newest first.
    pub fn runs(&self, limit: u32) -> Result<Vec<StoredRun>, StoreError> {
        let columns = StoredRun::COLUMNS;
        let sql = format!("SELECT {columns} FROM run ORDER BY id DESC LIMIT ?1");
        let runs = self.all(&sql, [limit], StoredRun::read)?;
        runs.into_iter().map(|run| self.complete(run)).collect()
    }

    /// How many runs there are.
    pub fn how_many_runs(&self) -> Result<u64, StoreError> {
        let count: Option<i64> = self.one("SELECT count(*) FROM run", [], |row| row.get(0))?;
        Ok(count.unwrap_or_default().cast_unsigned())
    }

    pub fn run(&self, run: RunId) -> Result<Option<StoredRun>, StoreError> {
        let columns = StoredRun::COLUMNS;
        let sql = format!("SELECT {columns} FROM run WHERE id = ?1");
        let found = self.one(&sql, [run.0], StoredRun::read)?;
        found.map(|run| self.complete(run)).transpose()
    }

    /// What tells a run from those of the same number in copies of the state folder.
    pub fn run_uuid(&self, run: RunId) -> Result<Option<Uuid>, StoreError> {
        let sql = "SELECT uuid FROM run WHERE id = ?1";
        self.one(sql, [run.0], |row| row.get(0).map(Uuid::from_bytes))
    }

    /// What a run was asked to do: what `resume` needs.
    pub fn run_spec(&self, run: RunId) -> Result<Option<RunSpec>, StoreError> {
        let sql = "SELECT settings FROM run WHERE id = ?1";
        let json: Option<String> = self.one(sql, [run.0], |row| row.get(0))?;
        let spec = json.map(|json| serde_json::from_str(&json)).transpose();
        let what = || format!("settings of run {run}");
        spec.map_err(|source| StoreError::Unreadable { what: what(), source })
    }

    /// The newest run.
    pub fn latest_run(&self) -> Result<Option<RunId>, StoreError> {
        let sql = "SELECT id FROM run ORDER BY id DESC LIMIT 1";
        self.one(sql, [], |row| row.get(0).map(RunId))
    }

    /// How many tasks of the run came out how.
    pub fn counts(&self, run: RunId) -> Result<TaskCounts, StoreError> {
        let sql = "SELECT tally.* FROM tally JOIN run ON run.id = tally.run \
                   WHERE run.id = ?1 AND run.ended IS NOT NULL";
        if let Some(known) = self.one(sql, [run.0], TaskCounts::read)? {
            return Ok(known);
        }
        let (first, last) = task_keys(run);
        let counted = self.one(TALLY, [first, last, run.0.into()], TaskCounts::read)?;
        let mut counts = counted.unwrap_or_default();
        if self.home.is_running(run)? || self.is_on_cluster(run)? {
            let sql = "SELECT count(*) FROM attempt \
                       WHERE task BETWEEN ?1 AND ?2 AND outcome IS NULL";
            let running: Option<i64> = self.one(sql, [first, last], |row| row.get(0))?;
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
        filter: TaskFilter,
        after: u32,
        limit: u32,
    ) -> Result<Vec<ListedTask>, StoreError> {
        let stored = self.stored(run, filter, after, limit)?;
        let with_last = |task: StoredTask| {
            let sql = "SELECT * FROM attempt WHERE task = ?1 ORDER BY attempt DESC LIMIT 1";
            let last = self.one(sql, [task_key(task.id)], StoredAttempt::read)?;
            Ok(ListedTask { task, last })
        };
        stored.into_iter().map(with_last).collect()
    }

    /// A task and all its attempts, first to last.
    pub fn task(&self, id: TaskId) -> Result<Option<(StoredTask, Vec<StoredAttempt>)>, StoreError> {
        let before = id.number.saturating_sub(1);
        let found = self.stored(id.run, TaskFilter::All, before, 1)?;
        let Some(task) = found.into_iter().find(|task| task.id == id) else {
            return Ok(None);
        };
        let sql = "SELECT * FROM attempt WHERE task = ?1 ORDER BY attempt";
        let attempts = self.all(sql, [task_key(task.id)], StoredAttempt::read)?;
        Ok(Some((task, attempts)))
    }

    /// What an attempt has printed as metrics, as far as it is recorded.
    pub fn metrics(
        &self,
        task: TaskId,
        attempt: u32,
    ) -> Result<BTreeMap<String, MetricSummary>, StoreError> {
        let sql = "SELECT name, last, lowest, highest, count FROM metric \
                   WHERE task = ?1 AND attempt = ?2";
        let read = |row: &Row<'_>| {
            // SQLite stores NaN as NULL.
            let number =
                |column| row.get::<_, Option<f64>>(column).map(|it| it.unwrap_or(f64::NAN));
            let summary = MetricSummary {
                last: number(1)?,
                lowest: number(2)?,
                highest: number(3)?,
                count: row.get::<_, i64>(4)?.cast_unsigned(),
            };
            Ok((row.get(0)?, summary))
        };
        let metrics = self.all(sql, params![task_key(task), attempt], read)?;
        Ok(metrics.into_iter().collect())
    }

    /// How a task came out; `None` while it waits or runs, and if there is none.
    pub fn outcome(&self, task: TaskId) -> Result<Option<Outcome>, StoreError> {
        let sql = "SELECT outcome, detail FROM task WHERE id = ?1";
        let read = |row: &Row<'_>| Ok(columns::outcome(row.get(0)?, row.get(1)?));
        Ok(self.one(sql, [task_key(task)], read)?.flatten())
    }

    /// Tasks of a run in order, at most `limit` of those whose numbers are above
    /// `after`. The number of the last one is the next call's `after`, so a whole
    /// run is gone through once, however many calls that takes.
    pub fn stored(
        &self,
        run: RunId,
        filter: TaskFilter,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, StoreError> {
        // A scan along the key that looks at the first bytes of each row only:
        // a million finished tasks are skipped in less time than an index
        // would have cost while they ran.
        let sql = format!(
            "SELECT {} FROM task \
             WHERE id > ?1 AND id <= ?2 AND outcome BETWEEN ?3 AND ?4 {} \
             ORDER BY id LIMIT ?5",
            TaskRow::COLUMNS,
            filter.condition(),
        );
        let (first, last) = filter.codes();
        let (from, to) = (task_key(TaskId::new(run, after)), task_keys(run).1);
        let rows = self.all(&sql, [from, to, first, last, limit.into()], TaskRow::read)?;
        rows.into_iter().map(TaskRow::into_task).collect()
    }

    /// Whether a run was handed to a cluster, and its end is not recorded.
    pub fn is_on_cluster(&self, run: RunId) -> Result<bool, StoreError> {
        let sql = format!("SELECT ended IS NULL AND {ON_SLURM} FROM run WHERE id = ?1");
        Ok(self.one(&sql, [run.0], |row| row.get(0))?.unwrap_or(false))
    }

    /// The runs that were handed to a cluster, newest first; only those whose end is not
    /// recorded, if `open`.
    pub fn cluster_runs(&self, open: bool) -> Result<Vec<RunId>, StoreError> {
        let sql = format!(
            "SELECT id FROM run WHERE (ended IS NULL OR NOT ?1) AND {ON_SLURM} ORDER BY id DESC"
        );
        self.all(&sql, [open], |row| row.get(0).map(RunId))
    }

    /// How every task of a run came out that is settled, in order.
    pub fn outcomes(&self, run: RunId) -> Result<Vec<(u32, Outcome)>, StoreError> {
        let sql = "SELECT id, outcome, detail FROM task \
                   WHERE id BETWEEN ?1 AND ?2 AND outcome >= ?3 ORDER BY id";
        let (first, last) = task_keys(run);
        let read = |row: &Row<'_>| {
            let task = columns::task_id(row.get(0)?);
            Ok(columns::outcome(row.get(1)?, row.get(2)?).map(|outcome| (task.number, outcome)))
        };
        let rows = self.all(sql, [first, last, code::SUCCEEDED], read)?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// The attempts of a run whose end is not recorded: the number of the task, and which of
    /// its attempts.
    pub fn open_attempts(&self, run: RunId) -> Result<Vec<(u32, StoredAttempt)>, StoreError> {
        let sql = "SELECT * FROM attempt WHERE task BETWEEN ?1 AND ?2 AND outcome IS NULL";
        let (first, last) = task_keys(run);
        self.all(sql, [first, last], |row| {
            let task = columns::task_id(row.get("task")?);
            Ok((task.number, StoredAttempt::read(row)?))
        })
    }

    /// What the run's row does not tell.
    fn complete(&self, mut run: StoredRun) -> Result<StoredRun, StoreError> {
        run.counts = self.counts(run.id)?;
        run.state = if self.home.is_running(run.id)? {
            RunState::Running
        } else if run.input_complete && run.counts.unfinished() == 0 {
            // Even if its process could not record that.
            RunState::Finished
        } else if run.ended.is_none() && self.is_on_cluster(run.id)? {
            RunState::OnCluster
        } else if run.ended.is_none() {
            RunState::Died
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
    ) -> Result<Vec<T>, StoreError> {
        let Some(db) = &self.db else {
            return Ok(Vec::new());
        };
        let rows = || {
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map(values, read)?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        };
        rows().map_err(|source| self.home.sqlite_error(source))
    }

    fn one<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let Some(db) = &self.db else {
            return Ok(None);
        };
        let row = || db.prepare_cached(sql)?.query_row(values, read).optional();
        row().map_err(|source| self.home.sqlite_error(source))
    }
}
