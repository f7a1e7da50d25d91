use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Args;
use packhorse_model::{JobTime, SlurmSpec, TimeLimit};

/// How a run goes to a Slurm cluster.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Slurm")]
pub struct SlurmArgs {
    /// Run the tasks on a Slurm cluster: as few jobs as make sense, each packing its tasks
    /// onto its GPUs
    #[arg(long, conflicts_with_all = ["gpus", "as_written"])]
    pub slurm: bool,

    /// The partition [slurm.partition in packhorse.toml]
    #[arg(long, value_name = "NAME", requires = "slurm")]
    pub partition: Option<String>,

    /// The account
    #[arg(long, value_name = "NAME", requires = "slurm")]
    pub account: Option<String>,

    /// Generic resources of each job, such as gpu:4 or gpu:a100:2
    #[arg(long, value_name = "LIST", requires = "slurm")]
    pub gres: Option<String>,

    /// How long one job may take: 2h30m, 1-12:00:00; a bare number is minutes
    #[arg(long, value_name = "TIME", requires = "slurm")]
    pub time: Option<JobTime>,

    /// Cores of each job
    #[arg(long, value_name = "N", requires = "slurm")]
    pub cpus_per_task: Option<NonZeroU32>,

    /// Main memory of each job: 64G
    #[arg(long, value_name = "SIZE", requires = "slurm")]
    pub mem: Option<String>,

    /// Another argument of sbatch, such as --sbatch=--constraint=a100; may be given several
    /// times
    #[arg(
        long,
        value_name = "ARG",
        requires = "slurm",
        allow_hyphen_values = true
    )]
    pub sbatch: Vec<String>,

    /// At most N jobs at a time [default: as many as Slurm starts]
    #[arg(long, value_name = "N", requires = "slurm")]
    pub jobs: Option<NonZeroU32>,

    /// How many more times to run a task whose job was cut off: by a dead node, a
    /// preemption or the time limit [default: 5]
    #[arg(long, value_name = "N", requires = "slurm")]
    pub requeues: Option<u32>,

    /// How long a task takes, if you know: how many of them go into one job depends on it
    /// [default: what was learned, --timeout, or 10m]
    #[arg(long, value_name = "TIME", requires = "slurm")]
    pub task_time: Option<TimeLimit>,

    /// A folder that every node sees, for what the run and its jobs tell each other
    /// [default: packhorse-slurm]
    #[arg(long, value_name = "FOLDER", requires = "slurm")]
    pub slurm_folder: Option<PathBuf>,

    /// Stay until the run is over, and show it as if it were here
    #[arg(long, requires = "slurm")]
    pub wait: bool,
}

impl SlurmArgs {
    /// What they say, if the run goes to Slurm.
    pub fn spec(&self) -> Option<SlurmSpec> {
        self.slurm.then(|| SlurmSpec {
            partition: self.partition.clone(),
            account: self.account.clone(),
            gres: self.gres.clone(),
            time: self.time,
            cpus_per_task: self.cpus_per_task,
            mem: self.mem.clone(),
            sbatch: self.sbatch.clone(),
            jobs: self.jobs,
            requeues: self.requeues,
            task_time: self.task_time,
            folder: self.slurm_folder.clone(),
            ..SlurmSpec::default()
        })
    }
}
