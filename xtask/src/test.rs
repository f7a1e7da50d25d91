//! `cargo xtask test`: all checks, those that find mistakes soonest first.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use packhorse_test_parts::{SKIP, find};

use crate::folders::cargo;
use crate::python::PythonTests;
use crate::setup::{in_ci, show};

mod job;
mod left_out;
mod preparation;
mod rust;
mod suites;

use left_out::LeftOut;

#[derive(clap::Args)]
pub struct TestArgs {
    /// Only test the Python package
    #[arg(long, conflicts_with = "names")]
    python: bool,
    /// Only install what the tests need
    #[arg(long)]
    set_up: bool,
    /// Only run the tests in Rust with one of these words in their names
    #[arg(last = true)]
    names: Vec<String>,
}

/// What builds what tests run besides their own programs: an example, and programs and libraries
/// of other packages.
pub const BUILD: &str = "build --workspace --lib --bins --examples";

/// Something that was done, for the list at the end.
struct Step {
    name: String,
    took: Duration,
    passed: bool,
}

/// Installs what is needed and runs every check; stops at the first failure.
pub fn run(args: &TestArgs) -> Result<ExitCode> {
    job::take_signals()?;
    heading("set-up");
    let named = left_out::named()?;
    if in_ci() && !named.is_empty() {
        println!("with CI=true no test is left out: unset {SKIP}");
        return Ok(ExitCode::FAILURE);
    }
    let start = Instant::now();
    let problems = preparation::prepare(&named);
    let left_out = LeftOut::find(&named)?;
    let mut steps = vec![Step { name: "set-up".to_owned(), took: start.elapsed(), passed: true }];
    show_problems(&problems);
    left_out.lines().iter().for_each(|line| println!("left out: {line}"));
    if in_ci() && !(problems.is_empty() && left_out.is_empty()) {
        println!("with CI=true a missing part is a failure");
        return Ok(ExitCode::FAILURE);
    }
    if args.set_up {
        return Ok(ExitCode::SUCCESS);
    }

    check(args, &left_out, &mut steps)?;
    heading("time");
    for step in &steps {
        println!("{:7.1} s  {}", step.took.as_secs_f64(), step.name);
    }
    for step in steps.iter().filter(|step| !step.passed) {
        println!("failed: {}", step.name);
    }
    show_problems(&problems);
    left_out.counted()?.iter().for_each(|line| println!("left out: {line}"));
    Ok(if has_failed(&steps) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show_problems(problems: &[Error]) {
    for problem in problems {
        println!("{problem:#}");
    }
}

/// Runs the checks until one fails.
fn check(args: &TestArgs, left_out: &LeftOut, steps: &mut Vec<Step>) -> Result<()> {
    let python = match left_out.package {
        None if args.names.is_empty() => Some(PythonTests::find()?),
        _ => None,
    };
    if !args.python {
        let fmt = step("fmt --all --check");
        visibly(vec![fmt, step("clippy --workspace --all-targets -- -D warnings")], steps)?;
    }
    if let Some(python) = python.as_ref().filter(|_| !has_failed(steps)) {
        // Each build puts its own packhorse into the target folder, and that of the tests has to
        // stay there while they run: it comes last.
        steps.extend(suites::build_wheels(python)?);
    }
    if has_failed(steps) {
        return Ok(());
    }
    visibly(vec![step(BUILD)], steps)?;
    if has_failed(steps) {
        return Ok(());
    }
    side_by_side(args, left_out, python.as_ref(), steps)?;
    if has_failed(steps) || args.python || !args.names.is_empty() {
        return Ok(());
    }
    let mut commands = vec![step("test --workspace --doc --quiet")];
    if find("cargo-deny").is_some() {
        // Not the advisories: a test must not fail because of what was published
        // yesterday, nor need the network.
        commands.push(step("deny check licenses bans sources"));
    } else {
        println!("\ncargo-deny is not installed: licences are not checked");
    }
    visibly(commands, steps)
}

fn step(words: &str) -> Command {
    let mut command = cargo();
    command.args(words.split(' '));
    command
}

fn has_failed(steps: &[Step]) -> bool {
    steps.iter().any(|step| !step.passed)
}

/// Runs commands that write to our terminal, one after the other, until one fails.
fn visibly(commands: Vec<Command>, steps: &mut Vec<Step>) -> Result<()> {
    for mut command in commands {
        let name = show(&command);
        heading(&name);
        let start = Instant::now();
        let status = command.status().with_context(|| format!("cannot start {name}"))?;
        steps.push(Step { name, took: start.elapsed(), passed: status.success() });
        if !status.success() {
            break;
        }
    }
    Ok(())
}

/// Runs the tests in Rust and those of the Python package, as far as they are wanted, at the
/// same time: both wait more than they work.
fn side_by_side(
    args: &TestArgs,
    left_out: &LeftOut,
    python: Option<&PythonTests>,
    steps: &mut Vec<Step>,
) -> Result<()> {
    let programs = if args.python { Vec::new() } else { rust::build(steps)? };
    if has_failed(steps) {
        return Ok(());
    }
    heading("tests");
    let variables = left_out.variables();
    std::thread::scope(|scope| {
        let suites = python.map(|python| scope.spawn(move || suites::run(python, &variables)));
        if !args.python {
            steps.push(rust::run(&programs, &args.names, left_out)?);
        }
        if let Some(suites) = suites {
            steps.extend(suites.join().expect("it does not panic")?);
        }
        Ok(())
    })
}

fn heading(text: &str) {
    println!("\n── {text}");
}
