//! The whole command line, and what has to be done to it before it can be read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{
    Arg, Args as _, Command, CommandFactory as _, Error, FromArgMatches as _, Parser, Subcommand,
};

use super::pool::parse_bool;
use super::{
    ConfigArgs, CsvArgs, ExperimentArgs, ExportArgs, GpusArgs, GridArgs, LogsArgs, LsArgs, MpsArgs,
    NodeArgs, PeaksArgs, PlanArgs, PlannedDoor, ProbeArgs, ResultsArgs, ResumeArgs, RetryArgs,
    RunArgs, ShowArgs, SlurmCommandArgs, StopArgs, SweepArgs,
};

/// Packs your work onto your GPUs.
#[derive(Debug, Parser)]
#[command(name = "packhorse", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Start with: packhorse run --gpus 0,1 commands.txt")]
pub struct Cli {
    /// Read settings from this file instead of the nearest packhorse.toml
    ///
    /// A packhorse.toml that is found in this folder or above it counts only if no other user
    /// can write to it. A file that is named here counts whoever can, and may set everything.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Verb,
}

impl Cli {
    /// Reads the words of a command line.
    pub fn read(words: &[OsString]) -> Result<Self, Error> {
        let words = &complete_mps(words);
        let shielded: Vec<OsString>;
        let mut verbs = words.iter().skip(1).skip_while(|verb| *verb == "plan");
        let words = if verbs.next().is_some_and(|verb| verb == "sweep") {
            shielded = words.iter().map(shield).collect();
            &shielded
        } else {
            words
        };
        let mut grammar = Self::command();
        let matches = grammar.try_get_matches_from_mut(words);
        let matches = matches.map_err(|error| advised(error, &grammar, words))?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let matches = matches.subcommand().map(|(_, matches)| matches);
        match (&mut cli.command, matches) {
            (Verb::Sweep(sweep), Some(matches)) => {
                sweep.parameters = occurrences(matches, "param");
                sweep.about_running = about_running(matches);
            }
            (Verb::Plan(plan), Some(matches)) => {
                if let Some(PlannedDoor::Sweep(sweep)) = &mut plan.door
                    && let Some((_, matches)) = matches.subcommand()
                {
                    sweep.door.parameters = occurrences(matches, "param");
                }
            }
            _ => {}
        }
        Ok(cli)
    }
}

/// An error with better advice than that a word such as `-1` could stand after `--`.
fn advised(mut error: Error, grammar: &Command, words: &[OsString]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    error.remove(ContextKind::Suggested);
    let texts: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let mut verbs = texts.iter().skip(1);
    let verb = verbs.find_map(|word| grammar.find_subcommand(word));
    let (Some(verb), Some(ContextValue::String(wrong))) =
        (verb, error.get(ContextKind::InvalidArg))
    else {
        return error;
    };
    let at = texts.iter().position(|word| word == wrong);
    let before = at.and_then(|at| texts.get(at.checked_sub(1)?));
    let is_before = |arg: &Arg| {
        let long = arg.get_long().map(|name| format!("--{name}"));
        let short = arg.get_short().map(|name| format!("-{name}"));
        let mut names = [long, short].into_iter().flatten();
        names.any(|name| before.is_some_and(|word| **word == name))
    };
    let takes_value = |arg: &&Arg| is_before(arg) && arg.get_action().takes_values();
    let tip = if let (Some(_), Some(before)) = (verb.get_arguments().find(takes_value), before) {
        format!("no value of '{before}' begins with '-'")
    } else if let Some(program) = program_as_file(verb, &texts) {
        format!("put one command after --, as in 'packhorse run -- {program} …'")
    } else if wrong.parse::<f64>().is_ok() && verb.get_positionals().any(is_counted) {
        "runs and tasks are counted from 1".to_owned()
    } else if !wrong.starts_with('-') && verb.get_positionals().any(Arg::is_last_set) {
        format!("a command stands after '--', as in '-- {wrong} …'")
    } else {
        return error;
    };
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
    error
}

/// `run python train.py --lr 0.1`: the program of what was meant as a command.
fn program_as_file<'a>(verb: &Command, words: &[&'a str]) -> Option<&'a str> {
    let mut words = words.iter().copied();
    words.find(|word| verb.get_name() == "run" && *word == "run")?;
    let first = words.next().map(Path::new)?;
    let is_program = !first.exists() && packhorse_session::is_on_path(first);
    first.to_str().filter(|_| is_program)
}

/// Whether a run or a task is meant.
fn is_counted(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().any(|name| matches!(name.as_str(), "RUN" | "TASK"))
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
    let sweep = SweepArgs::augment_args(Command::new("sweep"));
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
    Plan(Box<PlanArgs>),
    /// Run the rows of a CSV file, by priority and GPU memory
    Csv(CsvArgs),
    /// Run a test for each combination of parameters, each with a folder for its results
    Grid(GridArgs),
    /// Run the repetitions of experiments, each with a folder for its results
    Exp(Box<ExperimentArgs>),
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
    /// Share the GPUs of a Slurm node
    Node(NodeArgs),
    /// Show the GPUs, and who is using them
    Gpus(GpusArgs),
    /// List runs
    Ls(LsArgs),
    /// Show a run and its tasks
    Show(ShowArgs),
    /// Show what came of tests: parameters, outcomes, metrics
    Results(ResultsArgs),
    /// Show what a task wrote
    Logs(LogsArgs),
    /// Run the failed tasks of a run again
    Retry(RetryArgs),
    /// Run the rest of a run that was interrupted
    Resume(ResumeArgs),
    /// Stop a run, from any terminal
    Stop(StopArgs),
    /// See and control runs on a Slurm cluster
    Slurm(Box<SlurmCommandArgs>),
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
        folder: PathBuf,
    },
}
