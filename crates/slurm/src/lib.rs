//! Runs on a Slurm cluster: as few jobs as make sense, and packhorse again inside each.
//!
//! ```text
//!  where people log in                    the shared folder            a node
//!  ───────────────────                    ─────────────────            ──────
//!  ClusterRun::prepare ── tasks, plan ──▶ tasks.jsonl, …
//!  PreparedRun::submit ── sbatch ───────▶ script.sh ─────────────────▶ run_element
//!       │ NewRun, Tasks                                                  │ session::Launch
//!       ▼                                                                ▼
//!  the person's store ◀── Progress ◀───── outcomes/E.L.jsonl ◀──────── OutcomeWriter
//!       ▲                    ▲
//!       └ observers          └ squeue
//! ```
//!
//! - [`ClusterRun`] is what a door has made of its arguments. Its tasks are cut into elements
//!   of an array (`planning`), written into the shared folder and submitted (`submit`,
//!   `arrays`, `script`, `sbatch`).
//! - [`run_element`] is what an element does inside its job: a [`RunPart`] of the run, with the
//!   devices, cores and time that the job was given (`allocation`), and with what its earlier
//!   lives have written (`earlier_lives`).
//! - [`follow`] stays with a run, [`refresh`] and [`view`] look at it once: what elements tell
//!   becomes records and events, as if it had happened here (`progress`). Whoever stays submits
//!   what was cut off and cannot do that itself (`lost_elements`). Whoever submits what goes on
//!   finds room for it under `--jobs` (`room`).
//! - [`submit_again`] and [`cancel`] are what their names say.
//!
//! What it promises:
//!
//! - Nothing in the shared folder has two writers, and nothing in it is a database. A torn last
//!   line is a line that was not written.
//! - A run is recorded before its first job is submitted, and so is that a job is about to be:
//!   whatever goes wrong, everything on the cluster has a name here.
//! - What was told to have ended has ended: it is not run again by a later life, and told twice
//!   it counts once.
//! - No task fails because its job was cut off.
//! - What was cancelled does not come back: nothing starts or goes on beside a `stop_file`.
//!
//! It never prints, and knows nothing of command lines. It asks Slurm by its commands alone.
//!
//! [`RunPart`]: packhorse_session::RunPart
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
mod lost_elements;
mod outcome_file;
mod outcome_reader;
mod peaks;
mod planning;
mod progress;
mod prospect;
mod queue;
mod queue_watch;
mod room;
mod sbatch;
mod script;
mod status;
mod stop_file;
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
