//! Four sleeping tasks and no terminal: nothing may wake packhorse.

use std::time::Duration;

use anyhow::Result;

use super::environment::BenchEnvironment;
use super::gate::TaskGate;
use super::process::{RunningProcess, pause};
use super::report::Section;

const TASKS: usize = 4;
/// By then, all work of starting the tasks is done.
const SETTLED: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(3);

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let folder = bench.folder()?;
    let gate = TaskGate::close(folder.path())?;
    let commands = folder.path().join("commands");
    fs_err::write(&commands, format!("{}\n", gate.line()).repeat(TASKS))?;
    let mut command = bench.packhorse(&folder.path().join("home"))?;
    command.args(["run", "--slots", &TASKS.to_string()]);
    let packhorse = RunningProcess::start(command.arg(&commands))?;

    gate.wait_for(TASKS, bench)?;
    pause(SETTLED);
    let before = packhorse.switches()?;
    pause(WATCHED);
    let wakeups = packhorse.switches()?.saturating_sub(before);
    drop(gate);
    packhorse.end(bench)?;

    let mut section = Section::new("idle: wake-ups");
    let seconds = WATCHED.as_secs();
    let what = format!(
        "{TASKS} sleeping tasks, no terminal: context switches of all our threads in {seconds} s."
    );
    section.part(what, []);
    section.target("no wake-ups at all", wakeups, wakeups == 0);
    Ok(section)
}
