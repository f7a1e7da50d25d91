//! Identifies processes, and tells whether they are alive.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, getpid, pidfd_open};

use crate::lease_name::LeaseName;

/// The boot and PID namespace in which process ids have a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SystemId {
    /// Changes with every boot.
    pub(crate) boot: String,
    /// The PID namespace. In another one, an id means another process.
    pub(crate) namespace: u64,
}

impl SystemId {
    pub(crate) fn read() -> io::Result<Self> {
        let boot = fs_err::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let namespace = fs_err::metadata("/proc/self/ns/pid")?.ino();
        Ok(Self {
            boot: boot.trim().to_owned(),
            namespace,
        })
    }
}

/// This process.
pub(crate) fn me() -> io::Result<LeaseName> {
    let pid = getpid().as_raw_nonzero().get().unsigned_abs();
    let start = start(pid)?;
    let unreadable = || io::Error::other("cannot parse `/proc/self/stat`");
    Ok(LeaseName {
        uid: geteuid().as_raw(),
        pid,
        start: start.ok_or_else(unreadable)?,
    })
}

/// Whether a process is alive.
#[derive(Debug)]
pub(crate) enum ProcessState {
    /// It is alive; the descriptor becomes readable when it ends.
    Alive(OwnedFd),
    /// It has ended, or never existed.
    Ended,
    /// The id belongs to another user's process, or that cannot be determined.
    Unknown,
}

/// Looks for the process with this name.
pub(crate) fn find(name: LeaseName) -> ProcessState {
    let Some(pid) = i32::try_from(name.pid).ok().and_then(Pid::from_raw) else {
        return ProcessState::Ended;
    };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        // The id is a thread's, and leases belong to processes.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return ProcessState::Ended,
        Err(_) => return ProcessState::Unknown,
    };
    // Read after the descriptor was opened: if both mean a living process, it is the same
    // one. If other users' processes are hidden from us (hidepid), neither can be read: then
    // the id alone has to do.
    match start(name.pid) {
        Ok(Some(start)) if start != name.start => return ProcessState::Ended,
        Ok(None) => return ProcessState::Unknown,
        _ => {}
    }
    match user(name.pid) {
        Ok(Some(uid)) if uid != name.uid => return ProcessState::Unknown,
        Ok(None) => return ProcessState::Unknown,
        _ => {}
    }
    if has_ended(&process) {
        ProcessState::Ended
    } else {
        ProcessState::Alive(process)
    }
}

fn has_ended(process: impl AsFd) -> bool {
    let mut process = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut process, Some(&Timespec::default())) == Ok(1)
}

/// The start time of a process; `None` if its file cannot be parsed.
fn start(pid: u32) -> io::Result<Option<u64>> {
    let stat = fs_err::read(format!("/proc/{pid}/stat"))?;
    Ok(start_in(&stat))
}

/// The 22nd field. The second is the program's name in brackets, which may itself contain
/// spaces and brackets.
fn start_in(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = str::from_utf8(&stat[name_end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The user who owns the files that a process creates.
fn user(pid: u32) -> io::Result<Option<u32>> {
    // Not the owner of its folder in /proc: that is root for a program that is not readable.
    let status = fs_err::read(format!("/proc/{pid}/status"))?;
    Ok(user_in(&status))
}

fn user_in(status: &[u8]) -> Option<u32> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let ids = lines.find_map(|line| line.strip_prefix(b"Uid:"))?;
    let effective = str::from_utf8(ids).ok()?.split_ascii_whitespace().nth(1)?;
    effective.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_does_not_mislead() {
        let stat = b"7 (a) R (b) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 8642 1 2 3";
        assert_eq!(start_in(stat), Some(8642));
        assert_eq!(start_in(b"7 (a) S 1 7"), None);
        let status = b"LeaseName:\tUid: 5 6\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t0\t0\t0\t0\n";
        assert_eq!(user_in(status), Some(2));
    }

    #[test]
    fn a_process_is_found_by_all_of_its_name_only() {
        let me = me().unwrap();
        assert!(matches!(find(me), ProcessState::Alive(_)));
        let earlier = LeaseName {
            start: me.start - 1,
            ..me
        };
        assert!(
            matches!(find(earlier), ProcessState::Ended),
            "a reused number"
        );
        let other = LeaseName {
            uid: me.uid + 1,
            ..me
        };
        assert!(
            matches!(find(other), ProcessState::Unknown),
            "another user's name"
        );
        let huge = LeaseName {
            pid: u32::MAX,
            ..me
        };
        assert!(matches!(find(huge), ProcessState::Ended));
    }

    #[test]
    fn a_process_has_ended_even_if_nobody_has_reaped_it() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let name = LeaseName {
            pid,
            start: start(pid).unwrap().unwrap(),
            ..me().unwrap()
        };
        let raw = Pid::from_raw(pid.cast_signed()).unwrap();
        let process = pidfd_open(raw, PidfdFlags::empty()).unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        assert!(matches!(find(name), ProcessState::Ended));
        child.wait().unwrap();
        assert!(matches!(find(name), ProcessState::Ended));
    }
}
