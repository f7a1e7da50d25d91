//! The tests of the Python package: its wheel is built, and each Python tests it, all of them
//! side by side.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Step;
use super::job::{self, Limits};
use crate::python::PythonTests;
use crate::setup::show;

/// A build takes as long as the machine needs for it.
const BUILD: Limits = Limits { slow: Duration::from_mins(10), end: Duration::from_hours(1) };

/// Some tests of a suite wait for a minute before they fail.
const SUITE: Limits = Limits { slow: Duration::from_mins(5), end: Duration::from_mins(15) };

/// Builds the wheels, until one fails.
pub fn build_wheels(python: &PythonTests) -> Result<Vec<Step>> {
    python.tidy()?;
    let mut steps = Vec::new();
    for mut wheel in python.wheels() {
        steps.push(run_step(&mut wheel, BUILD)?);
        if steps.iter().any(|step| !step.passed) {
            break;
        }
    }
    Ok(steps)
}

/// Runs every suite.
pub fn run(python: &PythonTests, variables: &[(&str, &Path)]) -> Result<Vec<Step>> {
    let suite = |[mut install, mut tests]: [Command; 2]| -> Result<Step> {
        let installed = run_step(&mut install, BUILD)?;
        if !installed.passed {
            return Ok(installed);
        }
        let mut tested = run_step(tests.envs(variables.iter().copied()), SUITE)?;
        tested.took += installed.took;
        Ok(tested)
    };
    let suites = python.suites();
    let suites: Vec<Result<Step>> = std::thread::scope(|scope| {
        let running: Vec<_> =
            suites.into_iter().map(|commands| scope.spawn(move || suite(commands))).collect();
        running.into_iter().map(|suite| suite.join().expect("it does not panic")).collect()
    });
    suites.into_iter().collect()
}

/// Runs a command, and then shows what it wrote, in one piece.
fn run_step(command: &mut Command, limits: Limits) -> Result<Step> {
    // The folder tells which Python it is.
    let program = Path::new(command.get_program());
    let folder = program.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
    let name = format!("{} ({})", show(command), folder.display());
    let slow = || println!("slow: {name} still runs");
    let done = job::run(command, limits, slow).with_context(|| format!("cannot start {name}"))?;
    let mut text = format!("\n── {name}\n").into_bytes();
    text.extend(&done.output);
    if !done.is_success() {
        let why = if done.took_too_long { ", since it took too long" } else { "" };
        text.extend(format!("failed ({}{why}): {name}\n", done.status).as_bytes());
    }
    job::show_output(&text);
    Ok(Step { took: done.took, passed: done.is_success(), name })
}
