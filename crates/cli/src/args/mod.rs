//! What can be typed. What it means is worked out in [`crate::commands`].

mod cli;
mod experiments;
mod grid;
mod memory;
mod node;
mod number;
mod pool;
mod rerun;
mod run;
mod show;
mod slurm;
mod sweep;

pub use cli::{Cli, Verb, occurrences};
pub use experiments::ExperimentArgs;
pub use grid::GridArgs;
pub use memory::{
    CsvArgs, ImaginedArgs, MpsArgs, MpsVerb, PeaksArgs, PlanArgs, PlannedDoor, ProbeArgs,
};
pub use node::{DaemonTask, InstallArgs, ModeArg, NodeArgs, NodeVerb};
pub use pool::PoolArgs;
pub use rerun::Rerun;
pub use run::{AgainArgs, LaunchArgs, OutputArgs, ResumeArgs, RetryArgs, RunArgs, TaskArgs};
pub use show::{
    ConfigArgs, ExportArgs, GpusArgs, LogsArgs, LsArgs, ResultsArgs, ShowArgs, StopArgs,
};
pub use slurm::{SlurmArgs, SlurmCommandArgs, SlurmRequestArgs, SlurmResumeArgs, SlurmVerb};
pub use sweep::{SamplingMode, SweepArgs};
