use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Looks after each change in `folder` whether what is waited for has come, and
/// sleeps between. `None`: the deadline has passed, or the folder is gone.
pub fn wait_for<T>(
    folder: &Path,
    deadline: Option<Instant>,
    mut look: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let changes = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF;
    inotify::add_watch(&watch, folder, changes)?;
    loop {
        // Only looked for after the watch is set, so that nothing is missed
        // between.
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) || !folder.exists() {
            return Ok(None);
        }
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut waiting = [PollFd::new(&watch, PollFlags::IN)];
        match poll(&mut waiting, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut changes = inotify::Reader::new(&watch, &mut buffer);
        while changes.next().is_ok() {}
    }
}

/// Waits until the file is there. False: the deadline has passed, or its folder is gone.
pub fn wait_until_exists(file: &Path, deadline: Option<Instant>) -> io::Result<bool> {
    wait_until(file, deadline, Path::exists)
}

/// Waits until the file is gone. False: the deadline has passed, or its folder is gone
/// too.
pub fn wait_until_gone(file: &Path, deadline: Option<Instant>) -> io::Result<bool> {
    wait_until(file, deadline, |file| !file.exists())
}

fn wait_until(
    file: &Path,
    deadline: Option<Instant>,
    is_so: impl Fn(&Path) -> bool,
) -> io::Result<bool> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let look = || Ok(is_so(file).then_some(()));
    Ok(wait_for(folder, deadline, look)?.is_some())
}
