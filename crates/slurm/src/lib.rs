//! Runs on a Slurm cluster.
mod again;
mod allocation;
mod arrays;
mod cluster_run;
mod code_copy;
mod commands;
mod earlier_lives;
mod element;
mod element_journal;
mod error;
mod estimate;
mod folder;
mod follow;
mod followed_run;
mod job_shape;
mod outcome_file;
mod outcome_reader;
mod peaks;
mod planning;
mod progress;
mod queue;
mod queue_watch;
mod script;
mod status;
mod submit;
mod task_file;
mod zip_file;

pub use again::{Again, submit_again};
pub use cluster_run::{ClusterRun, Cut, GivenElement, Submitted};
pub use code_copy::{CodeCopy, CopyKind};
pub use element::run_element;
pub use error::SlurmError;
pub use folder::SubmittedJob;
pub use follow::{Attached, Followed, follow};
pub use job_shape::JobShape;
pub use queue::{ElementPhase, QueuedElement, reason_in_words};
pub use status::{
    AskSlurm, Cancelled, ClusterView, RunningOnNode, cancel, find_cluster_run, pause, refresh,
    refresh_all, view,
};
pub use submit::PreparedRun;
