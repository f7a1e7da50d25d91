use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use packhorse_model::{
    ByteString, Bytes, GpuRequest, Grace, Milli, OutputMode, PoolSpec, ProbeSpec, TaskSpec,
    TimeLimit, VramRequest,
};

use packhorse_session::NamedProcess;

use super::number::whole;
use super::{PoolArgs, SlurmArgs};

/// Run commands, as many at a time as fit on the GPUs
///
/// Commands come from files, or from standard input, one per line. A line runs
/// as soon as it has arrived: the input may be a pipe that stays open for
/// days. Blank lines and lines that start with # are skipped; a \ at the end
/// of a line continues it. A comment such as
///
///   #packhorse gpus=0.5 vram=9G priority=-1 retries=2 timeout=2h name=b after=a
///
/// applies to the next command. Lower priorities go first; `after` names
/// earlier commands that must succeed first. Other keys are cores, cpu, ram,
/// model, preload, signature, group, group_limit, grace, folder, env, results
/// and log.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Exit status: 0 if all tasks succeeded, 1 if some failed, 2 for wrong usage or input,
130, 143, 129 or 131 if interrupted by Ctrl-C, SIGTERM, SIGHUP or Ctrl-\\. Ctrl-C lets
running tasks finish, a second Ctrl-C ends them, and a third (or Ctrl-\\ at once) kills
them; `packhorse resume` then runs the rest."
)]
pub struct RunArgs {
    /// Files with commands; `-` is standard input, which is also the default
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// One command, run exactly as given
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["files", "null", "tasks"])]
    pub command: Vec<OsString>,

    /// Read tasks as JSON objects, one per line; `-` is standard input
    ///
    /// Each object has a `command`: a string is a line for the shell, a list is a
    /// program and its arguments. docs/task-lines.md describes the other keys;
    /// `packhorse export RUN` prints the tasks of a run in this form.
    #[arg(long, value_name = "FILE", num_args = 1, conflicts_with_all = ["files", "null"])]
    pub tasks: Vec<PathBuf>,

    /// Commands are separated by NUL bytes, and may span several lines
    #[arg(short = '0', long)]
    pub null: bool,

    /// Print the script that --slurm would submit, and submit nothing
    #[arg(long)]
    pub dry_run: bool,

    /// End the run and its tasks when process PID ends, for programs that drive packhorse
    ///
    /// It need not be told: packhorse notices, even after `kill -9`. PID:START also says
    /// when it was started, as in the 22nd field of /proc/PID/stat; if it is another
    /// process by now, or none, nothing is started.
    #[arg(long, value_name = "PID", hide_short_help = true)]
    pub end_with: Option<NamedProcess>,

    /// The tasks are calls of the program that drives packhorse, and end with it: the run is
    /// neither resumed nor retried
    #[arg(long, hide = true)]
    pub calls: bool,

    /// What its run is like.
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// What a new run is like.
#[derive(Clone, Debug, Default, Args)]
pub struct LaunchArgs {
    /// What each task needs.
    #[command(flatten)]
    pub task: TaskArgs,
    /// Where tasks run.
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Whether tasks run on a Slurm cluster, and how.
    #[command(flatten)]
    pub slurm: SlurmArgs,
    /// What is shown.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl LaunchArgs {
    /// What they say of where tasks run.
    pub fn pool(&self) -> PoolSpec {
        PoolSpec {
            equal_cores: match self.task.cores {
                Some(CoresArg::Auto) => Some(true),
                // A number is not an equal part, whatever is set elsewhere.
                Some(CoresArg::Count(_)) => Some(false),
                None => None,
            },
            ..self.pool.spec()
        }
    }
}

/// How many cores a task gets for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoresArg {
    /// So many.
    Count(u32),
    /// An equal part of all.
    Auto,
}

impl FromStr for CoresArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => {
                text.parse().map(Self::Count).map_err(|_| "it is neither a whole number nor `auto`")
            }
        }
    }
}

/// What each task needs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What each task needs")]
pub struct TaskArgs {
    /// GPUs for each task: a part of one (0.5, 1/3), or several [default: 1]
    #[arg(short = 'g', long, value_name = "N")]
    pub gpus_per_task: Option<GpuRequest>,

    /// GPU memory for each task: 9G, 512M, or `auto`
    ///
    /// As many tasks run on a GPU as fit into its memory; -g may also limit their
    /// share of it. With `auto` the amount is learned from earlier tasks of the same
    /// shape (see `packhorse peaks`); a task about which nothing is known gets all that
    /// is free on a GPU, and only what it needs once its memory stops growing (see --rest).
    #[arg(long, value_name = "SIZE", conflicts_with = "slots")]
    pub vram: Option<VramRequest>,

    /// Measure a task of unknown shape with a short run first
    ///
    /// TEMPLATE is a command with {} where the task's own command goes, such as
    /// `{} --epochs 1`. With `--vram auto` a probe gets all that is free on a GPU; with
    /// `--vram 9G` it gets that much, and so do tasks until they have been measured.
    #[arg(long, value_name = "TEMPLATE", requires = "vram")]
    pub probe: Option<String>,

