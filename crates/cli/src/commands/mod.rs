//! What the arguments mean, one file a command.

mod again;
mod config;
mod csv;
mod dispatch;
mod docs;
mod experiments;
mod experiments_slurm;
mod export;
mod gpus;
mod grid;
mod launch;
mod logs;
mod ls;
mod mistakes;
mod mps;
mod node;
mod peaks;
mod plan;
mod probe;
mod results;
mod results_on_cluster;
mod run;
mod running_tests;
mod show;
mod slurm;
mod slurm_status;
mod stop;
mod sweep;
mod table;
mod why;

pub use dispatch::dispatch;
pub use launch::{Order, find_settings};
pub use node::{epilog, prolog};
pub use sweep::{parameters, print, seed};
