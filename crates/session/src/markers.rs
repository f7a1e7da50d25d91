//! `.packhorse.json` in the folders of results: how far a task has come.
//!
//! ```text
//!  Action::Start ──▶ begin: the folder appears together with a marker that says `running`
//!  Record::AttemptEnded ──▶ note: the marker is replaced, then the record is written,
//!                                 then the end is told
//! ```
//!
//! Whatever kills us, a folder that we made has a marker, and one that says `succeeded` is
//! that of a task that has. A folder without one was made by somebody else.
//!
//! A task without results costs a look at an `Option`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use packhorse_engine::{Input, StartAttempt};
use packhorse_gpu::Unit;
use packhorse_model::{
    AttemptEnd, ByteString, EndedAttempt, FolderInDoubt, Marker, Outcome, OutputMode, ProcessEvent,
    Record, RunSpec, TaskId, Timestamp,
};
use rustc_hash::FxHashMap;

use crate::git::GitLookup;
use crate::marked_run::{KnownHome, RunStanding, RunningTest};
use crate::marker_file::{FoundMarker, MarkerFile, add_marker, draft_number, make_folder, write};
use crate::repetition_config::RepetitionConfig;
use crate::results::read_marker;

/// How often a run tries to take a folder that other runs change meanwhile.
const MOST_TRIES: u32 = 100;

/// Why a folder was not taken for a task.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error("`{folder}` is in use: {why}")]
    InUse { folder: String, why: String },
    #[error("cannot make the folder `{folder}` for its results: {error}")]
    Failed { folder: String, error: io::Error },
}

impl TakeError {
    fn in_use(folder: &Path, why: &str) -> Self {
        Self::InUse { folder: folder.display().to_string(), why: why.to_owned() }
    }

    fn failed(folder: &Path) -> impl Fn(io::Error) -> Self {
        let folder = folder.display().to_string();
        move |error| Self::Failed { folder: folder.clone(), error }
    }
}

/// What became of taking a folder for a task.
enum Taken {
    Ours,
    /// Another run has its results.
    Done,
}

/// The markers of tasks that run.
pub(crate) struct Markers {
    /// The devices as people call them.
    labels: Vec<String>,
    home: KnownHome,
    /// Whether a task does not run whose results another run has.
    keeps_results: bool,
    folder_in_doubt: FolderInDoubt,
    host: String,
    git: GitLookup,
    open: FxHashMap<TaskId, OpenMarker>,
    /// Those that were written before git had answered.
    unfinished: Vec<(PathBuf, Marker, TaskId)>,
}

struct OpenMarker {
    folder: PathBuf,
    attempt: u32,
    content: Marker,
}

impl Markers {
    pub(crate) fn new(units: &[Unit], home: KnownHome, spec: &RunSpec) -> Self {
        Self {
            home,
            keeps_results: spec.keeps_results,
            folder_in_doubt: spec.folder_in_doubt,
            labels: units.iter().map(|unit| unit.label.clone()).collect(),
            host: String::new(),
            git: GitLookup::Unasked,
            open: FxHashMap::default(),
            unfinished: Vec::new(),
        }
    }

    /// Makes the folder of an attempt's results, if it has one. Returns what to tell the
    /// engine if that is impossible, or another run has come to them meanwhile.
    pub(crate) fn begin(&mut self, start: &StartAttempt) -> Option<Input> {
        let results = start.spec.results.as_ref()?;
        let folder = start.spec.folder.as_deref().unwrap_or(Path::new(""));
        let folder = folder.join(results);
        // What cannot be read is replaced.
        let marker = read_marker(&folder.join(Marker::FILE)).ok().flatten();
        let marker = marker.filter(|marker| !self.home.is_of_own_run(marker));
        let debug = is_debug(start);
        if self.keeps_results && marker.as_ref().is_some_and(|marker| has_results(marker, debug)) {
            return Some(kept(start));
        }
        self.git.ask();
        if self.host.is_empty() {
            let names = rustix::system::uname();
            self.host = names.nodename().to_string_lossy().into_owned();
        }
        let devices = start.placement.devices.iter();
        let labels = devices.filter_map(|granted| self.labels.get(granted.device.0 as usize));
        let content = Marker {
            packhorse: env!("CARGO_PKG_VERSION").to_owned(),
            task: Some(start.task),
            outcome: Marker::RUNNING.to_owned(),
            debug,
            params: start.spec.params.clone(),
            command: (*start.command).clone(),
            started: Some(Timestamp::now()),
            attempts: start.attempt,
            gpus: labels.cloned().collect(),
            git: self.git.answer().cloned().flatten(),
            host: self.host.clone(),
            home: self.home.id().to_owned(),
            run: self.home.run_uuid(),
            log: log(start),
            ..Marker::default()
        };
        let made = match self.take(&folder, &content, start.task) {
            Ok(Taken::Done) => return Some(kept(start)),
            Ok(Taken::Ours) => write_config(start).map_err(TakeError::failed(&folder)),
            Err(error) => Err(error),
        };
        let marker = OpenMarker { folder, attempt: start.attempt, content };
        match made {
            Ok(()) => {
                self.open.insert(start.task, marker);
                None
            }
            Err(error) => Some(ended(start, Outcome::NotStarted, error.to_string())),
        }
    }

