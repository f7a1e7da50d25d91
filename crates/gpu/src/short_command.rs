//! Runs a short process under a time limit, in a program that may reap every child.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

/// How long a killed process may take to end.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// What a process that has ended leaves behind.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its standard output, followed by its standard error.
    pub output: String,
    /// Its exit status. `None`: it was killed by a signal, or somebody else has
    /// reaped it.
    pub status: Option<i32>,
}

/// Why a process has not ended by itself.
#[derive(Debug)]
pub enum CommandError {
    /// It could not be started.
    Start(io::Error),
    /// It took too long and was killed.
    TimedOut,
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Start(error)
    }
}

/// Runs a program with our environment, these variables and this input.
pub fn run(
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &OsStr)],
    input: &str,
    limit: Duration,
) -> Result<CommandOutput, CommandError> {
    let streams = files(input)?;
    let pid = spawn(program, arguments, variables, &streams)?;
    let status = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            if !wait(&process, limit) {
                let _ = pidfd_send_signal(&process, Signal::KILL);
                wait(&process, AFTER_KILL);
                reap(&process);
                return Err(CommandError::TimedOut);
            }
            reap(&process)
        }
        // Somebody else has reaped it already.
        Err(Errno::SRCH) => None,
        Err(error) => return Err(CommandError::Start(error.into())),
    };
    let [_, stdout, stderr] = streams;
    let output = text(&stdout)? + &text(&stderr)?;
    Ok(CommandOutput { output, status })
}

/// Standard input, output and error.
fn files(input: &str) -> io::Result<[File; 3]> {
    let file = || memfd_create("mps", MemfdFlags::CLOEXEC).map(File::from);
    let mut stdin = file()?;
    stdin.write_all(input.as_bytes())?;
    stdin.rewind()?;
    Ok([stdin, file()?, file()?])
}

/// What was written. Reads from the beginning whatever the position is, as a daemon
/// may share it.
fn text(file: &File) -> io::Result<String> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits until the process has ended. False: it took too long.
pub fn wait(process: &OwnedFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(1..) => return true,
            Ok(0) | Err(_) => return false,
        }
    }
}

/// Reaps the process, if nobody else has, and returns its exit status.
fn reap(process: &OwnedFd) -> Option<i32> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let ended = waitid(WaitId::PidFd(process.as_fd()), options).ok()??;
    ended.exit_status()
}

/// Starts the program in a session of its own, with no signal blocked, and none ignored
/// that we may ignore for ourselves.
/// `std::process::Command` can do that only with a `pre_exec` hook, and then panics
/// if the program cannot be started and somebody else reaps the child.
fn spawn(
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &OsStr)],
    streams: &[File; 3],
) -> io::Result<Pid> {
    let mut words = vec![CString::new(program.as_os_str().as_bytes())?];
    for argument in arguments {
        words.push(CString::new(*argument)?);
    }
    let environment = environment(variables)?;
    let words = pointers(&words);
    let environment = pointers(&environment);

    let plan = SpawnPlan::new(streams)?;
    let mut pid = 0;
    // SAFETY: all pointers are to live locals; both lists end in a null and their
    // texts are those of `words` and `environment` above; the called function changes
    // none of them.
    let code = unsafe {
        libc::posix_spawnp(
            &raw mut pid,
            words[0],
            &raw const plan.actions,
            &raw const plan.attributes,
            words.as_ptr(),
            environment.as_ptr(),
        )
    };
    checked(code)?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("the process has no number"))
}

/// Our environment, with these variables replaced or added.
fn environment(variables: &[(&str, &OsStr)]) -> io::Result<Vec<CString>> {
    let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    all.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
    let all = all.into_iter().map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        Ok(CString::new(variable.into_vec())?)
    });
    all.collect()
}

fn pointers(texts: &[CString]) -> Vec<*mut libc::c_char> {
    let texts = texts.iter().map(|text| text.as_ptr().cast_mut());
    texts.chain([std::ptr::null_mut()]).collect()
}

fn checked(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// How to start a process, as the C library wants it.
struct SpawnPlan {
    attributes: libc::posix_spawnattr_t,
    actions: libc::posix_spawn_file_actions_t,
}

impl SpawnPlan {
    fn new(streams: &[File; 3]) -> io::Result<Self> {
        let flags = libc::POSIX_SPAWN_SETSIGMASK
            | libc::POSIX_SPAWN_SETSIGDEF
            | i32::from(libc::POSIX_SPAWN_SETSID);
        let flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
        let mut attributes = MaybeUninit::uninit();
        let mut actions = MaybeUninit::uninit();
        // SAFETY: each call initialises what it is given.
        let mut plan = unsafe {
            checked(libc::posix_spawnattr_init(attributes.as_mut_ptr()))?;
            checked(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            Self { attributes: attributes.assume_init(), actions: actions.assume_init() }
        };
        let mut none = MaybeUninit::uninit();
        let mut usual = MaybeUninit::uninit();
        let (attributes, actions) = (&raw mut plan.attributes, &raw mut plan.actions);
        // SAFETY: the sets are initialised before they are used, all pointers are to
        // live locals or to the initialised plan, and the descriptors stay open until
        // the process has been started.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigemptyset(usual.as_mut_ptr());
            for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGCHLD] {
                libc::sigaddset(usual.as_mut_ptr(), signal);
            }
            checked(libc::posix_spawnattr_setsigmask(attributes, none.as_ptr()))?;
            checked(libc::posix_spawnattr_setsigdefault(attributes, usual.as_ptr()))?;
            checked(libc::posix_spawnattr_setflags(attributes, flags))?;
            for (target, stream) in (0..).zip(streams) {
                let stream = stream.as_raw_fd();
                checked(libc::posix_spawn_file_actions_adddup2(actions, stream, target))?;
            }
        }
        Ok(plan)
    }
}

impl Drop for SpawnPlan {
    fn drop(&mut self) {
        // SAFETY: initialised, and not used again.
        unsafe {
            libc::posix_spawnattr_destroy(&raw mut self.attributes);
            libc::posix_spawn_file_actions_destroy(&raw mut self.actions);
        }
    }
}
