//! MPS: several programs compute on one GPU at the same time.
//!
//! A control daemon, one for each shared GPU, starts a server when its first client
//! comes. CUDA finds the daemon by a pipe folder in the client's environment
//! ([`client_environment`]). NVIDIA's program `nvidia-cuda-mps-control` starts the
//! daemon and talks to it, one short process for each command:
//!
//! ```text
//!  Daemon::start   nvidia-cuda-mps-control -d ──▶ daemon ──▶ server ◀── clients
//!  Daemon::status  get_server_list, get_server_status, get_client_list
//!  Daemon::quit    quit -t SECONDS
//! ```
//!
//! A daemon that somebody else runs ([`Daemon::theirs`]) is used but not stopped. One of
//! ours may be used by several runs of one user: see [`SharedDaemon`].
//!
//! # Threads and processes
//!
//! Every command has a time limit, so that a daemon that hangs costs seconds and not the
//! run. It still blocks the calling thread: call it from a thread of its own. All types
//! here are `Send` and `Sync`, and there is no global state.
//!
//! The process may be one that reaps every child, also ours, and that inherits the
//! daemon, which detaches itself. So:
//!
//! - the end of a command is noticed through a pidfd, whoever reaps the process. If
//!   somebody else does, its exit status is lost to us; then only its output counts, and
//!   whether the daemon answers;
//! - its input and output are files in memory: nobody has to read while it runs, and a
//!   daemon that keeps them open never writes to a closed pipe;
//! - it gets a session of its own, no signal is blocked in it, and none is ignored that
//!   we may ignore for ourselves;
//! - every process has [`SERVICE_VARIABLE`] in its environment, also the daemon and its
//!   servers. Whoever kills the processes that an attempt left behind must spare those.

mod client;
mod daemon;
mod error;
mod release;
mod shared;
mod status;

pub use client::{client_environment, reports_server_failure};
pub use daemon::{Daemon, Ownership};
pub use error::MpsError;
pub use release::release_clients;
pub use shared::{DaemonFolder, DaemonLock, SharedDaemon};
pub use status::{DaemonStatus, MpsServer};

/// The variable by which CUDA finds the daemon.
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// All variables of [`client_environment`].
pub const CLIENT_VARIABLES: [&str; 3] = [PIPE_VARIABLE, THREADS_VARIABLE, MEMORY_VARIABLE];

/// The variable that limits a client's threads.
const THREADS_VARIABLE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// The variable that limits a client's memory.
const MEMORY_VARIABLE: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// The variable that marks the daemon, its servers and our commands to it.
pub const SERVICE_VARIABLE: &str = "PACKHORSE_SERVICE";

/// The value of [`SERVICE_VARIABLE`].
pub const SERVICE: &str = "mps";