    /// Makes a folder the task's own: makes it with its marker, or puts the marker in place of
    /// one that was left there. Of several runs that try at once, in whatever containers, one
    /// succeeds, and the others see its marker.
    fn take(&self, folder: &Path, content: &Marker, task: TaskId) -> Result<Taken, TakeError> {
        let failed = TakeError::failed(folder);
        for _ in 0..MOST_TRIES {
            let file = match MarkerFile::open(folder).map_err(&failed)? {
                FoundMarker::None => {
                    if add_marker(folder, content, task).map_err(&failed)? {
                        return Ok(Taken::Ours);
                    }
                    continue;
                }
                FoundMarker::Locked => {
                    let why = "another run starts a test there at this moment";
                    return Err(TakeError::in_use(folder, why));
                }
                FoundMarker::File(file) => file,
            };
            if !file.is_current(folder).map_err(&failed)? {
                continue;
            }
            if let Some(marker) = file.read(folder)
                && !self.home.is_of_own_run(&marker)
            {
                if self.keeps_results && has_results(&marker, content.debug) {
                    return Ok(Taken::Done);
                }
                self.check_unused(folder, &marker)?;
            }
            write(folder, content, task).map_err(&failed)?;
            return Ok(Taken::Ours);
        }
        Err(TakeError::in_use(folder, "other runs start their tests there"))
    }

    /// Refuses a folder with the marker of another run that is at work in it: two tests in one
    /// folder would spoil each other's results.
    fn check_unused(&self, folder: &Path, marker: &Marker) -> Result<(), TakeError> {
        let Some(test) = RunningTest::of(marker) else {
            return Ok(());
        };
        let standing = self.home.standing(&test).map_err(io::Error::other);
        match standing.map_err(TakeError::failed(folder))? {
            RunStanding::AtWork => {
                let why = format!("its test still runs, as task {}", test.task);
                Err(TakeError::in_use(folder, &why))
            }
            RunStanding::Unknown if self.folder_in_doubt == FolderInDoubt::LeaveAlone => {
                let mut why = test.describe();
                // A grid and an experiment skip a folder without a marker.
                if !self.keeps_results {
                    let marker = folder.join(Marker::FILE);
                    why += &format!("; if that is over, remove `{}`", marker.display());
                }
                Err(TakeError::in_use(folder, &why))
            }
            RunStanding::Over | RunStanding::Unknown => Ok(()),
        }
    }

    /// Takes note of what is written down next. Returns what to tell the engine if a marker
    /// cannot be written.
    pub(crate) fn note(&mut self, record: &Record) -> Option<Input> {
        if self.open.is_empty() {
            return None;
        }
        let end = match record {
            Record::AttemptEnded(end) => end,
            Record::Started(start) => {
                let marker = self.open.get_mut(&start.task)?;
                marker.content.started = Some(start.at);
                return None;
            }
            Record::Metrics(printed) => {
                let marker = self.open.get_mut(&printed.task)?;
                if marker.attempt == printed.attempt {
                    marker.content.metrics.clone_from(&printed.metrics);
                }
                return None;
            }
            _ => return None,
        };
        let marker = self.open.remove(&end.task)?;
        self.end(marker, end).err().map(|error| Input::Warning {
            task: Some(end.task),
            message: format!("its folder does not tell how it ended: {error}"),
        })
    }

    fn end(&mut self, marker: OpenMarker, end: &EndedAttempt) -> io::Result<()> {
        if marker.attempt != end.attempt {
            return Ok(());
        }
        // A probe says nothing of the task, and neither does what runs once more: whatever
        // happens before it does, it is not done.
        let is_told = end.attempt > 0 && (end.is_final || !end.outcome.is_success());
        let outcome = if is_told { end.outcome } else { Outcome::Interrupted };
        let (folder, mut content) = (marker.folder, marker.content);
        outcome.word().clone_into(&mut content.outcome);
        content.detail = outcome.detail();
        content.message = end.message.as_deref().or(end.note.as_deref()).map(str::to_owned);
        let started = content.started.unwrap_or(end.at);
        content.seconds = Some(end.at.since(started).as_secs_f64());
        content.ended = Some(end.at);
        content.peak = end.peak;
        let answer = self.git.answer().cloned();
        let is_answered = answer.is_some();
        content.git = answer.flatten();
        let written = match write(&folder, &content, end.task) {
            // The task has taken its folder away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_folder(&folder, &content, end.task)
            }
            written => written,
        };
        if is_answered {
            self.add_git();
        } else if written.is_ok() {
            self.unfinished.push((folder, content, end.task));
        }
        written
    }

    /// Adds what git has answered to the markers that were written before.
    fn add_git(&mut self) {
        if self.unfinished.is_empty() {
            return;
        }
        let Some(git) = self.git.last_answer() else {
            return self.unfinished.clear();
        };
        for (folder, content, task) in self.unfinished.drain(..) {
            let now = read_marker(&folder.join(Marker::FILE));
            // Another attempt may have begun there.
            if matches!(now, Ok(Some(now)) if now == content) {
                let git = Some(git.clone());
                let _ = write(&folder, &Marker { git, ..content }, task);
            }
        }
    }
}

