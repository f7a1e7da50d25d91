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
    AttemptEnd, EndedAttempt, Marker, Outcome, ProcessEvent, Record, TaskId, Timestamp,
};
use rustc_hash::FxHashMap;

use crate::git::GitLookup;

/// How the name of a folder begins that has no name of its own yet.
const UNFINISHED: &str = ".packhorse-";

/// The markers of tasks that run.
pub(crate) struct Markers {
    /// The devices as people call them.
    labels: Vec<String>,
    home: String,
    host: String,
    git: GitLookup,
    open: FxHashMap<TaskId, OpenMarker>,
}

struct OpenMarker {
    folder: PathBuf,
    attempt: u32,
    content: Marker,
}

impl Markers {
    /// `home` is the id of the state folder.
    pub(crate) fn new(units: &[Unit], home: &str) -> Self {
        Self {
            home: home.to_owned(),
            labels: units.iter().map(|unit| unit.label.clone()).collect(),
            host: String::new(),
            git: GitLookup::Unasked,
            open: FxHashMap::default(),
        }
    }

    /// Makes the folder of an attempt's results, if it has one. Returns what to tell the
    /// engine if that is impossible.
    pub(crate) fn begin(&mut self, start: &StartAttempt) -> Option<Input> {
        let results = start.spec.results.as_ref()?;
        self.git.ask();
        if self.host.is_empty() {
            let names = rustix::system::uname();
            self.host = names.nodename().to_string_lossy().into_owned();
        }
        let folder = start.spec.folder.as_deref().unwrap_or(Path::new(""));
        let folder = folder.join(results);
        let devices = start.placement.devices.iter();
        let labels = devices.filter_map(|granted| self.labels.get(granted.device.0 as usize));
        let content = Marker {
            packhorse: env!("CARGO_PKG_VERSION").to_owned(),
            task: Some(start.task),
            outcome: Marker::RUNNING.to_owned(),
            params: start.spec.params.clone(),
            command: (*start.command).clone(),
            started: Some(Timestamp::now()),
            attempts: start.attempt,
            gpus: labels.cloned().collect(),
            git: self.git.known(),
            host: self.host.clone(),
            home: self.home.clone(),
            ..Marker::default()
        };
        let made = make_folder(&folder, &content, start.task);
        let made = made.map_err(|error| {
            let folder = folder.display();
            format!("cannot make the folder `{folder}` for its results: {error}")
        });
        let marker = OpenMarker {
            folder,
            attempt: start.attempt,
            content,
        };
        match made {
            Ok(()) => {
                self.open.insert(start.task, marker);
                None
            }
            Err(message) => Some(Input::Process(ProcessEvent::Ended(AttemptEnd {
                task: start.task,
                attempt: start.attempt,
                outcome: Outcome::NotStarted,
                message: Some(message),
                took: Duration::ZERO,
            }))),
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
        // A probe says nothing of the task, and neither does what runs once more.
        let is_told = end.is_final || !end.outcome.is_success();
        if marker.attempt != end.attempt || end.attempt == 0 || !is_told {
            return Ok(());
        }
        let (folder, mut content) = (marker.folder, marker.content);
        end.outcome.word().clone_into(&mut content.outcome);
        content.detail = end.outcome.detail();
        content.message = end
            .message
            .as_deref()
            .or(end.note.as_deref())
            .map(str::to_owned);
        let started = content.started.unwrap_or(end.at);
        content.seconds = Some(end.at.since(started).as_secs_f64());
        content.ended = Some(end.at);
        content.peak = end.peak;
        content.git = self.git.answer();
        match write(&folder, &content, end.task) {
            // The task has taken its folder away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_folder(&folder, &content, end.task)
            }
            written => written,
        }
    }
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
    if folder.is_dir() {
        write(folder, content, task)
    } else {
        Err(error)
    }
}

/// Removes what runs that were killed have left of folders that they were just making.
pub(crate) fn remove_unfinished(parent: &Path) {
    let Ok(entries) = fs_err::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            continue;
        }
        // Making one takes no time, also on another machine.
        let age = entry.metadata().and_then(|data| data.modified());
        let age = age.map(|made| made.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > Duration::from_mins(1)) {
            // What cannot be removed is in nobody's way.
            let _ = fs_err::remove_dir_all(entry.path());
        }
    }
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
        let content = Marker {
            outcome: Marker::RUNNING.to_owned(),
            ..Marker::default()
        };
        let seen = watched(root.path(), || {
            make_folder(&folder, &content, task).unwrap();
        });
        let of_folder: Vec<_> = seen.iter().filter(|(name, _)| name == "a-1,").collect();
        assert_eq!(of_folder, [&("a-1,".to_owned(), true)], "{seen:?}");
        let marker = folder.join(Marker::FILE);
        let read = || serde_json::from_slice::<Marker>(&fs_err::read(&marker).unwrap()).unwrap();
        assert_eq!(read(), content);

        // In a folder that is there, the marker alone does.
        let content = Marker {
            outcome: "succeeded".to_owned(),
            ..content
        };
        let seen = watched(&folder, || make_folder(&folder, &content, task).unwrap());
        let of_marker: Vec<_> = seen
            .iter()
            .filter(|(name, _)| name == Marker::FILE)
            .collect();
        assert_eq!(of_marker, [&(Marker::FILE.to_owned(), true)], "{seen:?}");
        assert_eq!(read(), content);
        assert_eq!(fs_err::read_dir(&folder).unwrap().count(), 1);
    }
}
