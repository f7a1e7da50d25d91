//! Limits of the shell (`ulimit`) under which nothing works: said before they end us.

use std::io;

use packhorse_proc::explain_start;
use packhorse_session::ignore_file_size_signal;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Below this the arguments cannot be read.
const LEAST_STACK: u64 = 1 << 20;

/// Below this there is no room for the database.
const LEAST_FILE: u64 = 1 << 20;

/// Says which limit is in the way, if one is, and what to do.
pub fn check() -> Result<(), String> {
    // A file that may not grow is an error of one write, which is said.
    ignore_file_size_signal();
    let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    let stack = limit(Resource::Stack);
    if stack < LEAST_STACK {
        return Err(format!(
            "the limit on the stack is {} KiB, and {} KiB are needed\n\
             hint: `ulimit -s 8192` raises it; a hard limit is raised where it was set",
            stack >> 10,
            LEAST_STACK >> 10
        ));
    }
    let file = limit(Resource::Fsize);
    if file < LEAST_FILE {
        return Err(format!(
            "the limit on the size of files is {} KiB, and {} KiB are needed\n\
             hint: `ulimit -f unlimited` raises it; a hard limit is raised where it was set",
            file >> 10,
            LEAST_FILE >> 10
        ));
    }
    if limit(Resource::Nproc) < u64::MAX
        && let Err(error) = try_thread()
    {
        return Err(format!("cannot start a thread: {}", explain_start(error)));
    }
    Ok(())
}

/// Starts a thread that does nothing: whether there is room for one is not to be known
/// in another way.
fn try_thread() -> io::Result<()> {
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(|| {})?;
    // It cannot panic.
    let _ = thread.join();
    Ok(())
}

/// What is behind an error of a write that the limit on the size of files has refused.
pub fn hint(error: &anyhow::Error) -> Option<String> {
    let too_large = Errno::FBIG.raw_os_error();
    let is_refused = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.raw_os_error() == Some(too_large))
    };
    let limit = getrlimit(Resource::Fsize).current?;
    error.chain().any(is_refused).then(|| {
        format!("\nhint: the limit on the size of files is {} KiB (`ulimit -f`)", limit >> 10)
    })
}
