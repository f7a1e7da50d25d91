//! A Slurm node whose GPUs are shared: which GPU each job gets, and what it has of it.
//!
//! ```text
//! slurmd ─ prolog ─┬ facts      what Slurm says of the job, and `queue` where that is too little
//!                  ├ rules      whether it may
//!                  ├ choose     which GPUs, by the scheduler's own ledger, under one lock
//!                  ├ orders     what the plugin does in each of its tasks
//!                  └ servers    one MPS server per GPU and user
//!        └ epilog ── takes all of it back
//! ```
//!
//! What it promises:
//! - A job that did not ask for `mps` is never held up: nothing is even read for it.
//! - A GPU is never given more than it has, by however many prologs at once.
//! - State that is damaged, from an earlier boot, or of a job that Slurm does not know any
//!   more is put right by the next prolog, epilog or status.
//! - Prolog and epilog exit with 0 whatever happens: Slurm would drain the node. A job that
//!   cannot be served is sent back to the queue, or ended with the reason.
//! - Nothing is read that a user could have written.
//!
//! The configuration is one file ([`Config`]), which the filters of `sbatch` and `slurmctld`
//! (see `lua`) read as well.

mod cgroups;
mod check;
mod choose;
mod config;
mod epilog;
mod facts;
mod heal;
mod install;
mod limited;
mod lua;
mod pattern;
mod prolog;
mod queue;
mod rules;
mod servers;
mod share;
mod slurm;
mod slurm_conf;
mod state;
mod status;

pub use check::{CheckPoint, Verdict, check};
pub use choose::{NoRoom, choose};
pub use config::{CONFIG, Config, ConfigError, GpuConfigEntry, Mode};
pub use epilog::epilog;
pub use facts::JobFacts;
pub use heal::host_name;
pub use install::{InstallPlan, Installation, config_beside, install};
pub use lua::{cli_filter, job_submit};
pub use packhorse_orders::SCONTROL;
pub use pattern::Pattern;
pub use prolog::{PrologResult, Trouble, give_up, prolog};
pub use rules::{Allow, Refusal};
pub use servers::{ServerTask, enter, run_as_user, serve};
pub use share::Share;
pub use slurm::Slurm;
pub use slurm_conf::{Release, SlurmConf};
pub use state::{State, StateError};
pub use status::{NodeStatus, status};
