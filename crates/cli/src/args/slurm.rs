use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use packhorse_model::{JobTime, SlurmSpec, TimeLimit};

use super::number::whole;
use super::{LogsArgs, OutputArgs};

/// Whether a run goes to a Slurm cluster, and how.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Slurm")]
pub struct SlurmArgs {
    /// Run the tasks on a Slurm cluster: as few jobs as make sense, each of which packs its
    /// tasks onto its GPUs
    ///
    /// It returns when the jobs are submitted; `packhorse slurm status` shows how they are doing.
    #[arg(long, conflicts_with_all = ["gpus", "as_written"])]
    pub slurm: bool,

    /// Stay until the run is over, and show it as if its tasks ran here
    #[arg(long)]
    pub wait: bool,

    /// What is asked for.
    #[command(flatten)]
    pub request: SlurmRequestArgs,
}

/// What is asked of Slurm.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Slurm")]
pub struct SlurmRequestArgs {
    /// The partition
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,

    /// The account
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,

    /// The GPUs of each job, or other generic resources: gpu:4, gpu:a100:2
    #[arg(long, value_name = "LIST")]
    pub gres: Option<String>,

    /// How long one job may take: 2h30m, 1-12:00:00; a bare number is minutes
    #[arg(long, value_name = "TIME")]
    pub time: Option<JobTime>,

    /// The cores of each job
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU32>)]
    pub cpus_per_task: Option<NonZeroU32>,

    /// Main memory of each job: 64G
    #[arg(long, value_name = "SIZE")]
    pub mem: Option<String>,

    /// Another argument of sbatch, such as --sbatch=--constraint=a100; may be given several
    /// times
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,

    /// Run at most N jobs at a time [default: as many as Slurm starts]
    ///
    /// If all tasks fit into fewer jobs, they are divided among N of them, unless most of
    /// each would be idle.
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU32>)]
    pub jobs: Option<NonZeroU32>,

    /// How long a task takes, if you know; it decides how many tasks go into one job
    /// [default: what was learned, --timeout, or 10m]
    #[arg(long, value_name = "TIME")]
    pub task_time: Option<TimeLimit>,

    /// How many more times to run a task whose job was cut off by a dead node, a preemption
    /// or the time limit [default: 5]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub requeues: Option<u32>,

    /// A folder that every node sees, for what the run and its jobs tell each other
    /// [default: packhorse-slurm]
    #[arg(long, value_name = "FOLDER")]
    pub slurm_folder: Option<PathBuf>,
}

impl SlurmRequestArgs {
    /// What they say.
    pub fn spec(&self) -> SlurmSpec {
        SlurmSpec {
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
        }
    }
}

impl SlurmArgs {
    /// What they say, if the run goes to Slurm.
    pub fn spec(&self) -> anyhow::Result<Option<SlurmSpec>> {
        let spec = self.request.spec();
        if self.slurm {
            return Ok(Some(spec));
        }
        if self.wait || spec != SlurmSpec::default() {
            bail!(
                "options about Slurm have no effect without --slurm\n\
                 hint: add --slurm, or leave them out"
            );
        }
        Ok(None)
    }
}

/// See and control runs on a Slurm cluster.
#[derive(Debug, Args)]
pub struct SlurmCommandArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: SlurmVerb,
}

/// What to do with a run on Slurm.
#[derive(Debug, Subcommand)]
pub enum SlurmVerb {
    /// Show how far a run is: what waits and why, what runs where, what is done
    Status {
        /// Which run [default: the latest on Slurm]
        run: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Follow a run until it is over, as `run --slurm --wait` does
    ///
    /// The first Ctrl-C takes pending jobs out of the queue and lets running tasks finish,
    /// the second cancels all jobs, and the third leaves. If this command is ended in
    /// another way, the run goes on.
    Wait {
        /// Which run [default: the latest on Slurm]
        run: Option<String>,
        /// What is shown.
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show what a task wrote
    Logs(LogsArgs),
    /// Cancel all jobs of a run
    Cancel {
        /// Which run [default: the latest on Slurm]
        run: Option<String>,
    },
    /// Submit what is left of a run, with other options if they are given
    Resume(SlurmResumeArgs),
    /// Run one element of an array, inside a job
    #[command(hide = true)]
    Element {
        /// The folder that the run and its jobs share.
        folder: PathBuf,
        /// The element that index 0 of the array stands for.
        #[arg(default_value_t = 0)]
        base: u32,
    },
}

/// Submit what is left of a run, with other options if they are given.
#[derive(Debug, Args)]
pub struct SlurmResumeArgs {
    /// Which run [default: the latest on Slurm]
    pub run: Option<String>,

    /// Run failed tasks again, too
    #[arg(long)]
    pub failed: bool,

    /// Stay until the run is over
    #[arg(long)]
    pub wait: bool,

    /// What is asked for.
    #[command(flatten)]
    pub request: SlurmRequestArgs,

    /// What is shown.
    #[command(flatten)]
    pub output: OutputArgs,
}
