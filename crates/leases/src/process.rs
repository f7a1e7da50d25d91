//! Identifies processes, and tells whether they are alive.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use packhorse_proc::{ProcEntry, boot_id, has_ended};
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
        Ok(Self { boot: boot_id()?, namespace: fs_err::metadata("/proc/self/ns/pid")?.ino() })
    }
}

/// This process.
pub(crate) fn me() -> io::Result<LeaseName> {
    let pid = getpid().as_raw_nonzero().get().unsigned_abs();
    Ok(LeaseName { uid: geteuid().as_raw(), pid, start: ProcEntry::of(pid).stat()?.start_time })
}

/// Whether a process is alive.
#[derive(Debug)]
pub(crate) enum ProcessState {
    /// It is alive; the descriptor becomes readable when it ends.
    Alive(OwnedFd),
    /// It has ended, or never existed.
    Ended,
    /// It may be alive, but nobody can open it at the moment: there are too many open files,
    /// or too little memory.
    Unopened,
    /// The id belongs to another user's process, or that cannot be determined.
    Unknown,
}

/// Whether the system has run out of something that it may have again in a moment.
pub(crate) const fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
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
        Err(errno) if is_shortage(errno) => return ProcessState::Unopened,
        Err(_) => return ProcessState::Unknown,
    };
    // Read after the descriptor was opened: if both mean a living process, it is the same
    // one. If other users' processes are hidden from us (hidepid), neither can be read: then
    // the id alone has to do.
    let entry = ProcEntry::of(name.pid);
    let is_unclear = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
    match entry.stat() {
        Ok(stat) if stat.start_time != name.start => return ProcessState::Ended,
        Err(error) if is_unclear(&error) => return ProcessState::Unknown,
        _ => {}
    }
    // Not the owner of its folder in /proc: that is root for a program that is not readable.
    match entry.effective_user() {
        Ok(uid) if uid != name.uid => return ProcessState::Unknown,
        Err(error) if is_unclear(&error) => return ProcessState::Unknown,
        _ => {}
    }
    if has_ended(&process) { ProcessState::Ended } else { ProcessState::Alive(process) }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn a_process_is_found_by_all_of_its_name_only() {
        let me = me().unwrap();
        assert!(matches!(find(me), ProcessState::Alive(_)));
        let earlier = LeaseName { start: me.start - 1, ..me };
        assert!(matches!(find(earlier), ProcessState::Ended), "a reused number");
        let other = LeaseName { uid: me.uid + 1, ..me };
        assert!(matches!(find(other), ProcessState::Unknown), "another user's name");
        let huge = LeaseName { pid: u32::MAX, ..me };
        assert!(matches!(find(huge), ProcessState::Ended));
    }

    #[test]
    fn a_process_has_ended_even_if_nobody_has_reaped_it() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let name = LeaseName {
            pid,
            start: ProcEntry::of(pid).stat().unwrap().start_time,
            ..me().unwrap()
        };
        let raw = Pid::from_raw(pid.cast_signed()).unwrap();
        let process = pidfd_open(raw, PidfdFlags::empty()).unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        assert!(matches!(find(name), ProcessState::Ended));
        child.wait().unwrap();
        assert!(matches!(find(name), ProcessState::Ended));
    }

    #[test]
    fn a_process_that_cannot_be_opened_for_want_of_descriptors_may_be_alive() {
        const ALONE: &str = "LEASES_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            // In a process of its own: nothing else works there meanwhile.
            let name = "process::tests::\
                a_process_that_cannot_be_opened_for_want_of_descriptors_may_be_alive";
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args([name, "--exact"]).env(ALONE, "yes");
            let done = command.output().unwrap();
            let text = String::from_utf8_lossy(&done.stdout);
            assert!(text.contains("1 passed"), "{text}");
            return;
        }
        let me = me().unwrap();
        let limit = getrlimit(Resource::Nofile);
        let none = Rlimit { current: Some(0), ..limit };
        setrlimit(Resource::Nofile, none).unwrap();
        let found = find(me);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(matches!(found, ProcessState::Unopened), "{found:?}");
    }
}
