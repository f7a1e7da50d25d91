//! What the system tells of processes: the one reader of `/proc`, and whether
//! a process has ended; and files that are read as a whole.
//!
//! A process may end, and its number may be given to another, between any two
//! looks: whoever must be sure holds a pidfd, or compares start times.
//!
//! What it never does: signal, start or reap a process.

mod entry;
mod leftovers;
mod lock_error;
mod pidfd;
mod process_limit;
mod whole_file;

pub use entry::{ProcEntry, ProcStat, ancestry, boot_id, is_blocked_elsewhere, pids, variable};
pub use leftovers::{MARK_HOME, MARK_RUN, ProcessKey, ProcessTable, RunProcesses};
pub use lock_error::lock_error;
pub use pidfd::{group_of, has_ended, is_alive, is_readable};
pub use process_limit::explain_start;
pub use whole_file::{
    LARGEST_SETTINGS, LARGEST_TABLE, open_regular, read_at_once, read_regular, read_to_limit,
    read_whole, refuse_devices, utf8,
};
