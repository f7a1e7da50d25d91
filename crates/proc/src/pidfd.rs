use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Whether there is a process with this number that has not ended. Also where the entries
/// of other users in `/proc` are hidden.
pub fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Ok(handle)) => !has_ended(handle),
        Some(Err(error)) => error != Errno::SRCH,
        None => false,
    }
}

/// The process group of a process; none if it is gone, or if its group was begun outside our
/// namespace. `rustix::process::getpgid` takes the kernel's 0 for a process there.
pub fn group_of(pid: Pid) -> Option<Pid> {
    // SAFETY: it takes a number and gives one.
    let group = unsafe { libc::getpgid(pid.as_raw_nonzero().get()) };
    Pid::from_raw(group.max(0))
}

/// Whether the process of a pidfd has ended.
pub fn has_ended(handle: impl AsFd) -> bool {
    is_readable(handle)
}

/// Whether a read would not block.
pub fn is_readable(descriptor: impl AsFd) -> bool {
    let mut state = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut state, Some(&Timespec::default())) == Ok(1)
}
