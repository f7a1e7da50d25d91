//! Processes that run side by side: each in a process group of its own, with a time limit, and
//! with its output kept until it has ended.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group};
use rustix::process::{pidfd_open, waitid};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// The running process groups. No job starts while this is locked.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// How long a job may take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// From then on it is called slow.
    pub slow: Duration,
    /// Then it is ended.
    pub end: Duration,
}

/// A job that has ended.
pub struct Done {
    pub status: ExitStatus,
    /// Whether it was ended since it took too long.
    pub took_too_long: bool,
    pub took: Duration,
    /// What it wrote to both of its outputs, in that order.
    pub output: Vec<u8>,
}

impl Done {
    pub fn is_success(&self) -> bool {
        self.status.success() && !self.took_too_long
    }
}

/// Runs a command to its end, or until it has taken too long. Nothing of its group is left
/// after it. `slow` is called when it becomes slow.
pub fn run(command: &mut Command, limits: Limits, slow: impl FnOnce()) -> io::Result<Done> {
    let mut output = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    command.process_group(0);
    let start = Instant::now();
    let mut child = {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        groups.insert(child.id().cast_signed());
        child
    };
    let group = Pid::from_child(&child);
    let process = pidfd_open(group, PidfdFlags::empty())?;
    let mut took_too_long = false;
    if !ends_within(&process, limits.slow)? {
        slow();
        if !ends_within(&process, limits.end.saturating_sub(start.elapsed()))? {
            took_too_long = true;
            let _ = kill_process_group(group, Signal::TERM);
            ends_within(&process, GRACE)?;
        }
    }
    // Until it is reaped, no other process can have its id.
    let _ = kill_process_group(group, Signal::KILL);
    waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner).remove(&group.as_raw_nonzero().get());
    let status = child.wait()?;
    let took = start.elapsed();
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    Ok(Done { status, took_too_long, took, output: text })
}

fn ends_within(process: &OwnedFd, time: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The signals by which people and programs end us.
const ENDINGS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Where a handler writes which signal has come.
static ARRIVED: AtomicI32 = AtomicI32::new(-1);

/// Gives every child the signals' defaults, and has a signal that ends us end what runs, too:
/// jobs are in groups of their own, which Ctrl-C does not reach. For the first thread, before
/// there are others.
///
/// A shell without job control starts what is in the background with SIGINT ignored, and a test
/// that interrupts something would wait for ever. We go on ignoring it, by a handler that does
/// nothing: children do not inherit handlers.
pub fn take_signals() -> io::Result<()> {
    let (arrivals, writer) = io::pipe()?;
    ARRIVED.store(writer.into_raw_fd(), Ordering::Relaxed);
    // SAFETY: the set and the action are initialised before they are used, and the handlers
    // only do what a handler may. SIGKILL and SIGSTOP cannot be set, which changes nothing.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        // Rust itself has SIGPIPE ignored here, and sets it back in children.
        for signal in (1..=libc::SIGSYS).filter(|signal| *signal != libc::SIGPIPE) {
            let before = libc::signal(signal, libc::SIG_DFL);
            if ENDINGS.contains(&signal) {
                let handler = if before == libc::SIG_IGN { ignore } else { tell };
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as extern "C" fn(i32) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
    std::thread::spawn(move || {
        let mut signal = [0];
        if (&arrivals).read_exact(&mut signal).is_ok() {
            end_all();
            std::process::exit(128 + i32::from(signal[0]));
        }
    });
    Ok(())
}

extern "C" fn ignore(_: i32) {}

extern "C" fn tell(signal: i32) {
    let signal = signal.to_le_bytes();
    // SAFETY: one byte is there to be written.
    unsafe { libc::write(ARRIVED.load(Ordering::Relaxed), signal.as_ptr().cast(), 1) };
}

/// Ends what runs. Nothing is started any more.
fn end_all() {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let processes: Vec<Pid> = groups.iter().filter_map(|group| Pid::from_raw(*group)).collect();
    std::mem::forget(groups);
    for group in &processes {
        let _ = kill_process_group(*group, Signal::TERM);
    }
    let deadline = Instant::now() + GRACE;
    for group in &processes {
        if let Ok(process) = pidfd_open(*group, PidfdFlags::empty()) {
            let _ = ends_within(&process, deadline.saturating_duration_since(Instant::now()));
        }
        let _ = kill_process_group(*group, Signal::KILL);
    }
}

/// Prints what a test has written in one piece, since others print, too.
#[expect(clippy::disallowed_methods, reason = "tests of this project are not hostile")]
pub fn show_output(bytes: &[u8]) {
    let _ = io::stdout().lock().write_all(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limits: Limits) -> (Done, bool) {
        let mut slow = false;
        let mut command = Command::new("/bin/sh");
        let done = run(command.args(["-c", script]), limits, || slow = true).unwrap();
        (done, slow)
    }

    /// A process with this number ends, or has ended.
    fn has_ended(number: &[u8]) {
        let number = String::from_utf8(number.to_vec()).unwrap();
        let process = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
        let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return };
        assert!(ends_within(&process, LONG).unwrap(), "{number} is left");
    }

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn what_a_job_writes_is_kept_in_order() {
        let (done, slow) =
            shell("echo one; echo two >&2; echo three", Limits { slow: LONG, end: LONG });
        assert!(done.is_success() && !slow);
        assert_eq!(done.output, b"one\ntwo\nthree\n");
    }

    #[test]
    fn a_job_that_takes_too_long_is_ended_with_all_it_started() {
        let script = "trap '' TERM; (trap '' TERM; exec sleep 1000) & echo $!; wait";
        let (done, slow) = shell(script, Limits { slow: SHORT, end: SHORT });
        assert!(done.took_too_long && slow && !done.is_success());
        has_ended(&done.output);
    }

    #[test]
    fn what_a_job_leaves_in_its_group_ends_with_it() {
        let (done, _) = shell("sleep 1000 & echo $!", Limits { slow: LONG, end: LONG });
        has_ended(&done.output);
    }
}
