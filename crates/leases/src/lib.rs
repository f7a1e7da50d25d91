//! Runs on one machine learn about each other without a daemon: what each of them holds of
//! which GPU, in a folder that all can see.
//!
//! ```text
//!  /dev/shm/packhorse         1777; the lock is on the folder itself
//!  ├── 1000-4711-86400        uid, pid and start time: the lease of one process
//!  ├── 1000-4712-86912        as JSON: boot, user, run, command, devices
//!  └── 1001-4713-87001.new    being written; renamed when it is complete
//!
//!      lock ──▶ others() ──▶ decide ──▶ publish() ──▶ unlock
//!        ▲
//!        └── as_fd() is readable: somebody published, withdrew or died
//! ```
//!
//! Promises:
//!
//! - Two processes that decide under the lock never promise the same thing twice: each sees
//!   everything that was published before it got the lock.
//! - A lease counts only while the process in its name is alive, by pid, start time and boot,
//!   and only if its file belongs to that process's user. Leases of dead processes are
//!   removed by whoever may do so.
//! - Nobody waits for ever. A process that does not get the lock within a second goes on
//!   without it, and says so once.
//! - A forged lease blocks at most what its owner could block anyway, by running something.
//!   Files are limited in size and number, and text in them has no control characters.
//! - While nothing changes, nothing happens: no timer, no polling. A process is not woken by
//!   its own writes.
//!
//! What it does not promise: the folder belongs to the first user who needed it, and the owner
//! of a folder can remove other users' files in it. A process whose lease was removed puts it
//! back as soon as it notices. Where that is not good enough, root creates the folder (1777)
//! beforehand. Leases from another PID namespace, such as a container that shares the folder,
//! are ignored: nobody here can tell whether their processes are alive.
//!
//! It never decides who gets what, and knows devices only by their keys.

mod error;
mod folder;
mod folder_watch;
mod lease;
mod lease_name;
mod leases;
mod lock;
mod other_leases;
mod process;

pub use error::LeaseError;
pub use folder::DEFAULT_FOLDER;
pub use lease::{Lease, LeaseOwner};
pub use leases::{Leases, LeasesGuard, read_leases};
pub use packhorse_model::LeasedDevice;