    /// The key to remember these tasks by, instead of the shape of their commands
    #[arg(long, value_name = "KEY")]
    pub signature: Option<String>,

    /// Only use GPUs whose name contains this; separate several names by commas
    #[arg(long, value_name = "NAMES", conflicts_with = "slots")]
    pub gpu_model: Option<String>,

    /// Main memory for each task: 16G; counted, not enforced
    #[arg(long, value_name = "SIZE")]
    pub ram: Option<Bytes>,

    /// How many cores each task keeps busy: 1.5; counted, not pinned
    #[arg(long, value_name = "N")]
    pub cpu: Option<Milli>,

    /// How many cores each task gets for itself and is pinned to, or `auto` for an equal
    /// part [default: shares all]
    ///
    /// With `auto`, the cores are divided by the number of tasks that fit at a time: on 4
    /// GPUs with -g 0.5, each gets an eighth.
    #[arg(short, long, value_name = "N")]
    pub cores: Option<CoresArg>,

    /// How many more times to try a task that fails
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub retries: Option<u32>,

    /// End a task that takes longer: 90s, 30m, 2h30m, 1d, or never; a bare number is
    /// seconds
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<TimeLimit>,

    /// How long a task has between SIGTERM and SIGKILL [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<Grace>,

    /// Start each Python task as a copy of a Python that has imported these modules;
    /// separate several names by commas
    ///
    /// A hundred short tasks that need torch then import it once. The tasks themselves
    /// need no change. docs/preload.md says what to watch out for.
    #[arg(long, value_name = "MODULES", value_delimiter = ',')]
    pub preload: Vec<String>,

    /// Set an environment variable for each task; may be given several times
    #[arg(
        long, value_name = "NAME=VALUE",
        value_parser = OsStringValueParser::new().try_map(parse_variable)
    )]
    pub env: Vec<(String, ByteString)>,
}

impl TaskArgs {
    /// What they say: a task without a command.
    pub fn spec(&self) -> TaskSpec {
        TaskSpec {
            env: self.env.iter().cloned().collect(),
            preload: self.preload.clone(),
            gpus: self.gpus_per_task,
            vram: self.vram,
            gpu_model: self.gpu_model.clone(),
            signature: self.signature.clone(),
            probe: self.probe.clone().map(ProbeSpec::Template),
            cores: match self.cores {
                Some(CoresArg::Count(count)) => Some(count),
                Some(CoresArg::Auto) | None => None,
            },
            cpu: self.cpu,
            ram: self.ram,
            retries: self.retries,
            timeout: self.timeout,
            grace: self.grace,
            ..TaskSpec::default()
        }
    }
}

/// `NAME=VALUE`
fn parse_variable(text: OsString) -> Result<(String, ByteString), &'static str> {
    let text = text.into_vec();
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    match (parts.next().map(str::from_utf8), parts.next()) {
        (Some(Ok(name)), Some(value)) if !name.is_empty() => {
            Ok((name.to_owned(), ByteString(value.to_vec())))
        }
        _ => Err("it is not NAME=VALUE"),
    }
}

/// What is shown.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What is shown")]
pub struct OutputArgs {
    /// Print one JSON object per event, for programs
    #[arg(long)]
    pub json: bool,

    /// Print only what goes wrong, and the summary
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,

    /// Where the tasks' output goes [default: log]
    #[arg(long, value_name = "WHERE")]
    output: Option<Shown>,
}

/// Where the tasks' output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shown {
    /// Only to each task's log
    Log,
    /// To the log, and printed in whole lines with the task's number
    Lines,
    /// Written by each task straight to its log, not through packhorse: tasks can go on
    /// printing if packhorse is killed. Nothing is printed, and the log does not tell
    /// standard output from standard error
    File,
    /// Straight to the output of packhorse; no logs
    Inherit,
}

impl OutputArgs {
    /// Where the tasks' output goes, if they say so.
    pub fn mode(&self) -> Option<OutputMode> {
        Some(match self.output? {
            Shown::Log => OutputMode::Log,
            Shown::Lines => OutputMode::Lines,
            Shown::File => OutputMode::File,
            Shown::Inherit => OutputMode::Inherit,
        })
    }
}

/// Run the failed tasks of a run again.
///
/// With them run the tasks that were skipped because of them, and the rest of a run that was
/// interrupted. All have their retries again. Commands and options are those of the run;
/// options given here replace them.
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// Which run, and how.
    #[command(flatten)]
    pub again: AgainArgs,
}

/// Run the rest of a run that was interrupted or killed.
///
/// Tasks that were running then start again; those that ended, whether they succeeded or
/// failed, do not. Commands and options are those of the run; options given here replace
/// them.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Which run, and how.
    #[command(flatten)]
    pub again: AgainArgs,
}

/// Which run is continued, and how.
#[derive(Debug, Args)]
pub struct AgainArgs {
    /// Which run [default: the latest]
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// Where tasks run.
    #[command(flatten)]
    pub pool: PoolArgs,
    /// What is shown.
    #[command(flatten)]
    pub output: OutputArgs,
}
