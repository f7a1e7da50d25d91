//! Who descends from us.
//!
//! We are the *subreaper* of everything we start: a process whose parent died
//! becomes our child, however many times it forked and whatever session it
//! opened. So every process that outlives its attempt ends up in our list of
//! children, which the kernel gives in one read. Its process group says which
//! attempt it came from; or the `PACKHORSE_TASK` in its environment; or the
//! attempt's pipes among its descriptors; or, if it has shed all of these, that
//! there is no other attempt.

use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::process::{Pid, Signal};

/// The variables that mark every process of an attempt.
pub(crate) const MARK_TASK: &str = "PACKHORSE_TASK";
/// The attempt of the task, as [`MARK_TASK`].
pub(crate) const MARK_ATTEMPT: &str = "PACKHORSE_ATTEMPT";

pub(crate) struct Family {
    /// The kernel's list of this thread's children, kept open.
    list: Option<fs_err::File>,
    buffer: Vec<u8>,
}

const PAGE: usize = 4096;

impl Family {
    /// Makes this process the subreaper, and its calling thread the one whose
    /// children are listed.
    pub(crate) fn new() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let list = fs_err::File::open(format!("/proc/self/task/{thread}/children")).ok();
        Ok(Self {
            list,
            buffer: vec![0; 2 * PAGE],
        })
    }

    /// All children of this process, dead ones included that nobody waited for.
    pub(crate) fn children(&mut self, children: &mut Vec<Pid>) {
        children.clear();
        let Some(list) = &self.list else {
            // A kernel without the list (CONFIG_PROC_CHILDREN): the long way.
            return scan(children);
        };
        // However long the buffer, the kernel gives a page at a time, and goes on
        // behind the last process it gave. What fills less than half a page is all.
        let mut length = 0;
        while let Ok(read) = list
            .file()
            .read_at(&mut self.buffer[length..], length as u64)
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
                .filter_map(parse_pid),
        );
    }
}

fn parse_pid(digits: &[u8]) -> Option<Pid> {
    std::str::from_utf8(digits)
        .ok()?
        .parse()
        .ok()
        .and_then(Pid::from_raw)
}

/// Looks through all processes for those whose parent we are.
fn scan(children: &mut Vec<Pid>) {
    let me = rustix::process::getpid();
    each_process(|pid| {
        if parent(pid) == Some(me) {
            children.push(pid);
        }
    });
}

/// The parent of a process, if both are there.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs_err::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name, in brackets, may hold anything; the parent is the second field
    // behind it.
    let behind = stat.iter().rposition(|&byte| byte == b')')?;
    parse_pid(stat[behind + 1..].split(|&byte| byte == b' ').nth(2)?)
}

/// A process and its forebears, the nearest first. Empty if it is gone.
pub fn ancestry(pid: u32) -> impl Iterator<Item = u32> {
    let first = i32::try_from(pid).ok().and_then(Pid::from_raw);
    std::iter::successors(first, |&pid| parent(pid))
        .map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
}

fn each_process(mut act: impl FnMut(Pid)) {
    let Ok(folders) = fs_err::read_dir("/proc") else {
        return;
    };
    for folder in folders.flatten() {
        if let Some(pid) = folder
            .file_name()
            .to_str()
            .and_then(|name| parse_pid(name.as_bytes()))
        {
            act(pid);
        }
    }
}

/// Whether the process carries all of these variables.
fn is_marked(pid: Pid, marks: &[Vec<u8>]) -> bool {
    let environment =
        fs_err::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    let mut missing = marks.len();
    for variable in environment.split(|&byte| byte == 0) {
        if marks.iter().any(|mark| mark == variable) {
            missing -= 1;
        }
    }
    missing == 0
}

/// Whether the process came from this attempt, by its group or by its mark.
pub(crate) fn belongs(pid: Pid, group: Pid, marks: &[Vec<u8>]) -> bool {
    rustix::process::getpgid(Some(pid)) == Ok(group) || is_marked(pid, marks)
}

/// Signals a process that left its attempt's group, and the group it leads now.
pub(crate) fn signal_straggler(pid: Pid, signal: Signal) {
    // Gone already is as good as signalled.
    let _ = rustix::process::kill_process(pid, signal);
    if rustix::process::getpgid(Some(pid)) == Ok(pid) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// Kills what a run that died left behind: processes of this user which carry
/// its mark. Returns how many there were once they are all gone.
pub fn end_leftovers_of_run(home_mark: &str, run: &str) -> usize {
    let marks = [
        format!("{HOME_MARK}={home_mark}").into_bytes(),
        format!("PACKHORSE_RUN={run}").into_bytes(),
    ];
    let me = rustix::process::getpid();
    let mut found = 0;
    // Killing one may leave another it had just started: until none is found.
    loop {
        let mut handles = Vec::new();
        each_process(|pid| {
            if pid == me {
                return;
            }
            // The descriptor first: whatever gets the number later is not meant.
            let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            else {
                return;
            };
            if is_marked(pid, &marks)
                && rustix::process::pidfd_send_signal(&handle, Signal::KILL).is_ok()
            {
                handles.push(handle);
            }
        });
        if handles.is_empty() {
            return found;
        }
        found += handles.len();
        for handle in handles {
            let mut poll = [rustix::event::PollFd::new(
                &handle,
                rustix::event::PollFlags::IN,
            )];
            while rustix::event::poll(&mut poll, None) == Err(rustix::io::Errno::INTR) {}
        }
    }
}

/// Tells the state folders of several people or tests apart, so that run 3 of
/// one is never taken for run 3 of another.
pub(crate) const HOME_MARK: &str = "PACKHORSE_HOME_ID";
