//! Runs on one machine that know of each other without a daemon: what each of
//! them holds of which GPU, in a folder that all can see.
//!
//! ```text
//!  /dev/shm/packhorse         1777, and the lock is on the folder itself
//!  ├── 1000-4711-86400        uid, pid and start time: a process's one lease
//!  ├── 1000-4712-86912        as JSON: boot, user, run, command, devices
//!  └── 1001-4713-87001.new    being written; renamed when it is whole
//!
//!      lock ──▶ others() ──▶ decide ──▶ publish() ──▶ unlock
//!        ▲
//!        └── as_fd() is readable: somebody published, withdrew or died
//! ```
//!
//! Promises:
//!
//! - Two processes that decide under the lock never promise the same twice:
//!   whatever was published before the lock was had is seen.
//! - A lease counts only while the process lives that its name tells, by pid,
//!   start time and boot, and only if its file belongs to that process's user.
//!   What is left of dead ones is removed by whoever may.
//! - Nobody waits for ever. Whoever does not get the lock within a second goes
//!   on without it, and says so once.
//! - A made-up lease blocks at most what its owner could block anyway, by
//!   running something. Files are bounded in size and number, text in them has
//!   no control characters, sums saturate.
//! - At rest nothing happens: no timer, no polling. A process's own writes do
//!   not wake it.
//!
//! What it does not promise: the folder belongs to whoever needed it first, and
//! the owner of a folder can remove what others put there. A process whose
//! lease was taken away puts it back as soon as it notices. Where that is not
//! good enough, root makes the folder (1777) before anybody else does. Leases
//! from another PID namespace, as of a container that shares the folder, are
//! ignored, since nobody here can tell whether their processes live.
//!
//! It never decides who gets what, and knows nothing of devices but their keys.

mod error;
mod folder;
mod lease;
mod leases;
mod lock;
mod name;
mod others;
mod process;
mod watch;

pub use error::Error;
pub use folder::folder;
pub use lease::{About, Held, Lease, total};
pub use leases::{Guard, Leases, holders};
