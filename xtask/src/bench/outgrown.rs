//! Tasks of a kind that needs twice as much memory as was learned.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::environment::BenchEnvironment;
use super::fake_machine::FakeMachine;
use super::report::Section;
use super::statistics::{Measured, ratio};

const MEMORY: u64 = 24 << 30;
const TASKS: usize = 8;
/// The tasks from which too small a peak was learned.
const TRIALS: usize = 5;
/// How long a task holds all of its memory, after half a second in which it takes it.
const HOLD: Duration = Duration::from_millis(19_500);
/// How much longer than with known peaks it may take.
const MOST: f64 = 1.1;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let machine = FakeMachine::new(bench, 1, MEMORY)?;
    let script = format!(
        "read peak step hold < need\nexec {} --peak $peak --steps 4 --step-time $step --hold $hold\n",
        machine.cuda_program().display()
    );
    fs_err::write(machine.folder().join("train.sh"), script)?;
    let home = machine.folder().join("home");
    run(bench, &machine, &home, TRIALS, "4G 0 500ms")?;
    let need = format!("9G 125ms {}ms", HOLD.as_millis());
    let outgrown = run(bench, &machine, &home, TASKS, &need)?;
    let reruns = most_attempts(bench, &machine, &home)? - 1;
    let known = run(bench, &machine, &home, TASKS, &need)?;

    let mut section = Section::new("outgrown: a kind that needs more than was learned");
    section.part(
        format!(
            "{TASKS} tasks on one simulated GPU of 24 GiB that take 9 GiB within half a second and \
             hold them for {HOLD:?}; {TRIALS} tasks of their kind had needed 4 GiB. The real \
             binary, NVML calls and processes."
        ),
        ["what is known", "time"],
    );
    section.row([&"4 GiB", &Measured(outgrown.as_secs_f64(), 2, " s")]);
    section.row([&"9 GiB", &Measured(known.as_secs_f64(), 2, " s")]);
    let name = format!("within {MOST} of the time with known peaks");
    section.at_most(name, ratio(outgrown.as_secs_f64() / known.as_secs_f64()), MOST);
    section.target("each task is run again once at most", reruns, reruns <= 1);
    Ok(section)
}

/// Runs so many tasks that need what this says.
fn run(
    bench: &BenchEnvironment,
    machine: &FakeMachine,
    home: &Path,
    tasks: usize,
    need: &str,
) -> Result<Duration> {
    let mut lines = String::new();
    for number in 0..tasks {
        writeln!(lines, "sh train.sh --lr 0.{number}")?;
    }
    fs_err::write(machine.folder().join("need"), format!("{need}\n"))?;
    fs_err::write(machine.folder().join("tasks"), lines)?;
    let mut command = machine.packhorse(bench, home)?;
    Ok(bench.run(command.args(["run", "--vram", "auto", "tasks"]))?.wall)
}

/// The attempts of the task of the last run that had most.
fn most_attempts(bench: &BenchEnvironment, machine: &FakeMachine, home: &Path) -> Result<u64> {
    let mut attempts = Vec::new();
    for line in machine.show(bench, home)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        // The first is the run.
        attempts.extend(line["attempts"].as_u64());
    }
    ensure!(attempts.len() == TASKS, "{attempts:?}");
    Ok(attempts.into_iter().max().unwrap_or(0))
}
