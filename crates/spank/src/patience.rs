//! Things that may take long, each with a limit that the kernel keeps.
//!
//! They are done in a process that the kernel ends by an alarm: slurmstepd's own signals and
//! threads are left alone.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many seconds Slurm may take to answer.
const ANSWER_SECONDS: u32 = 10;

/// What one of Slurm's commands says, if it succeeds in time.
#[expect(clippy::disallowed_methods, reason = "a real fork is no loss where a step looks wrong")]
pub fn ask(program: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(words);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    // SAFETY: what is called between fork and exec is safe there.
    unsafe {
        command.pre_exec(|| {
            end_after(ANSWER_SECONDS);
            Ok(())
        })
    };
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// Waits until whoever has locked the file is done, but only for so long. Says whether they
/// are. The file is locked while a server is started or ended; only root can open it.
pub fn wait_for(lock: &Path, seconds: u32) -> bool {
    let Ok(lock) = OpenOptions::new().read(true).open(lock) else {
        return true;
    };
    let descriptor = lock.as_raw_fd();
    // SAFETY: the child calls nothing that is not safe after a fork, and ends.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return false;
    }
    if child == 0 {
        end_after(seconds);
        // SAFETY: the descriptor is open.
        while unsafe { libc::flock(descriptor, libc::LOCK_SH) } != 0 {}
        // SAFETY: it does not return.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    loop {
        // SAFETY: the status lives until the call returns.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return status == 0;
        }
    }
}

/// Lets the kernel end this process after so many seconds, whatever Slurm does with signals.
fn end_after(seconds: u32) {
    // SAFETY: the set is initialised before it is used, and all calls are safe after a fork.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
        libc::alarm(seconds);
    }
}
