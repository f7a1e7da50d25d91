use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use packhorse_model::{AttemptMetrics, Outcome, PeakOrigin, RunId, TaskId};
use rusqlite::{Connection, Statement, params};

use crate::columns::{self, code};
use crate::schema::TALLY;
use crate::{EndedAttempt, Home, NewPeak, NewRun, NewTask, Record, StartedAttempt, StoreError};

/// How many peaks are kept for each signature and GPU model: the newest.
const PEAKS_KEPT: u32 = 64;

/// Why a batch was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("the number of run {0} is taken")]
    NumberTaken(RunId),
}

impl WriteError {
    /// The same with the database it is about.
    pub(super) fn of(self, home: &Home) -> StoreError {
        match self {
            Self::Sqlite(source) => home.sqlite_error(source),
            Self::NumberTaken(run) => StoreError::NumberTaken { run },
        }
    }
}

/// The statements that every task needs, prepared once.
pub(super) struct Statements<'db> {
    db: &'db Connection,
    begin: Statement<'db>,
    commit: Statement<'db>,
    task: Statement<'db>,
    attempt: Statement<'db>,
    outcome: Statement<'db>,
}

/// The starts of a batch whose ends have not come up, by task and attempt. A
/// start and an end that come together become one row at once.
type Starts<'a> = HashMap<(TaskId, u32), &'a StartedAttempt>;

