use std::io;
use std::path::PathBuf;

use packhorse_model::RunId;
use packhorse_trust::Distrust;
use rusqlite::ErrorCode;

use crate::home::below;

/// Why the store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No variable says where state belongs.
    #[error(
        "there is no folder to keep runs in: neither PACKHORSE_HOME, XDG_STATE_HOME nor HOME is set\n\
         hint: set PACKHORSE_HOME to a folder of your own"
    )]
    NoHome,
    /// The folder is somebody else's.
    #[error(
        "the state folder `{}` belongs to user {owner}, not to user {me}\n\
         hint: set PACKHORSE_HOME to a folder of your own, such as `{}`",
        path.display(), below(path).display()
    )]
    ForeignHome {
        /// The folder.
        path: PathBuf,
        /// The user id it belongs to.
        owner: u32,
        /// The user id of this process.
        me: u32,
    },
    /// The folder was found where the person named none, and another user may have put it there.
    #[error(
        "the state folder {} {}\nhint: set PACKHORSE_HOME to a folder of your own",
        path.display(), distrust.to_string().trim_start_matches("it ")
    )]
    FoundHome {
        /// The folder.
        path: PathBuf,
        /// Why it does not count.
        distrust: Distrust,
    },
    /// Others may look into the state folder.
    #[error(
        "the state folder `{}` is open to other users (mode {mode:03o})\n\
         hint: `chmod 700 {}` makes it private, or set PACKHORSE_HOME to another folder, such as `{}`",
        path.display(), path.display(), below(path).display()
    )]
    OpenHome {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Something in a state folder is not its owner's.
    #[error(
        "the state folder was open to other users, and `{}` in it belongs to user {owner}\n\
         hint: see what it is and remove it, or set PACKHORSE_HOME to another folder",
        path.display()
    )]
    PlantedInHome { path: PathBuf, owner: u32 },
    /// A file in a state folder that was open to others has another name, maybe elsewhere.
    #[error(
        "the state folder was open to other users, and the file `{}` in it has a second name \
         (a hard link)\n\
         hint: see what it is and remove this name of it, or set PACKHORSE_HOME to another folder",
        path.display()
    )]
    LinkedIntoHome { path: PathBuf },
    /// The system refused; the message names the path.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A newer Packhorse made the database.
    #[error(
        "the database `{}` is of version {found}, and this packhorse knows versions up to {known}\n\
         hint: use the newer packhorse that wrote it, or another PACKHORSE_HOME", path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i32,
        /// The newest version that is understood.
        known: i32,
    },
    /// Something else has the database's name.
    #[error(
        "the file `{}` is not a database\n\
         hint: move it out of the way, or set PACKHORSE_HOME to another folder", path.display()
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// SQLite refused.
    #[error("the database `{}`: {source}{}", path.display(), advice(source))]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The database's file is gone, and something else may be in its place.
    #[error(
        "the database `{}` was removed or replaced while it was in use, and could not be put back: {reason}\n\
         hint: put its folder back, or move what is in its place out of the way", path.display()
    )]
    Removed {
        /// Where it was.
        path: PathBuf,
        /// Why it could not be written there again.
        reason: String,
    },
    /// The run's number is taken by another run in the database.
    #[error(
        "run {run} is already in the database, though its folder was free\n\
         hint: remove the file `runs/last` in the state folder, so that numbers are counted anew"
    )]
    NumberTaken {
        /// The number.
        run: RunId,
    },
    /// Another process is at work on the run.
    #[error("run {run} is still running\nhint: interrupt it first, or wait for its end")]
    StillRunning { run: RunId },
    /// There is no folder for the run.
    #[error("there is no run {run}\nhint: `packhorse ls` shows the runs there are")]
    NoSuchRun {
        /// The number asked for.
        run: RunId,
    },
    /// Every number has been used.
    #[error("there are no run numbers left\nhint: set PACKHORSE_HOME to a new folder")]
    NoNumberLeft,
    /// The database could not be opened by the writer.
    #[error("{reason}")]
    Unavailable {
        /// The message of the error that the writer met.
        reason: String,
    },
    /// Records were still unwritten when the writer had to end.
    #[error("{records} records{} could not be written: {reason}", of_runs(runs))]
    RecordsLost {
        /// The runs whose history is incomplete.
        runs: Vec<RunId>,
        /// How many records were lost.
        records: usize,
        /// The message of the last error.
        reason: String,
    },
    /// What a run was asked to do, or what a task asks for, cannot be read back.
    #[error("the {what} cannot be read: {source}\nhint: use the packhorse that wrote them")]
    Unreadable {
        /// Which settings or options.
        what: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
}

/// ` of run 3`, ` of runs 3, 4`, or nothing if nobody knows.
fn of_runs(runs: &[RunId]) -> String {
    let names: Vec<String> = runs.iter().map(RunId::to_string).collect();
    match runs {
        [] => String::new(),
        [run] => format!(" of run {run}"),
        _ => format!(" of runs {}", names.join(", ")),
    }
}

/// What to do about what SQLite said, where that is known.
fn advice(source: &rusqlite::Error) -> &'static str {
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
            "\nhint: see whether its disk is full (df) or files may not grow (`ulimit -f`), or set \
             PACKHORSE_HOME to a folder on another"
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            "\nhint: it is damaged: move it to another folder together with `packhorse.db-wal` and \
             `packhorse.db-shm`, and a new one is begun; logs stay where they are, and \
             `sqlite3 packhorse.db .recover` there prints what can still be read of the old one"
        }
        _ => "",
    }
}
