use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use packhorse_model::Bytes;

use super::number::{at_least_one, whole};
use super::{ExperimentArgs, GridArgs, LaunchArgs, PoolArgs, RunArgs, SweepArgs};

/// Run the rows of a CSV file, by priority and GPU memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns: Directory, Executable, Filename, Epochs, Priority; and optionally Memory,
GPUs, Timeout, Retries, Name. A row runs
`EXECUTABLE FILENAME --epochs=EPOCHS --id=NUMBER` in its directory; rows with a
lower priority number start first. The file is not changed without --consume.")]
pub struct CsvArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The same, as the original has it
    #[arg(long, value_name = "FILE", conflicts_with = "file", hide = true)]
    pub csv: Option<PathBuf>,

    /// How many rows make a batch; rows are sorted by priority within each
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one)]
    pub num: u32,

    /// The row that names the columns, counted from 0, or None if there is none
    #[arg(long, value_name = "ROW", default_value = "0")]
    pub header: String,

    /// The --id of the first task [default: where the last run stopped]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub id: Option<u64>,

    /// Remove rows from the file once they have succeeded
    #[arg(long)]
    pub consume: bool,

    /// How many epochs to measure a task of unknown shape for first; 0 for none
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<u32>)]
    pub probe_epochs: u32,

    /// The Python for rows whose executable is -1
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: String,

    /// Print the script that --slurm would submit, and submit nothing
    #[arg(long)]
    pub dry_run: bool,

    /// What its run is like.
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// Measure a command: peak GPU memory, utilisation and time.
///
/// The command runs once, to its end, on a GPU to itself. What it needed is remembered, so
/// that `packhorse run --vram auto` knows it: `packhorse peaks` shows it.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// The key to remember it by, instead of its shape
    #[arg(long, value_name = "KEY")]
    pub signature: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Where it runs.
    #[command(flatten)]
    pub pool: PoolArgs,
}

/// Show what was learned about commands, or forget it.
#[derive(Debug, Args)]
pub struct PeaksArgs {
    /// Only show commands that contain this text
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,

    /// Forget what was learned about commands that contain the text
    #[arg(long)]
    pub forget: bool,

    /// With --forget: forget everything
    #[arg(long, requires = "forget", conflicts_with = "text")]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Control NVIDIA's Multi-Process Service.
#[derive(Debug, Args)]
pub struct MpsArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: MpsVerb,
}

/// What to do with MPS.
#[derive(Debug, Subcommand)]
pub enum MpsVerb {
    /// Start a control daemon for each GPU
    Start {
        /// The GPUs [default: all]
        #[arg(long, value_name = "IDS", num_args = 1..)]
        gpus: Vec<String>,
    },
    /// Show the daemons, their servers and clients
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End the daemons that were started here
    Stop {
        /// The GPUs [default: all]
        #[arg(long, value_name = "IDS", num_args = 1..)]
        gpus: Vec<String>,

        /// End daemons that are in use, too; what runs there fails or runs again
        #[arg(long)]
        force: bool,
    },
}

/// Show what would run where and when, without running it
///
/// Files are those of `packhorse run`; a file that ends in .csv is one of `packhorse csv`,
/// and one that ends in .jsonl is one of `packhorse run --tasks`. For options of `csv` and
/// for sweeps, write `plan` before the whole command: `packhorse plan csv tasks.csv --num 5`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    mut_arg("json", |arg| arg.help("Print JSON")),
    mut_arg("quiet", |arg| arg.hide(true)),
    mut_arg("output", |arg| arg.hide(true)),
    after_help = "\
A single number after --gpus is how many GPUs to plan for, whether the machine has
that many or not; a list of ids means those GPUs. How long tasks take is known from
earlier tasks of the same shape (see `packhorse peaks`)."
)]
pub struct PlanArgs {
    /// Another door than that of `packhorse run`.
    #[command(subcommand)]
    pub door: Option<PlannedDoor>,

    /// What would be run.
    #[command(flatten)]
    pub run: RunArgs,

    /// What is imagined.
    #[command(flatten)]
    pub imagined: ImaginedArgs,
}

/// Whose tasks are planned.
#[derive(Debug, Subcommand)]
pub enum PlannedDoor {
    /// Plan what `packhorse run` would run
    Run(PlanOf<RunArgs>),
    /// Plan what `packhorse csv` would run
    Csv(PlanOf<CsvArgs>),
    /// Plan what `packhorse grid` would run
    Grid(PlanOf<GridArgs>),
    /// Plan what `packhorse exp` would run
    Exp(Box<PlanOf<ExperimentArgs>>),
    /// Plan what `packhorse sweep --run` would run
    Sweep(PlanOf<SweepArgs>),
}

/// The arguments of a command that is planned instead.
#[derive(Debug, Args)]
#[command(
    mut_arg("json", |arg| arg.help("Print JSON")),
    mut_arg("quiet", |arg| arg.hide(true)),
    mut_arg("output", |arg| arg.hide(true)),
)]
pub struct PlanOf<A: Args> {
    /// What would be run.
    #[command(flatten)]
    pub door: A,

    /// What is imagined.
    #[command(flatten)]
    pub imagined: ImaginedArgs,
}

/// What a plan imagines.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "What is imagined")]
pub struct ImaginedArgs {
    /// The memory of each imagined GPU, if there is no real one to ask
    #[arg(long, value_name = "SIZE")]
    pub gpu_memory: Option<Bytes>,

    /// How long to assume a task takes if nothing is known about it
    #[arg(long, value_name = "TIME", value_parser = packhorse_model::parse_duration)]
    pub assume: Option<std::time::Duration>,
}
