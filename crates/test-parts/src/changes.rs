//! Waiting for what changes in folders.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Time until the effect of a change can be seen: a program writes a line of its
/// log before it does what it says, and SQLite writes before others can read it.
const SETTLING: Duration = Duration::from_millis(100);

/// Returns what `look` finds: it looks at first, and then after each change below one of these
/// folders, and once more when that has settled. `None`: the deadline has passed.
///
/// A folder need not exist yet. What `look` itself changes there would wake it up again.
pub fn wait_for_change<T>(
    folders: &[&Path],
    deadline: Option<Instant>,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
    let changes = inotify::init(flags).unwrap_or_else(|error| {
        panic!("cannot watch folders: {error}\n  hint: raise fs.inotify.max_user_instances")
    });
    let mut is_settling = false;
    loop {
        // Before it looks, so that it misses no later change, and each time, as there may be
        // new folders.
        for folder in folders {
            watch_existing(&changes, folder);
        }
        if let Some(found) = look() {
            return Some(found);
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        let left = left.into_iter().chain(is_settling.then_some(SETTLING)).min();
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        is_settling = match poll(&mut [PollFd::new(&changes, PollFlags::IN)], left.as_ref()) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => is_settling,
            Err(error) => panic!("cannot wait for changes: {error}"),
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&changes, &mut buffer);
        while events.next().is_ok() {}
    }
}

/// Watches all folders below this one; the nearest that exists, if it does not.
fn watch_existing(changes: &OwnedFd, folder: &Path) {
    let existing = folder.ancestors().find(|folder| folder.is_dir());
    match existing {
        Some(existing) if existing != folder => watch(changes, existing),
        _ => watch_below(changes, folder),
    }
}

fn watch_below(changes: &OwnedFd, folder: &Path) {
    watch(changes, folder);
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            watch_below(changes, &entry.path());
        }
    }
}

/// The folder may be gone by now; the watch of its parent reports that.
fn watch(changes: &OwnedFd, folder: &Path) {
    let wanted = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::MOVE
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF;
    match inotify::add_watch(changes, folder, wanted) {
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
        Err(error) => panic!("cannot watch {}: {error}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_in_a_folder_that_is_made_later_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("new/newer");
        let file = below.join("file");
        // Each step is made only after it has looked and found nothing.
        let (looked, looks) = sync_channel(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                looks.recv().unwrap();
                fs_err::create_dir(folder.path().join("new")).unwrap();
                looks.recv().unwrap();
                fs_err::create_dir(&below).unwrap();
                looks.recv().unwrap();
                fs_err::write(&file, "text").unwrap();
                drop(looks);
            });
            let found = wait_for_change(&[&folder.path().join("new")], None, || {
                let text = fs_err::read_to_string(&file).ok().filter(|text| !text.is_empty());
                if text.is_none() {
                    let _ = looked.send(());
                }
                text
            });
            assert_eq!(found.as_deref(), Some("text"));
        });
    }

    #[test]
    fn nothing_is_found_after_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let deadline = Instant::now() + Duration::from_millis(10);
        assert_eq!(wait_for_change(&[folder.path()], Some(deadline), || None::<()>), None);
    }
}
