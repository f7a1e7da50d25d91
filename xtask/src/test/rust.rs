//! The tests in Rust: each is a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Step;
use super::job::{self, Done, Limits};
use super::left_out::LeftOut;
use crate::folders::cargo;
use crate::setup::show;

/// Nothing in the tests takes long, so what does hangs.
const LIMITS: Limits = Limits { slow: Duration::from_secs(30), end: Duration::from_mins(3) };

/// Tests between two lines of progress.
const TOLD: usize = 200;

/// A program with tests in it.
pub struct TestProgram {
    /// Such as `cli::node`: the folder of its package, and which one of it.
    name: String,
    file: PathBuf,
    /// Its package's folder.
    folder: PathBuf,
}

impl TestProgram {
    /// What cargo says that it has built, if that is one.
    fn of(line: &str) -> Option<Self> {
        let built: Value = serde_json::from_str(line).ok()?;
        if built["profile"]["test"] != true {
            return None;
        }
        let file = PathBuf::from(built["executable"].as_str()?);
        let folder = PathBuf::from(built["manifest_path"].as_str()?).parent()?.to_owned();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let target = &built["target"];
        let name = match target["kind"][0].as_str()? {
            "test" | "bin" => format!("{package}::{}", target["name"].as_str()?),
            _ => package,
        };
        Some(Self { name, file, folder })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// The names of its tests, without those that only run if they are named.
    fn tests(&self) -> Result<Vec<String>> {
        let list = |words: &[&str]| -> Result<Vec<String>> {
            let mut command = self.command();
            command.args(["--list", "--format", "terse"]).args(words);
            let output = command.stdin(Stdio::null()).output();
            let output = output.with_context(|| format!("cannot start {}", self.name))?;
            ensure!(output.status.success(), "{} cannot list its tests", self.name);
            let text = String::from_utf8(output.stdout)?;
            let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
            Ok(names.map(str::to_owned).collect())
        };
        let ignored = list(&["--ignored"])?;
        Ok(list(&[])?.into_iter().filter(|name| !ignored.contains(name)).collect())
    }
}

/// Builds the programs with tests.
pub fn build(steps: &mut Vec<Step>) -> Result<Vec<TestProgram>> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run"]);
    let name = show(&command);
    println!("\n── {name}");
    command.arg("--message-format=json-render-diagnostics");
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    steps.push(Step { name, took: start.elapsed(), passed: output.status.success() });
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(TestProgram::of).collect())
}

/// One test of one of the programs.
struct Test<'a> {
    program: &'a TestProgram,
    name: String,
}

impl Test<'_> {
    /// The name that is printed and that words are matched against.
    fn title(&self) -> String {
        format!("{} {}", self.program.name, self.name)
    }

    fn run(&self, variables: &[(&str, &Path)]) -> std::io::Result<Done> {
        let mut command = self.program.command();
        command.args(["--exact", &self.name, "--nocapture"]);
        command.envs(variables.iter().copied());
        let slow = || println!("slow: {} still runs", self.title());
        job::run(&mut command, LIMITS, slow)
    }
}

/// How many tests run at once: most wait more than they work.
fn threads() -> usize {
    3 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the tests that have one of these words in their names, or all.
pub fn run(programs: &[TestProgram], words: &[String], left_out: &LeftOut) -> Result<Step> {
    let variables = left_out.variables();
    let mut tests = Vec::new();
    for program in programs {
        let named = program.tests()?.into_iter().map(|name| Test { program, name });
        tests.extend(named.filter(|test| {
            let title = test.title();
            words.is_empty() || words.iter().any(|word| title.contains(word))
        }));
    }
    ensure!(!tests.is_empty(), "no test has {} in its name", words.join(" or "));
    let threads = threads();
    println!("{} tests, {threads} at a time", tests.len());
    let start = Instant::now();
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut failed = Vec::new();
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(problem) = problem(test, test.run(&variables)) {
                failed.push(problem);
            }
            let ended = ended.fetch_add(1, Ordering::Relaxed) + 1;
            if ended.is_multiple_of(TOLD) {
                println!("{ended} of {} tests have ended", tests.len());
            }
        }
        failed
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let failed = workers.into_iter().map(|worker| worker.join().expect("it does not panic"));
        failed.flatten().collect()
    });
    for title in &failed {
        println!("failed: {title}");
    }
    let files = programs.iter().filter_map(|program| program.file.file_name()?.to_str());
    let (failed_count, left_out) = (failed.len(), left_out.count_of(files)?);
    let passed = tests.len().saturating_sub(failed_count + left_out);
    println!("Rust: {passed} passed, {failed_count} failed, {left_out} left out");
    let name = format!("{} tests in Rust", tests.len());
    Ok(Step { name, took: start.elapsed(), passed: failed.is_empty() })
}

/// What is wrong with how a test ended, if something is; with its output, that is printed.
fn problem(test: &Test<'_>, done: std::io::Result<Done>) -> Option<String> {
    let title = test.title();
    let done = match done {
        Ok(done) if done.is_success() => return None,
        Ok(done) => done,
        Err(error) => {
            println!("failed: {title}: {error}");
            return Some(title);
        }
    };
    let seconds = done.took.as_secs_f64();
    let how = if done.took_too_long {
        format!("ended after {seconds:.0} s, which is too long")
    } else {
        format!("{} after {seconds:.1} s", done.status)
    };
    // In one piece, since others print, too.
    let mut shown = format!("\nfailed: {title}: {how}\n").into_bytes();
    shown.extend(done.output);
    shown.push(b'\n');
    job::show_output(&shown);
    Some(format!("{title} ({how})"))
}