impl<'db> Statements<'db> {
    pub(super) fn prepare(db: &'db Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            db,
            begin: db.prepare("BEGIN IMMEDIATE")?,
            commit: db.prepare("COMMIT")?,
            task: db.prepare(
                "INSERT OR REPLACE INTO task (id, outcome, words, after, command, spec) \
                 VALUES (?1, 2, ?2, ?3, ?4, ?5)",
            )?,
            // What is not known of a start stays as it is.
            attempt: db.prepare(
                "INSERT INTO attempt (task, attempt, started, device, ended, outcome, detail, \
                 message, peak, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
                 ON CONFLICT DO UPDATE SET started = coalesce(?3, started), \
                 device = iif(?3 IS NULL, device, ?4), ended = ?5, outcome = ?6, detail = ?7, \
                 message = ?8, peak = ?9, note = ?10",
            )?,
            outcome: db.prepare("UPDATE task SET outcome = ?2, detail = ?3 WHERE id = ?1")?,
        })
    }

    /// Writes all records, or none of them: after an error the connection is
    /// to be dropped, which undoes what was begun.
    pub(super) fn commit(&mut self, records: &[Record]) -> Result<(), WriteError> {
        self.begin.raw_execute()?;
        self.apply(records)?;
        self.commit.raw_execute()?;
        Ok(())
    }

    /// Writes all records, within a transaction that was begun.
    pub(super) fn apply(&mut self, records: &[Record]) -> Result<(), WriteError> {
        let mut starts = Starts::new();
        // What is too old is taken out once for all peaks of a batch.
        let mut learned = HashSet::new();
        for record in records {
            match record {
                Record::NewRun { run, facts } => self.new_run(*run, facts)?,
                Record::RunResumed { run, pid, host } => {
                    self.started(&mut starts)?;
                    self.resumed(*run, *pid, host)?;
                }
                Record::Tasks(tasks) => {
                    for task in tasks {
                        self.new_task(task)?;
                    }
                }
                Record::Started(start) => {
                    starts.insert((start.task, start.attempt), start);
                }
                Record::Metrics(metrics) => self.metrics(metrics)?,
                Record::AttemptEnded(end) => {
                    let key = (end.task, end.attempt);
                    self.attempt(key, starts.remove(&key), Some(end))?;
                    if end.is_final {
                        self.outcome(end.task, end.outcome)?;
                    }
                }
                Record::TaskFinished { task, outcome } => self.outcome(*task, *outcome)?,
                Record::Reopened { run, tasks } => self.reopen(*run, tasks)?,
                Record::Peak(peak) => {
                    self.peak(peak)?;
                    learned.insert((&*peak.signature, &*peak.model));
                }
                Record::Drained { run, device, reason, at } => {
                    let sql = "INSERT OR IGNORE INTO drained (device, reason, at, run) \
                               VALUES (?1, ?2, ?3, ?4)";
                    self.db.execute(sql, params![device, reason, at.0, run.0])?;
                }
                Record::InputComplete { run } => {
                    let sql = "UPDATE run SET input_complete = 1 WHERE id = ?1";
                    self.db.execute(sql, [run.0])?;
                }
                Record::RunEnded { run, at, exit } => {
                    self.started(&mut starts)?;
                    let sql = "UPDATE run SET ended = ?2, exit = ?3 WHERE id = ?1";
                    self.db.execute(sql, params![run.0, at.0, exit])?;
                    self.count(*run)?;
                }
            }
        }
        for (signature, model) in learned {
            self.trim_peaks(signature, model)?;
        }
        self.started(&mut starts)
    }

    fn new_run(&self, run: RunId, facts: &NewRun) -> Result<(), WriteError> {
        let sql = "INSERT OR IGNORE INTO run (id, uuid, started, pid, host, cwd, argv, settings) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let values = params![
            run.0,
            facts.uuid.as_bytes(),
            facts.started.0,
            facts.pid,
            facts.host,
            facts.cwd.as_os_str().as_bytes(),
            columns::argv_bytes(&facts.argv),
            columns::json(&facts.spec),
        ];
        if self.db.execute(sql, values)? == 0 {
            let sql = "SELECT uuid FROM run WHERE id = ?1";
            let uuid: Vec<u8> = self.db.query_one(sql, [run.0], |row| row.get(0))?;
            if uuid != facts.uuid.as_bytes() {
                return Err(WriteError::NumberTaken(run));
            }
        }
        Ok(())
    }

    fn resumed(&self, run: RunId, pid: u32, host: &str) -> Result<(), WriteError> {
        let sql = "UPDATE run SET ended = NULL, exit = NULL, pid = ?2, host = ?3 WHERE id = ?1";
        self.db.execute(sql, params![run.0, pid, host])?;
        let sql =
            "UPDATE attempt SET outcome = ?3 WHERE task BETWEEN ?1 AND ?2 AND outcome IS NULL";
        let (first, last) = columns::task_keys(run);
        self.db.execute(sql, params![first, last, code::INTERRUPTED])?;
        Ok(())
    }

    fn new_task(&mut self, task: &NewTask) -> Result<(), WriteError> {
        let (words, command) = columns::command_bytes(&task.command);
        self.task.execute(params![
            columns::task_key(task.id),
            words,
            columns::after_bytes(&task.after),
            command,
            task.spec,
        ])?;
        Ok(())
    }

    /// Writes the start of an attempt, its end, or both as one row.
    fn attempt(
        &mut self,
        (task, attempt): (TaskId, u32),
        start: Option<&StartedAttempt>,
        end: Option<&EndedAttempt>,
    ) -> Result<(), WriteError> {
        self.attempt.execute(params![
            columns::task_key(task),
            attempt,
            start.map(|start| start.at.0),
            start.and_then(|start| start.device.as_deref()),
            end.map(|end| end.at.0),
            end.map(|end| columns::outcome_code(end.outcome)),
            end.and_then(|end| end.outcome.detail()),
            end.and_then(|end| end.message.as_deref()),
            end.and_then(|end| end.peak).map(columns::bytes_column),
            end.and_then(|end| end.note.as_deref()),
        ])?;
        Ok(())
    }

    /// Writes the attempts that are still running.
    fn started(&mut self, starts: &mut Starts<'_>) -> Result<(), WriteError> {
        for (key, start) in starts.drain() {
            self.attempt(key, Some(start), None)?;
        }
        Ok(())
    }

    fn metrics(&self, metrics: &AttemptMetrics) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO metric (task, attempt, name, last, lowest, highest, \
                   count) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut insert = self.db.prepare_cached(sql)?;
        for (name, summary) in &metrics.metrics {
            insert.execute(params![
                columns::task_key(metrics.task),
                metrics.attempt,
                name,
                summary.last,
                summary.lowest,
                summary.highest,
                summary.count.cast_signed(),
            ])?;
        }
        Ok(())
    }

    fn outcome(&mut self, task: TaskId, outcome: Outcome) -> Result<(), WriteError> {
        let (key, code) = (columns::task_key(task), columns::outcome_code(outcome));
        self.outcome.execute(params![key, code, outcome.detail()])?;
        Ok(())
    }

    fn reopen(&mut self, run: RunId, tasks: &[u32]) -> Result<(), WriteError> {
        let sql = "DELETE FROM tally WHERE run = ?1";
        self.db.execute(sql, [run.0])?;
        for number in tasks {
            let key = columns::task_key(TaskId::new(run, *number));
            self.outcome.execute(params![key, code::WAITING, None::<i32>])?;
        }
        Ok(())
    }

    fn peak(&self, peak: &NewPeak) -> rusqlite::Result<()> {
        let origin = peak.learned.origin;
        if matches!(origin, PeakOrigin::GrewLate | PeakOrigin::Growing) {
            // What was seen of the same attempt while it grew.
            let sql = "DELETE FROM sample WHERE signature = ?1 AND model = ?2 \
                       AND task = ?3 AND attempt = ?4 AND whence = ?5";
            self.db.prepare_cached(sql)?.execute(params![
                peak.signature,
                peak.model,
                columns::task_key(peak.task),
                peak.attempt,
                columns::origin_code(PeakOrigin::Growing),
            ])?;
        }
        let sql = "INSERT OR REPLACE INTO sample (signature, model, at, task, attempt, peak, \
                   error, duration, whence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let learned = &peak.learned;
        self.db.prepare_cached(sql)?.execute(params![
            peak.signature,
            peak.model,
            learned.at.0,
            columns::task_key(peak.task),
            peak.attempt,
            columns::bytes_column(learned.peak),
            columns::bytes_column(learned.error),
            learned.duration.map(columns::micros),
            columns::origin_code(origin),
        ])?;
        Ok(())
    }

    /// Keeps the newest peaks of a signature and a model.
    fn trim_peaks(&self, signature: &str, model: &str) -> rusqlite::Result<()> {
        let sql = "DELETE FROM sample WHERE signature = ?1 AND model = ?2 \
                   AND (at, task, attempt) <= (SELECT at, task, attempt FROM sample \
                   WHERE signature = ?1 AND model = ?2 \
                   ORDER BY at DESC, task DESC, attempt DESC LIMIT 1 OFFSET ?3)";
        let mut trim = self.db.prepare_cached(sql)?;
        trim.execute(params![signature, model, PEAKS_KEPT])?;
        Ok(())
    }

    /// Counts the tasks by outcome, for everybody who will ever list the run.
    fn count(&self, run: RunId) -> Result<(), WriteError> {
        let (first, last) = columns::task_keys(run);
        let sql = format!("INSERT OR REPLACE INTO tally {TALLY}");
        self.db.execute(&sql, params![first, last, run.0])?;
        Ok(())
    }
}
