//! The whole command line, and what has to be done to it before it can be read.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::pool::parse_bool;
use super::{
    ConfigArgs, CsvArgs, ExportArgs, GpusArgs, LogsArgs, LsArgs, MpsArgs, PeaksArgs, PlanArgs,
    ProbeArgs, ResumeArgs, RetryArgs, RunArgs, ShowArgs, StopArgs, SweepArgs,
};

/// Packs your work onto your GPUs.
#[derive(Debug, Parser)]
#[command(
    name = "packhorse",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(after_help = "Start with: packhorse run --gpus 0,1 commands.txt")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Verb,
}

impl Cli {
    /// Reads the words of a command line.
    pub fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        let words = &complete_mps(words);
        let shielded: Vec<OsString>;
        let words = if words.get(1).is_some_and(|verb| verb == "sweep") {
            shielded = words.iter().map(shield).collect();
            &shielded
        } else {
            words
        };
        let matches = Self::command().try_get_matches_from(words)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if let (Verb::Sweep(sweep), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
            sweep.parameters = occurrences(matches, "param");
            sweep.about_running = about_running(matches);
        }
        Ok(cli)
    }
}

/// `--mps` may have a value, as in the original, and may have none: a word behind
/// it that is no answer to a question is not meant for it.
fn complete_mps(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    let end = words.iter().position(|word| word == "--");
    for at in 0..end.unwrap_or(words.len()) {
        let answer = words.get(at + 1).and_then(|word| word.to_str());
        if words[at] == "--mps" && answer.is_none_or(|word| parse_bool(word).is_err()) {
            words[at] = "--mps=true".into();
        }
    }
    words
}

/// Stands before a value that begins with a minus sign, so that it is not taken
/// for an option.
const SHIELD: char = '\u{1}';

/// Shields `-1e-3` and `-2..0`, which are values of parameters. `-0` is an option.
fn shield(word: &OsString) -> OsString {
    let negative = word.to_str().and_then(|text| text.strip_prefix('-'));
    match negative {
        Some(rest) if rest != "0" && rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            let mut shielded = OsString::from(SHIELD.to_string());
            shielded.push(word);
            shielded
        }
        _ => word.clone(),
    }
}

/// The first option of a sweep that is about running its commands: only those have
/// headings.
fn about_running(matches: &clap::ArgMatches) -> Option<String> {
    let sweep = SweepArgs::augment_args(clap::Command::new("sweep"));
    let mut options = sweep.get_arguments();
    let given = options.find(|option| {
        let source = matches.value_source(option.get_id().as_str());
        option.get_help_heading().is_some() && source == Some(ValueSource::CommandLine)
    })?;
    let long = given.get_long().map(|long| format!("--{long}"));
    given.get_short().map(|short| format!("-{short}")).or(long)
}

/// The values of an option, each time it was given by themselves.
pub fn occurrences(matches: &clap::ArgMatches, name: &str) -> Vec<Vec<String>> {
    matches
        .get_occurrences::<String>(name)
        .map(|all| {
            let bare = |value: &String| value.trim_start_matches(SHIELD).to_owned();
            all.map(|one| one.map(bare).collect()).collect()
        })
        .unwrap_or_default()
}

/// What to do. The options of a verb are laid out only if it is meant, and so is
/// its help: that is what stands above its options.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verb {
    /// Run commands, as many at a time as fit on the GPUs
    Run(RunArgs),
    /// Make a command for each combination of parameters
    Sweep(SweepArgs),
    /// Show what would run where and when, without running it
    Plan(PlanArgs),
    /// Run the rows of a CSV file, by priority and GPU memory
    Csv(CsvArgs),
    /// Measure a command: peak GPU memory, utilisation and time
    Probe(ProbeArgs),
    /// Show what was learned about commands, or forget it
    Peaks(PeaksArgs),
    /// Say why a task is waiting
    Why {
        /// Which task: 12.3, or 3 for the third task of the latest run
        task: String,
    },
    /// Control NVIDIA's Multi-Process Service
    Mps(MpsArgs),
    /// Show the GPUs, and who is using them
    Gpus(GpusArgs),
    /// List runs
    Ls(LsArgs),
    /// Show a run and its tasks
    Show(ShowArgs),
    /// Show what a task wrote
    Logs(LogsArgs),
    /// Run the failed tasks of a run again
    Retry(RetryArgs),
    /// Run the rest of a run that was interrupted
    Resume(ResumeArgs),
    /// Stop a run, from any terminal
    Stop(StopArgs),
    /// Print the tasks of a run as JSON, for `run --tasks`
    Export(ExportArgs),
    /// Show settings, their values and where they come from
    Config(ConfigArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages to a folder
    Man {
        /// Where to.
        folder: std::path::PathBuf,
    },
}
