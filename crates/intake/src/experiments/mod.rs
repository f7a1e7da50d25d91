//! Experiment files: several YAML documents, each an experiment of many repetitions.
//!
//! ```text
//!  text ──▶ documents: DEFAULT, SLURM, experiments       (documents)
//!       ──▶ merged with DEFAULT and what they import     (import, merge)
//!       ──▶ expanded by grid, list, ablative             (expansion, experiment)
//!       ──▶ Experiments: a repetition by its place       (experiments)
//! ```
//!
//! Names, folders and values are those of the original, `cw2`. Nothing is expanded: a
//! repetition is computed from its place, so that memory does not grow with their number.

mod command;
mod documents;
mod errors;
mod expansion;
mod experiment;
#[expect(clippy::module_inception, reason = "it is what the module is about")]
mod experiments;
mod import;
mod jobs;
mod key_places;
mod keys;
mod merge;
mod paths;
mod problem;
mod repetition;
mod run_names;
mod short_names;
mod slurm_document;
mod written_back;
mod yaml_writer;

pub use documents::{FileError, ReadFile};
pub use errors::ExperimentsError;
pub use experiments::{Experiments, ReadOptions};
pub use problem::{ExperimentError, ExperimentProblem};
pub use repetition::{LONGEST_CONFIG, Repetition};
pub use slurm_document::{ExperimentScheduler, SlurmDocument};
