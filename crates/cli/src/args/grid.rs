use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use packhorse_intake::grid::Condition;

use super::{LaunchArgs, Rerun};

/// Run a test for each combination of parameters, each with a folder for its results
///
/// FILE is YAML, TOML, JSON, or a Python file with `config = {...}`, which is read and
/// not run. Each test has a folder such as results/lr-0.1,method-GAN, and is skipped if
/// that says that it has succeeded.
#[derive(Debug, Args)]
#[command(after_help = "\
The command is the file's `command`, or what stands after --. Parameters replace {name}
where that is written; if it is written nowhere, they are appended as --name value. A
task also finds them as JSON in PACKHORSE_PARAMS, and its folder in PACKHORSE_RESULTS.

Example: packhorse grid tests.yaml --only method=GAN -- python train.py

docs/grid.md describes the file.")]
pub struct GridArgs {
    /// The grid file: .yaml, .yml, .toml, .json or .py
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The command, instead of the one in the file
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// List the tests, each with its state, and run nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub list: bool,

    /// Print the commands that would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Run all tests, also those that are done; =left-alone: only those left alone are added
    ///
    /// A test is left alone if it may run in another container or on another machine.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "all", hide_possible_values = true)]
    pub force: Option<Rerun>,

    /// Only tests whose parameter has this value; may be given several times
    ///
    /// Conditions on the same parameter are alternatives; if there are conditions on
    /// several parameters, all of them must hold.
    #[arg(long, value_name = "KEY=VALUE")]
    pub only: Vec<Condition>,

    /// What its run is like.
    #[command(flatten)]
    pub launch: LaunchArgs,
}
