//! Runs on one machine learn about each other without a daemon: what each of them holds of
//! which GPU, in a folder that all can see.
//!
//! ```text
//!  /dev/shm/packhorse              1777; the lock is on the folder itself
//!  ├── 1000-9f3c62d0a15be847       uid and a random number: only this user writes to it
//!  │   ├── 4711-86400              pid and start time: the lease of one process as JSON:
//!  │   │                           boot, user, run, what it holds, waits for, and runs
//!  │   └── 4712-86912.new          being written; renamed when it is complete
//!  └── 1001-07d1fe55c38a9b62
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
//!   or something that this process left running when it was killed. The latter is known by
//!   the mark in its environment, where we may see that, and by the pids and start times of
//!   the first process of each task, which are in the lease. All of them are processes of
//!   the user who owns the folder. Other leases are removed by whoever may do so, 50 ms after
//!   nothing was found: a child that has yet to execute its program has no mark.
//! - Nobody waits for ever, or is kept from other things: a lock that is not there within a
//!   moment rings a bell when it is. A process that does not get it because another one has
//!   kept it for three seconds goes on without it, and says so once.
//! - Whoever cannot be looked at, for want of descriptors or because there are too many, is
//!   not taken for somebody who holds nothing.
//! - A forged lease blocks at most what its owner could block anyway, by running something.
//!   Files are limited in size and number, and text in them has no control characters.
//! - While nothing changes, nothing happens: no polling, and no timer unless something could
//!   not be watched. A process is not woken by its own writes.
//!
//! - Nobody can take another user's place: what is in a user's folder was put there by that
//!   user, and the name of a folder cannot be guessed before it is there. A folder that has
//!   not changed is not read again, however much is in it.
//!
//! What it does not promise: the folder belongs to the first user who needed it, and the owner
//! of a folder can rename other users' folders in it. A process whose lease was removed puts
//! it back as soon as it notices. Where that is not good enough, root creates the folder (1777)
//! beforehand. Leases from another PID namespace, such as a container that shares the folder,
//! are ignored: nobody here can tell whether their processes are alive.
//!
//! It never decides who gets what, and knows devices only by their keys.

mod error;
mod folder;
mod folder_watch;
mod given_up;
mod lease;
mod lease_name;
mod leases;
mod lock;
mod other_leases;
mod process;

pub use error::LeaseError;
pub use folder::DEFAULT_FOLDER;
pub use lease::{Lease, LeaseOwner};
pub use leases::{FolderTurn, Leases, LeasesGuard, read_leases};
pub use packhorse_model::{Claim, LeaseContent, LeasedDevice};
