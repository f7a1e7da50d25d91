//! Who descends from us.
//!
//! We are the *subreaper* of everything we start: a process whose parent died
//! becomes our child, however many times it forked and whatever session it
//! opened. So every process that outlives its attempt, or the topmost of those
//! that do, ends up in our list of children, which the kernel gives in one read.
//! Its process group says which attempt it came from, or the variables in its
//! environment that mark it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fs_err::os::unix::fs::FileExt as _;
use packhorse_model::TaskId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use packhorse_proc::{self as proc, MARK_HOME, ProcEntry, ProcessKey, ProcessTable, RunProcesses};

/// The variable that tells every process which task it belongs to.
pub(crate) const MARK_TASK: &str = "PACKHORSE_TASK";
/// The attempt of the task, as [`MARK_TASK`].
pub(crate) const MARK_ATTEMPT: &str = "PACKHORSE_ATTEMPT";
/// Marks a process that serves many attempts and is no attempt's, such as an MPS
/// daemon: as an orphan it becomes our child before anybody could tell us its number.
pub(crate) const MARK_SERVICE: &str = "PACKHORSE_SERVICE";

/// The kernel's list of this process's children.
pub(crate) struct ChildList {
    /// Kept open. `None`: a kernel without it (`CONFIG_PROC_CHILDREN`).
    list: Option<fs_err::File>,
    buffer: Vec<u8>,
}

const PAGE: usize = 4096;

impl ChildList {
    /// Makes this process the subreaper.
    pub(crate) fn new() -> io::Result<Self> {
        let me = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(me))?;
        // A list is of one thread's children, and orphans go to the first thread,
        // whoever started their ancestors.
        let me = me.as_raw_nonzero();
        Ok(Self {
            list: fs_err::File::open(format!("/proc/self/task/{me}/children")).ok(),
            buffer: vec![0; 2 * PAGE],
        })
    }

    /// All children of the first thread, dead ones included that nobody waited for.
    pub(crate) fn read(&mut self, children: &mut Vec<Pid>) {
        children.clear();
        let Some(list) = &self.list else {
            return scan_children(children);
        };
        // However long the buffer, the kernel gives a page at a time, and goes on
        // behind the last process it gave. What fills less than half a page is all.
        let mut length = 0;
        while let Ok(read) = list.read_at(&mut self.buffer[length..], length as u64)
            && read > 0
        {
            length += read;
            if read < PAGE / 2 {
                break;
            }
            if self.buffer.len() - length < PAGE {
                self.buffer.resize(self.buffer.len() + PAGE, 0);
            }
        }
        children.extend(
            self.buffer[..length]
                .split(u8::is_ascii_whitespace)
                .filter_map(|digits| str::from_utf8(digits).ok()?.parse().ok())
                .filter_map(Pid::from_raw),
        );
    }
}

/// Looks through all processes for those whose parent we are.
fn scan_children(children: &mut Vec<Pid>) {
    let me = std::process::id();
    let ours = |&pid: &u32| ProcEntry::of(pid).stat().is_ok_and(|stat| stat.parent == me);
    children.extend(proc::pids().filter(ours).filter_map(to_pid));
}

pub(crate) fn to_pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// The number that everybody knows a process by.
pub(crate) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

fn environment_of(pid: Pid) -> Vec<u8> {
    let entry = ProcEntry::of(number(pid));
    entry.environment().unwrap_or_default()
}

/// The attempt that a process says it belongs to, if it is of this state folder.
pub(crate) fn marked_attempt(pid: Pid, home_mark: &str) -> Option<(TaskId, u32)> {
    let environment = environment_of(pid);
    let value = |name| str::from_utf8(proc::variable(&environment, name)?).ok();
    if value(MARK_HOME) != Some(home_mark) {
        return None;
    }
    let task = value(MARK_TASK)?.parse().ok()?;
    let attempt = value(MARK_ATTEMPT)?.parse().ok()?;
    Some((task, attempt))
}

/// Whether a process carries the mark of this state folder.
pub(crate) fn is_marked(pid: Pid, home_mark: &str) -> bool {
    proc::variable(&environment_of(pid), MARK_HOME) == Some(home_mark.as_bytes())
}

