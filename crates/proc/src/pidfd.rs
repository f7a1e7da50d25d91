use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the process of a pidfd has ended.
pub fn has_ended(handle: impl AsFd) -> bool {
    is_readable(handle)
}

/// Whether a read would not block.
pub fn is_readable(descriptor: impl AsFd) -> bool {
    let mut state = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut state, Some(&Timespec::default())) == Ok(1)
}
