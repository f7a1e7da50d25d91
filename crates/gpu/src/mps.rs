//! MPS: several programs compute on one GPU at the same time.
//!
//! A control daemon, one for each GPU that is shared, starts a server when its
//! first client comes; CUDA finds the daemon by a pipe folder in the client's
//! environment ([`Client::environment`]). The daemon is started and talked to
//! with NVIDIA's program `nvidia-cuda-mps-control`, one short process for each
//! command:
//!
//! ```text
//!  Daemon::start   nvidia-cuda-mps-control -d ──▶ daemon ──▶ server ◀── clients
//!  Daemon::status  get_server_list, get_server_status, get_client_list
//!  Daemon::quit    quit -t SECONDS
//! ```
//!
//! A daemon that somebody else runs ([`Daemon::theirs`]) is used and not
//! stopped.
//!
//! # Inside a run
//!
//! A run's supervisor collects every child that dies, also ours, and inherits
//! the daemon, which detaches itself. So:
//!
//! - the end of a command is seen through a pidfd, which tells it no matter who
//!   collects the process. If somebody else did, the exit status is lost to us;
//!   then its output alone counts, and whether the daemon answers;
//! - its input and output are files in memory: nobody has to read while it runs,
//!   and a daemon that keeps them open writes to nobody's closed pipe;
//! - it gets a session of its own and no blocked or ignored signals, though a
//!   run blocks most of them;
//! - every process carries [`SERVICE_VARIABLE`] in its environment, the daemon
//!   and its servers too. Who ends the processes that an attempt left behind
//!   must pass over those that carry it.
//!
//! Every command has a time limit, so that a daemon that hangs costs seconds and
//! not the run. They still block the calling thread meanwhile.

mod client;
mod daemon;
mod error;
mod run;
mod status;

pub use client::{Client, is_collateral};
pub use daemon::{Daemon, Ownership};
pub use error::MpsError;
pub use status::{Server, ServerState, Status};

/// The variable by which CUDA finds the daemon.
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// The variables that a client is told by: see [`Client::environment`].
pub const CLIENT_VARIABLES: [&str; 3] = [PIPE_VARIABLE, THREADS_VARIABLE, MEMORY_VARIABLE];

/// The variable that limits the threads of a client.
const THREADS_VARIABLE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// The variable that limits the memory of a client.
const MEMORY_VARIABLE: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// The variable that marks the daemon, its servers and our commands to it.
pub const SERVICE_VARIABLE: &str = "PACKHORSE_SERVICE";

/// What [`SERVICE_VARIABLE`] says.
pub const SERVICE: &str = "mps";
