//! `cargo xtask test`: all checks, those that find mistakes soonest first.

use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};

use crate::folders::cargo;
use crate::python::PythonTests;
use crate::setup::{self, Venv, show};
use crate::slurm;

#[derive(clap::Args)]
pub struct TestArgs {
    /// Only test the Python package, with a build that is there already or made now
    #[arg(long)]
    python: bool,
    /// Only install what the tests need
    #[arg(long)]
    set_up: bool,
    /// Arguments for the test runner, such as a test's name
    #[arg(last = true)]
    runner: Vec<String>,
}

/// What set-up has found.
struct Tools {
    venv: Option<Venv>,
    python: Option<PythonTests>,
    nextest: bool,
    missing: Vec<Error>,
}

/// Installs what is needed and runs every check; stops at the first failure.
pub fn run(args: &TestArgs) -> Result<ExitCode> {
    let mut times = Vec::new();

    heading("set-up");
    let start = Instant::now();
    let tools = set_up(args);
    times.push(("set-up".to_owned(), start.elapsed()));
    for missing in &tools.missing {
        println!("{missing}");
    }
    if !tools.missing.is_empty() && setup::in_ci() {
        println!("with CI=true a missing part is a failure");
        return Ok(ExitCode::FAILURE);
    }

    let mut result = ExitCode::SUCCESS;
    for mut step in steps(&tools, args) {
        let name = show(&step);
        heading(&name);
        let start = Instant::now();
        let status = step.status().with_context(|| format!("cannot start {name}"))?;
        times.push((name.clone(), start.elapsed()));
        if !status.success() {
            println!("\nfailed ({status}): {name}");
            result = exit_code(status);
            break;
        }
    }
    summary(&times);
    for missing in &tools.missing {
        println!("{missing}");
    }
    Ok(result)
}

fn set_up(args: &TestArgs) -> Tools {
    let mut missing = Vec::new();
    let mut note = |result: Result<()>| {
        let there = result.is_ok();
        missing.extend(result.err());
        there
    };
    note(setup::component("rustfmt", "fmt"));
    note(setup::component("clippy", "clippy"));
    let nextest = note(setup::nextest());
    note(setup::program("tmux", "tmux"));
    if note(slurm::installed()) {
        note(slurm::root_24_11());
    }
    let mut venv = None;
    note(Venv::ready().map(|ready| venv = Some(ready)));
    let mut python = None;
    // Arguments are for the test runner, and name single tests.
    if args.runner.is_empty() {
        note(PythonTests::ready().map(|ready| python = Some(ready)));
    }
    Tools { venv, python, nextest, missing }
}

fn steps(tools: &Tools, args: &TestArgs) -> Vec<Command> {
    let step = |words: &str| {
        let mut command = cargo();
        command.args(words.split(' '));
        command
    };
    let mut tests = if tools.nextest {
        step("nextest run --workspace")
    } else {
        step("test --workspace --lib --bins --tests")
    };
    tests.args(&args.runner);
    if let Some(venv) = &tools.venv {
        tests.env("PACKHORSE_TEST_PYTHON", venv.python());
        tests.env("PACKHORSE_TEST_ORIGINAL", venv.bin());
    }
    let python = tools.python.iter().flat_map(PythonTests::steps);
    if args.set_up {
        return Vec::new();
    }
    if args.python {
        let build = step("build --workspace --lib --bins");
        return [build].into_iter().chain(python).collect();
    }
    let mut steps = vec![
        step("fmt --all --check"),
        step("clippy --workspace --all-targets -- -D warnings"),
        // A test runs an example, which `cargo test --tests` would not build.
        step("build --workspace --lib --bins --examples"),
        tests,
        step("test --workspace --doc --quiet"),
    ];
    if setup::find("cargo-deny").is_some() {
        // Not the advisories: a test must not fail because of what was published
        // yesterday, nor need the network.
        steps.push(step("deny check licenses bans sources"));
    }
    steps.extend(python);
    steps
}

fn heading(text: &str) {
    println!("\n── {text}");
}

fn summary(times: &[(String, Duration)]) {
    heading("time");
    for (step, time) in times {
        println!("{:7.1} s  {step}", time.as_secs_f64());
    }
}

/// The exit code of the failing step; one killed by a signal has none.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