impl Drop for Markers {
    fn drop(&mut self) {
        self.add_git();
    }
}

/// What to tell the engine of an attempt that does not start.
fn ended(start: &StartAttempt, outcome: Outcome, message: String) -> Input {
    Input::Process(ProcessEvent::Ended(AttemptEnd {
        task: start.task,
        attempt: start.attempt,
        outcome,
        message: Some(message),
        took: Duration::ZERO,
    }))
}

/// What the task is told whose results are there.
fn kept(start: &StartAttempt) -> Input {
    let message = "another run has done it meanwhile: its results were kept";
    ended(start, Outcome::Succeeded, message.to_owned())
}

fn has_results(marker: &Marker, debug: bool) -> bool {
    marker.outcome == Outcome::Succeeded.word() && (debug || !marker.debug)
}

/// Whether it is a repetition of an experiment that is only tried.
fn is_debug(start: &StartAttempt) -> bool {
    #[derive(serde::Deserialize)]
    struct Tried {
        #[serde(default, rename = "_debug")]
        debug: bool,
    }

    let config = start.spec.env.get("PACKHORSE_EXPERIMENT");
    let tried = config.and_then(|config| serde_json::from_slice::<Tried>(&config.0).ok());
    tried.is_some_and(|tried| tried.debug)
}

/// Where the output of an attempt is written, if it is.
fn log(start: &StartAttempt) -> Option<ByteString> {
    let path = start.own_log.as_ref().unwrap_or(&start.log);
    let path = std::path::absolute(path).ok()?;
    (start.output != OutputMode::Inherit).then(|| path.into_os_string().into())
}

/// Writes the file with the whole configuration of an attempt, if it has one:
/// `PACKHORSE_EXPERIMENT`, a key a line.
fn write_config(start: &StartAttempt) -> io::Result<()> {
    let spec = &start.spec;
    let Some(path) = spec.env.get("PACKHORSE_CONFIG") else {
        return Ok(());
    };
    let Some(config) = RepetitionConfig::of(start)? else {
        return Ok(());
    };
    let folder = spec.folder.as_deref().unwrap_or(Path::new(""));
    let path = folder.join(path.as_os_str());
    let mut new = path.clone().into_os_string();
    new.push(format!(".{}", draft_number()));
    fs_err::write(&new, config.to_lines())?;
    fs_err::rename(&new, &path)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use packhorse_model::RunId;
    use packhorse_store::new_run_uuid;

    use super::*;
    use crate::marked_run::OwnRun;

    #[test]
    fn of_runs_that_take_a_folder_at_once_one_has_it() {
        const RUNS: usize = 4;
        let root = tempfile::tempdir().unwrap();
        let task = TaskId::new(RunId(3), 7);
        for round in 0..30 {
            let folder = root.path().join(format!("a-{round},"));
            if round % 3 > 0 {
                fs_err::create_dir(&folder).unwrap();
            }
            if round % 3 == 1 {
                fs_err::write(folder.join(Marker::FILE), r#"{"outcome": "killed"}"#).unwrap();
            }
            let barrier = Barrier::new(RUNS);
            let take = |run: usize| {
                let home = format!("home-{run}");
                let own = OwnRun { id: task.run, uuid: new_run_uuid(Timestamp::now()) };
                let known = KnownHome::of_run(&home, None, own, &RunSpec::default());
                let markers = Markers::new(&[], known, &RunSpec::default());
                let outcome = Marker::RUNNING.to_owned();
                let content = Marker { task: Some(task), outcome, home, ..Marker::default() };
                barrier.wait();
                markers.take(&folder, &content, task).is_ok()
            };
            let taken = std::thread::scope(|scope| {
                let take = &take;
                let runs: Vec<_> = (0..RUNS).map(|run| scope.spawn(move || take(run))).collect();
                runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<bool>>()
            });
            assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{round}: {taken:?}");
        }
    }
}
