//! The limit: the C library's `posix_spawn` and `waitpid` with a fixed number of processes
//! at a time, and nothing else. The benchmarks divide by its speed.
//!
//! It is a yardstick, not an upper bound: packhorse itself starts processes by a cheaper
//! `clone`, so a ratio above 1 is possible, and one near 1 does not mean that our own
//! bookkeeping costs nothing.

use std::ffi::{CString, OsString, c_char, c_int};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::ptr;

use anyhow::{Context, Result, bail};

#[derive(clap::Args)]
pub struct LimitArgs {
    /// How many run at a time
    #[arg(long)]
    slots: NonZeroUsize,
    /// How many to run in all
    #[arg(long)]
    count: usize,
    /// The program (by its path: the PATH is not searched) and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// Runs the command `count` times, `slots` at a time.
pub fn run(args: &LimitArgs) -> Result<ExitCode> {
    let words = args.command.iter().map(|word| CString::new(word.as_bytes()));
    let words: Vec<CString> = words.collect::<Result<_, _>>()?;
    let pointers = words.iter().map(|word| word.as_ptr().cast_mut());
    let command: Vec<*mut c_char> = pointers.chain([ptr::null_mut()]).collect();

    let mut all_succeeded = true;
    for started in 0..args.count {
        if started >= args.slots.get() {
            all_succeeded &= wait()?;
        }
        spawn(&command).with_context(|| format!("cannot start {}", args.command[0].display()))?;
    }
    for _ in 0..args.count.min(args.slots.get()) {
        all_succeeded &= wait()?;
    }
    Ok(ExitCode::from(u8::from(!all_succeeded)))
}

fn spawn(command: &[*mut c_char]) -> io::Result<()> {
    let mut pid = 0;
    // SAFETY: `command` holds pointers to strings that outlive the call and ends
    // in a null pointer; `environ` is the C library's own, and no other thread
    // exists that could change it.
    let error = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            command[0],
            ptr::null(),
            ptr::null(),
            command.as_ptr(),
            environ,
        )
    };
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for any child. Returns whether it succeeded.
fn wait() -> Result<bool> {
    let mut status: c_int = 0;
    // SAFETY: `status` is ours to write to for the length of the call.
    if unsafe { libc::waitpid(-1, &raw mut status, 0) } < 0 {
        bail!("cannot wait for a child: {}", io::Error::last_os_error());
    }
    Ok(status == 0)
}
