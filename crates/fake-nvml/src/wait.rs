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
            Ok(_) | Err(Errno::INTR) => drain(&watch)?,
            Err(error) => return Err(error.into()),
        }
    }
}

fn drain(watch: &rustix::fd::OwnedFd) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut news = inotify::Reader::new(watch, &mut buffer);
    loop {
        match news.next() {
            Ok(_) => {}
            Err(Errno::WOULDBLOCK) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
