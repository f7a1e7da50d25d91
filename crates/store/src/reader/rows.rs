use std::ffi::OsString;
use std::path::PathBuf;

use packhorse_model::{Bytes, Command, Milli, Outcome, Priority, RunId, TaskId};
use rusqlite::Row;

use crate::{Overrides, RunUuid, UnixMicros, columns};

/// A run as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// Its name beyond this folder.
    pub uuid: RunUuid,
    /// When it began.
    pub started: UnixMicros,
    /// When its last process ended in order; `None` if it runs, or died.
    pub ended: Option<UnixMicros>,
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
    /// What its caller wrote down for `resume`.
    pub settings: String,
    /// What has become of it.
    pub state: RunState,
    /// How its tasks came out.
    pub counts: Counts,
}

/// What has become of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// A process is at work on it.
    Running,
    /// All its input was read, and every task has a final outcome.
    Finished,
    /// Its process ended in order with work left over: `resume` goes on.
    Interrupted,
    /// Its process ended without a word, as by SIGKILL: `resume` goes on.
    Died,
}

/// How many tasks are in which condition. Each task counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Neither started nor settled.
    pub waiting: u64,
    /// Started, and the run's process is alive.
    pub running: u64,
    /// Interrupted.
    pub interrupted: u64,
    /// Succeeded.
    pub succeeded: u64,
    /// Ended with an exit status other than 0.
    pub failed: u64,
    /// Ended by a signal.
    pub killed: u64,
    /// Ran past their time limit.
    pub timed_out: u64,
    /// Could not be started.
    pub not_started: u64,
    /// Skipped because of another task.
    pub skipped: u64,
}

/// A task as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTask {
    /// Which one it is.
    pub id: TaskId,
    /// What it executes.
    pub command: Command,
    /// Its name.
    pub name: Option<String>,
    /// Where it differs from the run's settings.
    pub overrides: Overrides,
    /// The numbers of the tasks it comes after.
    pub after: Vec<u32>,
    /// How it came out; `None` while it waits or runs.
    pub outcome: Option<Outcome>,
    /// The number of its last attempt; 0 if it has had none, or only a probe.
    pub attempts: u32,
}

/// An attempt as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which one, counted from 1; 0 is a probe.
    pub attempt: u32,
    /// When it started; `None` if it could not be.
    pub started: Option<UnixMicros>,
    /// When it ended; `None` if it runs, or its end was never seen.
    pub ended: Option<UnixMicros>,
    /// How it came out; `None` if it runs, or its process died meanwhile.
    pub outcome: Option<Outcome>,
    /// What it was placed on.
    pub device: Option<String>,
    /// What there is to say beyond the outcome.
    pub message: Option<String>,
    /// The most memory it was seen to hold of any of its GPUs.
    pub peak: Option<Bytes>,
    /// What was made of it, such as why it runs again and with what.
    pub note: Option<String>,
}

/// A task with its last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The task.
    pub task: StoredTask,
    /// Its last attempt.
    pub last: Option<Attempt>,
}

impl Counts {
    /// All tasks.
    pub const fn total(&self) -> u64 {
        self.unfinished() + self.succeeded + self.unsuccessful()
    }

    /// Tasks without a final outcome.
    pub const fn unfinished(&self) -> u64 {
        self.waiting + self.running + self.interrupted
    }

    /// Tasks with a final outcome other than success.
    pub const fn unsuccessful(&self) -> u64 {
        self.failed + self.killed + self.timed_out + self.not_started + self.skipped
    }

    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let count = |name: &str| row.get::<_, i64>(name).map(i64::cast_unsigned);
        Ok(Self {
            waiting: count("waiting")?,
            running: 0,
            interrupted: count("interrupted")?,
            succeeded: count("succeeded")?,
            failed: count("failed")?,
            killed: count("killed")?,
            timed_out: count("timed_out")?,
            not_started: count("not_started")?,
            skipped: count("skipped")?,
        })
    }
}

impl Run {
    /// The run's row; `state` and `counts` are not in it.
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let ended: Option<i64> = row.get("ended")?;
        Ok(Self {
            id: RunId(row.get("id")?),
            uuid: RunUuid(row.get("uuid")?),
            started: UnixMicros(row.get("started")?),
            ended: ended.map(UnixMicros),
            exit: row.get("exit")?,
            input_complete: row.get("input_complete")?,
            pid: row.get("pid")?,
            host: row.get("host")?,
            cwd: columns::path(row.get("cwd")?),
            argv: columns::argv(row.get_ref("argv")?.as_blob()?),
            settings: row.get("settings")?,
            state: RunState::Died,
            counts: Counts::default(),
        })
    }
}

impl StoredTask {
    pub(super) const fn key(&self) -> i64 {
        columns::task_key(self.id.run, self.id.number)
    }

    /// By place and not by name: a million of these are read back.
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let words: bool = row.get(3)?;
        let gpus: Option<i64> = row.get(5)?;
        let priority: Option<i32> = row.get(7)?;
        let time_limit: Option<i64> = row.get(9)?;
        let after = row.get_ref(10)?.as_blob_or_null()?;
        let attempts: Option<u32> = row.get(12)?;
        let vram: Option<i64> = row.get(13)?;
        let cpu: Option<u32> = row.get(14)?;
        let ram: Option<i64> = row.get(15)?;
        let folder: Option<Vec<u8>> = row.get(18)?;
        Ok(Self {
            id: columns::task_id(row.get(0)?),
            outcome: columns::outcome(row.get(1)?, row.get(2)?),
            command: columns::command(words, row.get_ref(11)?.as_blob()?),
            name: row.get(4)?,
            overrides: Overrides {
                gpus: gpus.map(columns::gpus),
                cores: row.get(6)?,
                priority: priority.map(Priority),
                retries: row.get(8)?,
                time_limit: time_limit.map(columns::time_limit),
                vram: vram.map(columns::vram),
                cpu: cpu.map(Milli),
                ram: ram.map(columns::bytes),
                model: row.get(16)?,
                signature: row.get(17)?,
                folder: folder.map(columns::path),
            },
            after: after.map(columns::after).unwrap_or_default(),
            attempts: attempts.unwrap_or(0),
        })
    }
}

impl Attempt {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time = |name: &str| row.get::<_, Option<i64>>(name).map(|at| at.map(UnixMicros));
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
