//! The file `.packhorse.json`: read, put in place and replaced whole.
//!
//! Two processes in two containers may have the same process id, so names of drafts have a
//! random number in them.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use packhorse_model::{Marker, TaskId, Timestamp};
use packhorse_store::new_run_uuid;

use crate::grid::is_absence;
use crate::results::{LONGEST_MARKER, read_marker};

/// How the name of a folder begins that has no name of its own yet.
const UNFINISHED: &str = ".packhorse-";

/// What stands in the place of a folder's marker.
pub(crate) enum FoundMarker {
    None,
    /// Another process is about to replace it.
    Locked,
    File(MarkerFile),
}

/// The marker of a folder, locked against other processes that want to replace it.
pub(crate) struct MarkerFile {
    /// `None`: it cannot be opened for writing, as one of another user in a shared folder.
    file: Option<fs_err::File>,
}

impl MarkerFile {
    /// Opens and locks the marker of a folder, if it has one. The kernel releases the lock when
    /// the file is closed.
    pub(crate) fn open(folder: &Path) -> io::Result<FoundMarker> {
        let path = folder.join(Marker::FILE);
        // A pipe in its place must not hold anything up.
        let flags = libc::O_NONBLOCK;
        let opened =
            fs_err::OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(_) if fs_err::symlink_metadata(&path).is_ok() => {
                return Ok(FoundMarker::File(Self { file: None }));
            }
            Err(error) if is_absence(&error) => return Ok(FoundMarker::None),
            Err(error) => return Err(error),
        };
        if is_locked_elsewhere(&file) {
            return Ok(FoundMarker::Locked);
        }
        Ok(FoundMarker::File(Self { file: Some(file) }))
    }

    /// Whether it is still the marker of the folder.
    pub(crate) fn is_current(&self, folder: &Path) -> io::Result<bool> {
        let Some(file) = &self.file else {
            return Ok(true);
        };
        let opened = file.metadata()?;
        match fs_err::metadata(folder.join(Marker::FILE)) {
            Ok(now) => Ok((now.dev(), now.ino()) == (opened.dev(), opened.ino())),
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What it says, if that can be understood.
    pub(crate) fn read(&self, folder: &Path) -> Option<Marker> {
        let Some(file) = &self.file else {
            return read_marker(&folder.join(Marker::FILE)).ok().flatten();
        };
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > LONGEST_MARKER {
            return None;
        }
        let mut bytes = Vec::new();
        file.file().take(LONGEST_MARKER).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// Locks a file, and returns whether another process has done so. A file system without locks
/// leaves it unlocked: then two runs can only clash if both look at the same moment.
///
/// The lock is one of `fcntl`, which only a process that may write the file can take and which
/// NFS passes on to its server, and it is of the open file: another look at the same file does
/// not release it.
fn is_locked_elsewhere(file: &fs_err::File) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "the kernel's constant fits its field")]
    const WRITE: libc::c_short = libc::F_WRLCK as libc::c_short;

    // SAFETY: all zeros is a lock of the whole file that names no process; the call reads it.
    let locked = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = WRITE;
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock)
    };
    let error = io::Error::last_os_error().raw_os_error();
    locked < 0 && matches!(error, Some(libc::EAGAIN | libc::EACCES))
}

/// A number in the names of this process's drafts, which no process in another container has.
pub(crate) fn draft_number() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "any 32 of the random bits will do")]
    static NUMBER: LazyLock<u32> =
        LazyLock::new(|| new_run_uuid(Timestamp::now()).as_u128() as u32);
    *NUMBER
}

fn own_name(task: TaskId) -> String {
    format!("{task}-{}", draft_number())
}

/// Makes a folder that has this marker from the first moment, or adds it to the folder that is
/// there. Returns whether it is there now: not if there is another one.
pub(crate) fn add_marker(folder: &Path, content: &Marker, task: TaskId) -> io::Result<bool> {
    if folder.is_dir() {
        return link(folder, content, task);
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    if !parent.as_os_str().is_empty() {
        fs_err::create_dir_all(parent)?;
    }
    let new = parent.join(format!("{UNFINISHED}{}", own_name(task)));
    let made = fs_err::create_dir(&new)
        .and_then(|()| put(&new.join(Marker::FILE), content))
        .and_then(|()| fs_err::rename(&new, folder));
    let Err(error) = made else {
        return Ok(true);
    };
    let _ = fs_err::remove_dir_all(&new);
    // Another run may have made it meanwhile.
    if folder.is_dir() { link(folder, content, task) } else { Err(error) }
}

/// Adds a marker to a folder that has none.
fn link(folder: &Path, content: &Marker, task: TaskId) -> io::Result<bool> {
    let new = folder.join(format!("{}.{}", Marker::FILE, own_name(task)));
    let path = folder.join(Marker::FILE);
    let written = put(&new, content).and_then(|()| match fs_err::hard_link(&new, &path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        // Not every file system has links.
        Err(_) => fs_err::rename(&new, &path).map(|()| true),
    });
    let _ = fs_err::remove_file(&new);
    written
}

/// Makes a folder again that its task has removed.
pub(crate) fn make_folder(folder: &Path, content: &Marker, task: TaskId) -> io::Result<()> {
    if add_marker(folder, content, task)? { Ok(()) } else { write(folder, content, task) }
}

/// Replaces the marker of a folder.
pub(crate) fn write(folder: &Path, content: &Marker, task: TaskId) -> io::Result<()> {
    let new = folder.join(format!("{}.{}", Marker::FILE, own_name(task)));
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