/// Whether a process says that it is no attempt's.
pub(crate) fn is_service(pid: Pid) -> bool {
    proc::variable(&environment_of(pid), MARK_SERVICE).is_some()
}

/// Whether a process is just executing its program: then its environment cannot be
/// seen, nor anything else of it. (One that was started with an empty environment
/// has a command line.)
pub(crate) fn is_executing(pid: Pid) -> bool {
    let entry = ProcEntry::of(number(pid));
    let is_empty = |read: io::Result<Vec<u8>>| read.is_ok_and(|bytes| bytes.is_empty());
    is_empty(entry.environment())
        && is_empty(entry.command_line())
        && entry.stat().is_ok_and(|stat| !stat.has_ended())
}

/// Signals a process that left its attempt's group, and the group it leads now.
pub(crate) fn signal_straggler(pid: Pid, signal: Signal) {
    // Gone already is as good as signalled.
    let _ = rustix::process::kill_process(pid, signal);
    if proc::group_of(pid) == Some(pid) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// All processes that belong to an attempt by their mark, whoever started them,
/// each with its handle.
pub(crate) fn find_marked(
    task: TaskId,
    attempt: u32,
    home_mark: &str,
) -> impl Iterator<Item = (Pid, OwnedFd)> {
    find(move |pid| marked_attempt(pid, home_mark) == Some((task, attempt)))
}

/// Handles of the processes that an attempt has by their mark, whoever started them.
pub fn processes_of_attempt(task: TaskId, attempt: u32, home_mark: &str) -> Vec<OwnedFd> {
    let found = find_marked(task, attempt, home_mark);
    found.map(|(_, handle)| handle).collect()
}

/// All processes in a process group, each with its handle.
pub(crate) fn find_in_group(group: Pid) -> impl Iterator<Item = (Pid, OwnedFd)> {
    find(move |pid| proc::group_of(pid) == Some(group))
}

fn find(is_wanted: impl Fn(Pid) -> bool) -> impl Iterator<Item = (Pid, OwnedFd)> {
    let me = rustix::process::getpid();
    let others = proc::pids().filter_map(to_pid).filter(move |&pid| pid != me);
    others.filter_map(move |pid| {
        // The handle first: whatever gets the number later is not meant.
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        is_wanted(pid).then_some((pid, handle))
    })
}

/// Ends what a run that died left behind. They are asked to end, and killed after
/// `grace`. Returns how many there were once they are all gone.
pub fn end_leftovers(of: RunProcesses<'_>, grace: Duration) -> usize {
    let mut found = 0;
    if !grace.is_zero() {
        let handles = signalled(of, Signal::TERM);
        let end = Instant::now() + grace;
        for handle in &handles {
            // One that is stopped would not see it.
            let _ = pidfd_send_signal(handle, Signal::CONT);
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut ended = [PollFd::new(handle, PollFlags::IN)];
            let has_ended = retry_on_intr(|| poll(&mut ended, Some(&left)));
            found += usize::from(has_ended == Ok(1));
        }
    }
    // Killing one may leave another it had just started: until none is found.
    loop {
        let handles = signalled(of, Signal::KILL);
        if handles.is_empty() {
            return found;
        }
        found += handles.len();
        for handle in handles {
            let mut ended = [PollFd::new(&handle, PollFlags::IN)];
            let _ = retry_on_intr(|| poll(&mut ended, None));
        }
    }
}

/// Signals what a run left behind, as far as we may; the handles of those.
fn signalled(of: RunProcesses<'_>, signal: Signal) -> Vec<OwnedFd> {
    let found = ProcessTable::read().of(of).into_iter().filter_map(|process| {
        let handle = pidfd_open(to_pid(process.pid)?, PidfdFlags::empty()).ok()?;
        // Whoever got the number meanwhile is not meant.
        (ProcessKey::of(process.pid) == Some(process)).then_some(handle)
    });
    found.filter(|handle| pidfd_send_signal(handle, signal).is_ok()).collect()
}
