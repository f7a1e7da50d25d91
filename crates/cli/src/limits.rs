//! Limits of the shell (`ulimit`) under which nothing works: said before they end us.

use std::io;

use packhorse_proc::explain_start;
use packhorse_session::has_met_file_size_limit;
use rustix::process::{Resource, getrlimit};

/// Below this the arguments cannot be read.
const LEAST_STACK: u64 = 1 << 20;

/// Says which limit is in the way, if one is, and what to do.
pub fn check() -> Result<(), String> {
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

/// The hint for an error after the limit on the size of files has refused a write.
pub fn file_size_hint() -> Option<String> {
    let limit = getrlimit(Resource::Fsize).current.filter(|_| has_met_file_size_limit())?;
    Some(format!(
        "\nhint: the limit on the size of files is {} KiB: `ulimit -f unlimited` raises it",
        limit >> 10
    ))
}
