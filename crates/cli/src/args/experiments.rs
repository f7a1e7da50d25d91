use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use packhorse_session::NamedProcess;

use super::number::whole;
use super::{LaunchArgs, Rerun};

/// Run the repetitions of experiments, each with a folder for its results
///
/// FILE has several YAML documents: what all experiments have in common (DEFAULT), what
/// Slurm is told (SLURM), and the experiments, with parameters to try in `grid`, `list`
/// and `ablative`. Each repetition has a folder such as results/exp/exp__l0.1/log/rep_00,
/// and is skipped if that says that it has succeeded.
#[derive(Debug, Args)]
#[command(after_help = "\
The command stands after --, or is the file's `command`. Parameters replace {name} and
{outer.inner} where that is written, {rep} is the number of the repetition, and {config}
the path of a JSON file with the whole configuration; if nothing of that is written,
parameters are appended as --name value. A task also finds them as JSON in
PACKHORSE_PARAMS, and its whole configuration in PACKHORSE_EXPERIMENT.

Example: packhorse exp config.yml -e lr_test -- python train.py

docs/experiments.md describes the file.")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct ExperimentArgs {
    /// The experiment file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The command
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Only these experiments
    #[arg(short, long, value_name = "NAME", num_args = 1..)]
    pub experiments: Vec<String>,

    /// Run all repetitions, also those that are done; =left-alone: only those left alone are added
    ///
    /// A repetition is left alone if it may run in another container or on another machine.
    #[arg(short, long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "all", hide_possible_values = true)]
    pub overwrite: Option<Rerun>,

    /// Only the repetitions of this job, counted from 0
    #[arg(short, long, value_name = "K", value_parser = whole::<u32>)]
    pub job: Option<u32>,

    /// Put the time before the names of all experiments
    #[arg(short = 't', long)]
    pub prefix_with_timestamp: bool,

    /// The same with this text for the time, for programs that look for the results
    #[arg(long, hide = true, value_name = "TEXT")]
    pub time_stamp: Option<String>,

    /// Only the first run of each expansion, one repetition with one iteration
    #[arg(long)]
    pub debug: bool,

    /// Every run, with one repetition and one iteration
    #[arg(long)]
    pub debugall: bool,

    /// The same as --slurm
    #[arg(short = 's', hide = true, conflicts_with_all = ["gpus", "as_written"])]
    pub to_slurm: bool,

    /// With --slurm: pack the code into an archive, instead of copying it
    #[arg(long, conflicts_with = "multicopy")]
    pub zip: bool,

    /// With --slurm: copy the code once for each job
    #[arg(long)]
    pub multicopy: bool,

    /// With --slurm: do not copy the code
    #[arg(long)]
    pub nocodecopy: bool,

    /// With --slurm: copy the code even if it is larger than 200 MB
    #[arg(long)]
    pub skipsizecheck: bool,

    /// Keep the output of repetitions out of their folders
    #[arg(long)]
    pub noconsolelog: bool,

    /// List the repetitions, each with its state, and run nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub list: bool,

    /// Print the commands that would run, or with --slurm the script, and run nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print the configuration of each run as JSON, before it is cut into repetitions
    #[arg(long, hide = true, conflicts_with_all = ["list", "dry_run"])]
    pub expand: bool,

    /// Run the command exactly as it is, but for the word {folder}
    #[arg(long, hide = true)]
    pub plain_command: bool,

    /// Print the SLURM document for this machine as JSON, if there is one
    #[arg(long, hide = true, conflicts_with_all = ["list", "dry_run", "expand"])]
    pub slurm_document: bool,

    /// Write what was read into this folder, as it is written before a run, and run nothing
    #[arg(long, hide = true, value_name = "FOLDER",
          conflicts_with_all = ["list", "dry_run", "expand", "slurm_document"])]
    pub write_back: Option<PathBuf>,

    /// End the run and its tasks when process PID ends, for programs that drive packhorse
    #[arg(long, hide = true, value_name = "PID")]
    pub end_with: Option<NamedProcess>,

    /// What its run is like.
    #[command(flatten)]
    pub launch: LaunchArgs,
}
