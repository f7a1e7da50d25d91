use std::ffi::OsString;
use std::path::PathBuf;

use packhorse_model::{Bytes, Command, Outcome, RunId, StoredTask, TaskSpec, Timestamp};
use rusqlite::Row;
use uuid::Uuid;

use crate::{StoreError, columns};

/// A run as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    pub id: RunId,
    /// Its name beyond this folder.
    pub uuid: Uuid,
    /// When it began.
    pub started: Timestamp,
    /// When its last process ended in order; `None` if it runs, or died.
    pub ended: Option<Timestamp>,
    /// The exit status of that process.
    pub exit: Option<u8>,
    /// Whether all of its input was read.
    pub input_complete: bool,
    /// The process that works on it, or did.
    pub pid: u32,
    /// The machine of that process.
    pub host: String,
    /// The folder it was started in.
    pub cwd: PathBuf,
    /// The words it was started with.
    pub argv: Vec<OsString>,
    /// What has become of it.
    pub state: RunState,
    /// How its tasks came out.
    pub counts: TaskCounts,
}

/// What has become of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// A process is at work on it.
    Running,
    /// It was handed to a cluster and is not known to be over. No process here follows it.
    OnCluster,
    /// All its input was read, and every task has a final outcome.
    Finished,
    /// Its process ended in order with work left over: `resume` goes on.
    Interrupted,
    /// Its process ended without recording it, as by SIGKILL: `resume` goes on.
    Died,
}

/// How many tasks are in which condition. Each task counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Neither started nor settled.
    pub waiting: u64,
    /// Started, and the run's process is alive, or on a cluster.
    pub running: u64,
    pub interrupted: u64,
    pub succeeded: u64,
    /// Settled otherwise: with a final outcome other than success.
    pub failed: u64,
}

/// An attempt as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAttempt {
    /// Which one, counted from 1; 0 is a probe.
    pub attempt: u32,
    /// When it started; `None` if it could not be.
    pub started: Option<Timestamp>,
    /// When it ended; `None` if it runs, or its end was never seen.
    pub ended: Option<Timestamp>,
    /// How it came out; `None` if it runs, or its process died meanwhile.
    pub outcome: Option<Outcome>,
    /// What it was placed on.
    pub device: Option<String>,
    /// What there is to say beyond the outcome.
    pub message: Option<String>,
    /// The most memory it was seen to hold on any one of its GPUs.
    pub peak: Option<Bytes>,
    /// What follows from it, such as why the task runs again and with what.
    pub note: Option<String>,
}

/// A task with its last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTask {
    pub task: StoredTask,
    pub last: Option<StoredAttempt>,
}

impl TaskCounts {
    /// All tasks.
    pub const fn total(&self) -> u64 {
        self.unfinished() + self.succeeded + self.failed
    }

    /// Tasks without a final outcome.
    pub const fn unfinished(&self) -> u64 {
        self.waiting + self.running + self.interrupted
    }

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let count = |name: &str| row.get::<_, i64>(name).map(i64::cast_unsigned);
        let failed = ["failed", "killed", "timed_out", "not_started", "skipped"];
        Ok(Self {
            waiting: count("waiting")?,
            running: 0,
            interrupted: count("interrupted")?,
            succeeded: count("succeeded")?,
            failed: failed.into_iter().map(count).sum::<Result<_, _>>()?,
        })
    }
}

impl StoredRun {
    /// The columns that [`read`](Self::read) takes. Not the specification, which
    /// may hold all rows of a CSV file.
    pub(super) const COLUMNS: &str =
        "id, uuid, started, ended, exit, input_complete, pid, host, cwd, argv";

    /// The run's row; `state` and `counts` are not in it.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let ended: Option<i64> = row.get("ended")?;
        Ok(Self {
            id: RunId(row.get("id")?),
            uuid: Uuid::from_bytes(row.get("uuid")?),
            started: Timestamp(row.get("started")?),
            ended: ended.map(Timestamp),
            exit: row.get("exit")?,
            input_complete: row.get("input_complete")?,
            pid: row.get("pid")?,
            host: row.get("host")?,
            cwd: columns::path(row.get("cwd")?),
            argv: columns::argv(row.get_ref("argv")?.as_blob()?),
            state: RunState::Died,
            counts: TaskCounts::default(),
        })
    }
}

/// A task's row, before its JSON is read.
pub(super) struct TaskRow {
    task: StoredTask,
    command: Command,
    spec: Option<String>,
}

impl TaskRow {
    /// The columns that [`read`](Self::read) takes.
    pub(super) const COLUMNS: &str = "id, outcome, detail, words, after, command, spec, \
        (SELECT max(attempt) FROM attempt WHERE attempt.task = task.id)";

    /// By place and not by name: a million of these are read back.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let after = row.get_ref(4)?.as_blob_or_null()?;
        let attempts: Option<u32> = row.get(7)?;
        Ok(Self {
            task: StoredTask {
                id: columns::task_id(row.get(0)?),
                spec: TaskSpec::default(),
                outcome: columns::outcome(row.get(1)?, row.get(2)?),
                after: after.map(columns::after).unwrap_or_default(),
                attempts: attempts.unwrap_or(0),
            },
            command: columns::command(row.get(3)?, row.get_ref(5)?.as_blob()?),
            spec: row.get(6)?,
        })
    }

    pub(super) fn into_task(self) -> Result<StoredTask, StoreError> {
        let mut task = self.task;
        if let Some(json) = self.spec {
            task.spec = serde_json::from_str(&json).map_err(|source| StoreError::Unreadable {
                what: format!("options of task {}", task.id),
                source,
            })?;
        }
        task.spec.command = self.command;
        Ok(task)
    }
}

impl StoredAttempt {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time = |name: &str| row.get::<_, Option<i64>>(name).map(|at| at.map(Timestamp));
        let outcome: Option<i64> = row.get("outcome")?;
        let detail = row.get("detail")?;
        let peak: Option<i64> = row.get("peak")?;
        Ok(Self {
            attempt: row.get("attempt")?,
            started: time("started")?,
            ended: time("ended")?,
            outcome: outcome.and_then(|code| columns::outcome(code, detail)),
            device: row.get("device")?,
            message: row.get("message")?,
            peak: peak.map(columns::bytes),
            note: row.get("note")?,
        })
    }
}
