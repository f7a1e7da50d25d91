//! One run fills a GPU with many short tasks, and another comes that wants all of it: how long
//! it waits.

use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::environment::BenchEnvironment;
use super::process::{RunningProcess, pause};
use super::report::Section;
use super::statistics::{median, ratio};

const TASKS: usize = 40;
const LENGTH: Duration = Duration::from_millis(250);
const ROUNDS: usize = 10;
/// By then the first run is in the middle of its tasks.
const SETTLED: Duration = Duration::from_millis(700);

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let rounds = bench.rounds(ROUNDS);
    let mut section = Section::new("fairness: between runs");
    section.part(
        format!(
            "{TASKS} tasks of {} ms on halves of a GPU, in one run. Another run comes that wants \
             the whole GPU for one task: how long it takes altogether, {rounds} times, by the \
             length of a task.",
            LENGTH.as_millis()
        ),
        ["kind of tasks", "median", "longest"],
    );
    let mut longest = 0.0;
    for (kind, share) in [("halves", "0.5"), ("whole GPUs", "1")] {
        let waits = (0..rounds).map(|_| wait(bench, share)).collect::<Result<Vec<f64>>>()?;
        let most = waits.iter().copied().fold(0.0, f64::max);
        longest = f64::max(longest, most);
        section.row([&kind, &ratio(median(waits)), &ratio(most)]);
    }
    section.at_most("longest wait, in tasks", ratio(longest), 2.5);
    Ok(section)
}

/// How long the other run takes, in lengths of a task.
fn wait(bench: &BenchEnvironment, share: &str) -> Result<f64> {
    let folder = bench.folder()?;
    let home = folder.path().join("home");
    let commands = folder.path().join("commands");
    fs_err::write(&commands, format!("sleep {}\n", LENGTH.as_secs_f64()).repeat(TASKS))?;
    let mut command = bench.packhorse(&home)?;
    command.args(["run", "--gpus", "0", "-g", share, "-q"]);
    let first = RunningProcess::start(command.arg(&commands))?;
    pause(SETTLED);
    let mut command = bench.packhorse(&home)?;
    command.args(["run", "--gpus", "0", "-q", "--", "true"]);
    let other = bench.run(&mut command)?;
    first.signal(Signal::TERM)?;
    first.end(bench)?;
    Ok(other.wall.as_secs_f64() / LENGTH.as_secs_f64())
}
