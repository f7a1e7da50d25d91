//! Runs on a Slurm cluster.
mod allocation;
mod arrays;
mod cluster_run;
mod commands;
mod earlier_lives;
mod element;
mod element_journal;
mod error;
mod estimate;
mod folder;
mod job_shape;
mod outcome_file;
mod peaks;
mod planning;
mod queue;
mod script;
mod submit;
mod task_file;

pub use cluster_run::{ClusterRun, Cut, GivenElement, Submitted};
pub use element::run_element;
pub use error::SlurmError;
pub use queue::{ElementPhase, QueuedElement, reason_in_words};
pub use submit::PreparedRun;
