//! Waiting for something that Slurm does.
//!
//! Slurm has no way to be told of changes, but its controller writes a log line with nearly
//! every one of them. So what is waited for is looked at whenever the log has grown.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;

/// How long anything may usually take, on a machine that runs other tests, too.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Some changes leave no line: nothing is overlooked for longer than this.
const LONGEST_LOOK_AWAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Looks until there is something to see, whenever a file in this folder has changed. Gives
/// up after a while.
pub fn wait_for<T>(
    folder: &Path,
    patience: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let start = Instant::now();
    // Before the first look, so that no change after it is missed.
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let changes = inotify::init(flags).expect("inotify is there");
    let events = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE;
    inotify::add_watch(&changes, folder, events).expect("the folder of the logs is there");
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if start.elapsed() > patience {
            return None;
        }
        let mut descriptors = [PollFd::new(&changes, PollFlags::IN)];
        match poll(&mut descriptors, Some(&LONGEST_LOOK_AWAY)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("cannot wait: {error}"),
        }
        while rustix::io::read(&changes, &mut [0_u8; 4096]).is_ok_and(|count| count > 0) {}
    }
}
