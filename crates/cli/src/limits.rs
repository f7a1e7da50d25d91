//! Limits of the shell (`ulimit`) under which nothing works: said before they end us.

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
