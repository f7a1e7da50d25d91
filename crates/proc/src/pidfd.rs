use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the process of a pidfd has ended.
pub fn has_ended(handle: impl AsFd) -> bool {
    let mut handle = [PollFd::new(&handle, PollFlags::IN)];
    poll(&mut handle, Some(&Timespec::default())) == Ok(1)
}
