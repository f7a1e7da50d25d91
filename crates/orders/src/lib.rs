//! What a job on a shared Slurm node was given, and how its processes are held to it.
//!
//! ```text
//! prolog (root, before the job)       SPANK plugin (root, in each step)
//!   chooses GPUs                        reads the job's orders
//!   writes the job's orders    ──▶      waits until its MPS server runs
//!                                       allows and denies devices to each task
//!                                       sets variables in each task's environment
//! ```
//!
//! [`JobOrders`] are a small text file per job, in a folder that only root can open. The
//! plugin carries them out as they are and decides nothing. [`confine`] is the part of
//! that which concerns devices: cgroups of version 1 and of version 2. What runs for a job
//! outside of Slurm's cgroups, its MPS server, is in a [`ServerCgroup`] of our own.
//!
//! This crate is loaded into Slurm's own processes. It has no dependency but `libc`,
//! starts no thread, keeps no state and writes nothing but cgroup files.

mod asked;
mod bpf;
mod confine;
mod orders;
mod server_cgroup;

pub use asked::asks_for_mps;
pub use confine::{Confinement, confine, confine_step, is_confinable};
pub use orders::{DeviceRule, GpuPart, JobOrders, OrdersError, VISIBLE};
pub use server_cgroup::{ServerCgroup, join};

/// Where the node's state is, unless the configuration says otherwise.
pub const STATE_FOLDER: &str = "/run/packhorse";

/// Where Slurm's `scontrol` is, unless the configuration says otherwise.
pub const SCONTROL: &str = "/usr/bin/scontrol";

/// The folder of the jobs' orders in it.
pub const JOBS: &str = "jobs";

/// How many seconds a step waits for its MPS server, unless `plugstack.conf` says otherwise.
pub const SERVER_SECONDS: u32 = 120;
