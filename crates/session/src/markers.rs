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

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use packhorse_engine::{Input, StartAttempt};
use packhorse_gpu::Unit;
use packhorse_model::{
    AttemptEnd, ByteString, EndedAttempt, Marker, Outcome, OutputMode, ProcessEvent, Record, RunId,
    TaskId, Timestamp,
};
use packhorse_proc::{ProcessTable, RunProcesses};
use rustc_hash::FxHashMap;

use crate::git::GitLookup;
use crate::repetition_config::RepetitionConfig;
use crate::results::read_marker;

/// How the name of a folder begins that has no name of its own yet.
const UNFINISHED: &str = ".packhorse-";

/// The markers of tasks that run.
pub(crate) struct Markers {
    /// The devices as people call them.
    labels: Vec<String>,
    home: String,
    /// Whether a task does not run whose results another run has.
    keeps_results: bool,
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
    /// `home` is the id of the state folder.
    pub(crate) fn new(units: &[Unit], home: &str, keeps_results: bool) -> Self {
        Self {
            home: home.to_owned(),
            keeps_results,
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
        let marker = marker.filter(|marker| !self.is_of_run(marker, start.task.run));
        let debug = is_debug(start);
        let has_results = |marker: &Marker| {
            marker.outcome == Outcome::Succeeded.word() && (debug || !marker.debug)
        };
        if self.keeps_results && marker.as_ref().is_some_and(has_results) {
            let message = "another run has done it meanwhile: its results were kept";
            return Some(ended(start, Outcome::Succeeded, message.to_owned()));
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
            home: self.home.clone(),
            log: log(start),
            ..Marker::default()
        };
        let made = marker
            .map_or(Ok(()), |marker| check_unused(&folder, &marker))
            .and_then(|()| make_folder(&folder, &content, start.task))
            .and_then(|()| write_config(start));
        let made = made.map_err(|error| {
            let folder = folder.display();
            format!("cannot make the folder `{folder}` for its results: {error}")
        });
        let marker = OpenMarker { folder, attempt: start.attempt, content };
        match made {
            Ok(()) => {
                self.open.insert(start.task, marker);
                None
            }
            Err(message) => Some(ended(start, Outcome::NotStarted, message)),
        }
    }

    /// Whether a task of this run has written a marker.
    fn is_of_run(&self, marker: &Marker, run: RunId) -> bool {
        marker.home == self.home && marker.task.is_some_and(|by| by.run == run)
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
pub(crate) fn ended(start: &StartAttempt, outcome: Outcome, message: String) -> Input {
    Input::Process(ProcessEvent::Ended(AttemptEnd {
        task: start.task,
        attempt: start.attempt,
        outcome,
        message: Some(message),
        took: Duration::ZERO,
    }))
}

/// Refuses a folder with the marker of another run that is at work in it: two tests in one
/// folder would spoil each other's results.
fn check_unused(folder: &Path, marker: &Marker) -> io::Result<()> {
    match marker.task {
        Some(by) if marker.outcome == Marker::RUNNING && is_at_work(&marker.home, by.run) => {
            let folder = folder.display();
            let message = format!("{folder} is in use: its test still runs, as task {by}");
            Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
        }
        _ => Ok(()),
    }
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

/// Makes a folder that has this marker from the first moment, or writes it into the folder
/// that is there.
fn make_folder(folder: &Path, content: &Marker, task: TaskId) -> io::Result<()> {
    if folder.is_dir() {
        return write(folder, content, task);
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    if !parent.as_os_str().is_empty() {
        fs_err::create_dir_all(parent)?;
    }
    let new = parent.join(format!("{UNFINISHED}{task}-{}", std::process::id()));
    let made = fs_err::create_dir(&new)
        .and_then(|()| put(&new.join(Marker::FILE), content))
        .and_then(|()| fs_err::rename(&new, folder));
    let Err(error) = made else {
        return Ok(());
    };
    let _ = fs_err::remove_dir_all(&new);
    // Somebody else may have made it meanwhile.
    if folder.is_dir() { write(folder, content, task) } else { Err(error) }
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
    new.push(format!(".{}", std::process::id()));
    fs_err::write(&new, config.to_lines())?;
    fs_err::rename(&new, &path)
}

/// Removes what runs that were killed have left of folders that they were just making.
pub(crate) fn remove_unfinished(parent: &Path) {
    let Ok(entries) = fs_err::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(is_unfinished) {
            continue;
        }
        // Making one takes no time, also on another machine.
        let age = entry.metadata().and_then(|data| data.modified());
        let age = age.map(|made| made.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > Duration::from_mins(10)) {
            // What is not ours is in the way, and stays.
            let _ = fs_err::remove_file(entry.path().join(Marker::FILE));
            let _ = fs_err::remove_dir(entry.path());
        }
    }
}

/// Whether a folder has such a name: `.packhorse-3.7-1234`.
fn is_unfinished(name: &str) -> bool {
    let name = name.strip_prefix(UNFINISHED);
    let parts = name.and_then(|name| name.split_once('-'));
    parts.is_some_and(|(task, pid)| task.parse::<TaskId>().is_ok() && pid.parse::<u32>().is_ok())
}

/// Whether processes of a run are there, on this machine.
pub(crate) fn is_at_work(home: &str, run: RunId) -> bool {
    let processes = RunProcesses { home, run: &run.to_string(), leaders: &[] };
    !ProcessTable::read().of(processes).is_empty()
}

/// Replaces the marker of a folder.
fn write(folder: &Path, content: &Marker, task: TaskId) -> io::Result<()> {
    let new = folder.join(format!("{}.{task}-{}", Marker::FILE, std::process::id()));
    let written = put(&new, content).and_then(|()| fs_err::rename(&new, folder.join(Marker::FILE)));
    if written.is_err() {
        let _ = fs_err::remove_file(&new);
    }
    written
}

fn put(path: &Path, content: &Marker) -> io::Result<()> {
    let mut text = serde_json::to_vec(content)?;
    text.push(b'\n');
    fs_err::File::create(path)?.write_all(&text)
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use packhorse_model::RunId;
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

    use super::*;

    /// What happens in a folder while `change` works: who, and whether they came ready-made.
    fn watched(folder: &Path, change: impl FnOnce()) -> Vec<(String, bool)> {
        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        let events = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, folder, events).unwrap();
        change();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            let name = event.file_name().unwrap_or_default();
            let moved = event.events().contains(ReadFlags::MOVED_TO);
            seen.push((name.to_string_lossy().into_owned(), moved));
        }
        seen
    }

    #[test]
    fn a_folder_and_its_marker_appear_in_one_step() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a-1,");
        let task = TaskId::new(RunId(3), 7);
        let content = Marker { outcome: Marker::RUNNING.to_owned(), ..Marker::default() };
        let seen = watched(root.path(), || {
            make_folder(&folder, &content, task).unwrap();
        });
        let of_folder: Vec<_> = seen.iter().filter(|(name, _)| name == "a-1,").collect();
        assert_eq!(of_folder, [&("a-1,".to_owned(), true)], "{seen:?}");
        let marker = folder.join(Marker::FILE);
        let read = || serde_json::from_slice::<Marker>(&fs_err::read(&marker).unwrap()).unwrap();
        assert_eq!(read(), content);

        // In a folder that is there, the marker alone does.
        let content = Marker { outcome: "succeeded".to_owned(), ..content };
        let seen = watched(&folder, || make_folder(&folder, &content, task).unwrap());
        let of_marker: Vec<_> = seen.iter().filter(|(name, _)| name == Marker::FILE).collect();
        assert_eq!(of_marker, [&(Marker::FILE.to_owned(), true)], "{seen:?}");
        assert_eq!(read(), content);
        assert_eq!(fs_err::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn only_what_a_killed_run_was_making_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - Duration::from_hours(1);
        let make = |name: &str, file: &str| {
            let folder = root.path().join(name);
            fs_err::create_dir(&folder).unwrap();
            fs_err::write(folder.join(file), "").unwrap();
            let opened = fs_err::File::open(folder).unwrap();
            opened.file().set_modified(old).unwrap();
        };
        make(".packhorse-3.7-1234", Marker::FILE);
        make(".packhorse-3.7-99", "somebody's");
        make(".packhorse-notes", Marker::FILE);
        make("a-1,", Marker::FILE);
        remove_unfinished(root.path());
        let left = fs_err::read_dir(root.path()).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<String> = left.collect();
        left.sort_unstable();
        assert_eq!(left, [".packhorse-3.7-99", ".packhorse-notes", "a-1,"]);
    }
}
