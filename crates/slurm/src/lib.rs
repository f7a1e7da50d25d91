//! Runs on a Slurm cluster.

mod cluster_run;

pub use cluster_run::{ClusterRun, Cut, GivenElement, Submitted};
