//! A run that ends with another process: whoever started it, and needs it no longer than that.

use std::num::ParseIntError;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use packhorse_proc::{ProcEntry, has_ended};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{SessionError, system};

/// A process, as it is named on a command line: `1234`, or `1234:567890` with the time of
/// its start in clock ticks since boot, the 22nd field of `/proc/1234/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedProcess {
    pid: Pid,
    start_time: Option<u64>,
}

impl FromStr for NamedProcess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |_: ParseIntError| "it is no process id, such as 1234".to_owned();
        let (pid, start_time) = match text.split_once(':') {
            Some((pid, start)) => (pid, Some(start.parse().map_err(wrong)?)),
            None => (text, None),
        };
        let pid: i32 = pid.parse().map_err(wrong)?;
        // Negative numbers are groups, which it must not be asked about.
        let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        Ok(Self { pid: pid.ok_or("it is no process id, such as 1234")?, start_time })
    }
}

impl NamedProcess {
    /// A handle of the process, readable when it has ended. An error if it has ended
    /// already: its number may be another's by now, which the time of its start tells.
    pub fn open(self) -> Result<OwnedFd, SessionError> {
        let pid = self.pid.as_raw_nonzero().get();
        let gone = || SessionError::ProcessGone(pid);
        let handle = match pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Err(gone()),
            Err(error) => return Err(system("watch the process of --end-with")(error)),
        };
        // The handle is held: what is read now is of the process that it stands for, or
        // that one has ended.
        let stat = ProcEntry::of(pid.unsigned_abs()).stat();
        let start_time = stat.map_err(|_| gone())?.start_time;
        if self.start_time.is_some_and(|start| start != start_time) || has_ended(&handle) {
            return Err(gone());
        }
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> NamedProcess {
        text.parse().unwrap()
    }

    #[test]
    fn a_process_is_told_by_its_number_and_its_start() {
        let pid = std::process::id();
        let start = ProcEntry::of(pid).stat().unwrap().start_time;
        assert!(named(&pid.to_string()).open().is_ok());
        assert!(named(&format!("{pid}:{start}")).open().is_ok());
        let another = named(&format!("{pid}:{}", start + 1)).open();
        assert!(matches!(another, Err(SessionError::ProcessGone(_))));
    }

    #[test]
    fn a_process_that_has_ended_is_gone_before_and_after_it_is_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = named(&child.id().to_string());
        let handle = pidfd_open(process.pid, PidfdFlags::empty()).unwrap();
        let mut fds = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
        assert!(matches!(process.open(), Err(SessionError::ProcessGone(_))));
        child.wait().unwrap();
        assert!(matches!(process.open(), Err(SessionError::ProcessGone(_))));
    }

    #[test]
    fn what_is_no_process_is_refused() {
        for text in ["", "0", "-1", "x", "1:", "1:x", "99999999999"] {
            assert!(text.parse::<NamedProcess>().is_err(), "{text}");
        }
    }
}
