use std::ffi::OsString;

use clap::Args;

use super::number::whole;

/// Show the GPUs, and who is using them.
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// Put back a GPU that was taken out because something was wrong with it
    #[arg(long, value_name = "ID")]
    pub restore: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// List runs, newest first.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// How many to list [default: 20, or all with --json]
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u32>)]
    pub limit: Option<u32>,

    /// List all runs
    #[arg(short, long, conflicts_with = "limit")]
    pub all: bool,
}

/// Show a run and its tasks.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A run (12) or one of its tasks (12.3) [default: the latest run]
    #[arg(value_name = "RUN")]
    pub what: Option<String>,

    /// Only tasks that failed
    #[arg(long)]
    pub failed: bool,

    /// Print JSON: an object for the run, then one for each task
    #[arg(long)]
    pub json: bool,
}

/// Show what came of tests: their parameters, outcomes and metrics.
///
/// A test is a task of a run, or a folder with results, which has a file `.packhorse.json`.
/// Metrics are what tasks print on lines such as `packhorse: {"loss": 0.1}`.
#[derive(Debug, Args)]
#[command(after_help = "\
KEY, X and Y are a parameter, a metric, or `time`, `peak`, `outcome`, `attempts`, `started`,
`task` or `folder`. A metric stands for its best value; `loss.last`, `loss.lowest`,
`loss.highest` and `loss.count` are the others.

Example: packhorse results results/ --sort loss")]
pub struct ResultsArgs {
    /// A run (12), a task (12.3), or a folder with the folders of tests [default: the latest run]
    #[arg(value_name = "RUN|TASK|FOLDER")]
    pub what: Option<OsString>,

    /// Sort by this, lowest first; `--sort -KEY` is highest first
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub sort: Option<String>,

    /// Draw Y by X, a point for each test; `step` as X draws a curve for each
    #[arg(long, num_args = 2, value_names = ["X", "Y"])]
    #[arg(conflicts_with_all = ["json", "csv", "sort"])]
    pub plot: Vec<String>,

    /// Print all columns as a CSV file
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show what a task wrote.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct LogsArgs {
    /// Which task: 12.3, or 3 for the third task of the latest run
    #[arg(value_name = "TASK")]
    pub task: String,

    /// Follow the log until the task has ended
    #[arg(short, long)]
    pub follow: bool,

    /// Which attempt [default: the last]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub attempt: Option<u32>,

    /// Only what it wrote to standard output
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,

    /// Only what it wrote to standard error
    #[arg(long)]
    pub stderr: bool,

    /// Print the bytes as they are, also on a terminal
    ///
    /// Without it, a terminal gets only text and colours: other control characters, which
    /// could set its title or fill the clipboard, are made visible. Files and pipes always get
    /// the bytes as they are.
    #[arg(long)]
    pub raw: bool,

    /// Print the log file's path instead
    #[arg(long, conflicts_with = "follow")]
    pub path: bool,
}

/// Print the tasks of a run as JSON objects, one per line.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: packhorse export 12 | packhorse run --tasks - --gpus 0,1")]
pub struct ExportArgs {
    /// Which run [default: the latest]
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// Only tasks that failed
    #[arg(long)]
    pub failed: bool,
}

/// Stop a run, from any terminal.
///
/// Nothing new starts, and running tasks are ended: they get SIGTERM, and SIGKILL if they
/// have not ended after their grace. What did not finish is kept for `packhorse resume`. If
/// the run itself was killed, the processes that it left behind are ended.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// Which run; needed if several are running [default: the one that is running, else the
    /// latest]
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// Kill the tasks at once
    #[arg(long)]
    pub now: bool,
}

/// Show settings, their values and where they come from.
#[derive(Debug, Args)]
#[command(after_help = "\
Options override environment variables, which override packhorse.toml in this folder or
above it (or the file that --config names). That overrides ~/.config/packhorse/config.toml,
which overrides the defaults. docs/settings.md describes every setting.")]
pub struct ConfigArgs {
    /// Also show the defaults of settings that have not been set
    #[arg(short, long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
