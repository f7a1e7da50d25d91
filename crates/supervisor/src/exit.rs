//! How a process ended.

use std::ffi::c_ulong;
use std::os::fd::{AsRawFd, BorrowedFd};

use packhorse_proc::{ProcEntry, has_ended};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, wait, waitid};
use syscalls::{Sysno, syscall};

use crate::process_tree::number;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// By itself, with this status.
    Exited(i32),
    Signaled(i32),
    /// Somebody else took its status, and the kernel does not tell a second time.
    Unseen,
}

impl ProcessEnd {
    fn from_waitid(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Exited(code),
            (_, Some(signal)) => Self::Signaled(signal),
            _ => Self::Unseen,
        }
    }

    /// From the one number that `wait` has always packed it into.
    fn from_packed(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Exited(status >> 8 & 0xff),
            signal => Self::Signaled(signal),
        }
    }
}

/// Reaps a process that its handle says has ended, if it is our child. `None`: it
/// has not ended, or its end cannot be told yet; the handle becomes readable once
/// more when it can.
///
/// `start_time` tells the process of this number from a later one.
pub(crate) fn end_of(
    handle: BorrowedFd<'_>,
    pid: Pid,
    start_time: Option<u64>,
) -> Option<ProcessEnd> {
    match waitid(WaitId::PidFd(handle), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(status) => status.as_ref().map(ProcessEnd::from_waitid),
        // Not our child, or not any more: whoever ignores SIGCHLD has the kernel
        // reap all children, and some programs wait for whatever there is.
        Err(_) => unreaped_end(handle, pid, start_time),
    }
}

fn unreaped_end(handle: BorrowedFd<'_>, pid: Pid, start_time: Option<u64>) -> Option<ProcessEnd> {
    if let Ok(Some(end)) = told_by_handle(handle) {
        return Some(end);
    }
    if !has_ended(handle) {
        return None;
    }
    // As long as nobody has reaped it, its entry tells.
    let stat = ProcEntry::of(number(pid)).stat();
    if let Ok(stat) = stat
        && stat.has_ended()
        && start_time.is_none_or(|time| time == stat.start_time)
        && let Some(status) = stat.exit_code
    {
        return Some(ProcessEnd::from_packed(status));
    }
    told_by_handle(handle).unwrap_or(Some(ProcessEnd::Unseen))
}

/// What the kernel tells of a reaped process. `None`: it tells when somebody has
/// reaped it. It is an error with kernels older than 6.15.
fn told_by_handle(handle: BorrowedFd<'_>) -> Result<Option<ProcessEnd>, syscalls::Errno> {
    // `struct pidfd_info` as of its first version, and the request for that size.
    #[derive(Default)]
    #[repr(C)]
    struct PidfdInfo {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    const PIDFD_GET_INFO: c_ulong = 0xc040_ff0b;
    const _: () = assert!(size_of::<PidfdInfo>() == 64);
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..Default::default() };
    // SAFETY: the kernel reads and writes at most as many bytes as the request
    // says, which are those of `info`.
    unsafe {
        syscall!(Sysno::ioctl, handle.as_raw_fd(), PIDFD_GET_INFO, &raw mut info)?;
    }
    let is_told = info.mask & PIDFD_INFO_EXIT != 0;
    Ok(is_told.then(|| ProcessEnd::from_packed(info.exit_code)))
}

/// Reaps a child of the calling thread that has ended, if there is one.
pub(crate) fn reap_any() -> Option<(Pid, ProcessEnd)> {
    // What other threads started is theirs to wait for.
    let own = WaitOptions::from_bits_retain(libc::__WNOTHREAD.cast_unsigned());
    let (pid, status) = wait(WaitOptions::NOHANG | own).ok()??;
    Some((pid, ProcessEnd::from_packed(status.as_raw())))
}

/// Reaps a child by its number, if it has ended. Whether it is gone now.
pub(crate) fn reap(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::Pid(pid), options) {
        Ok(status) => status.is_some(),
        Err(error) => error == Errno::CHILD,
    }
}
