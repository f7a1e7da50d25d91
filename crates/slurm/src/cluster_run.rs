//! A run that is to go to the cluster.

use std::path::PathBuf;

use packhorse_model::{RunId, RunSpec};
use packhorse_session::TaskSource;

/// A run that is to go to the cluster. `spec.slurm` says what is asked of Slurm.
pub struct ClusterRun {
    pub spec: RunSpec,
    pub source: Box<dyn TaskSource>,
    /// How they become elements of the array.
    pub cut: Cut,
    /// The folder that tasks run in, which every node has to see.
    pub folder: PathBuf,
}

/// How tasks become elements of the array. An element is one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// As few as make sense: from what fits into a job at a time, and how often that fits
    /// into its time.
    #[default]
    Packed,
    /// These, in the order of the tasks, and together as many as there are.
    Given(Vec<GivenElement>),
}

/// An element that somebody has cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenElement {
    /// How many of the tasks.
    pub tasks: u32,
    /// At most so many of them at a time; `None`: as many as fit.
    pub parallel: Option<u32>,
    /// The folder that they run in, if it is another than the run's.
    pub folder: Option<PathBuf>,
}

/// What has been handed to Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The run, in the person's own store.
    pub run: RunId,
    /// The numbers that Slurm gave to its arrays.
    pub jobs: Vec<u32>,
    /// How many elements they have together.
    pub elements: u32,
    /// How many tasks there are.
    pub tasks: u32,
    /// The folder that the run and its jobs share.
    pub folder: PathBuf,
}
