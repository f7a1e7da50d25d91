//! Four sleeping tasks and no terminal: nothing may wake us.

use std::time::Duration;

use anyhow::Result;

use super::gate::Gate;
use super::process::{Watched, pause};
use super::report::{Section, Table, Target};
use super::stage::Stage;

const TASKS: usize = 4;
/// What starting the tasks set in motion is over by then.
const SETTLED: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(3);

pub fn measure(stage: &Stage) -> Result<Section> {
    let folder = stage.folder()?;
    let gate = Gate::close(folder.path())?;
    let commands = folder.path().join("commands");
    fs_err::write(&commands, format!("{}\n", gate.line()).repeat(TASKS))?;
    let mut command = stage.packhorse(&folder.path().join("home"))?;
    command.args(["run", "--slots", &TASKS.to_string()]);
    let packhorse = Watched::start(command.arg(&commands))?;

    gate.wait_for(TASKS, stage)?;
    pause(SETTLED);
    let before = packhorse.switches()?;
    pause(WATCHED);
    let wakeups = packhorse.switches()?.saturating_sub(before);
    drop(gate);
    packhorse.end(stage)?;

    let seconds = WATCHED.as_secs();
    Ok(Section {
        title: "idle: wake-ups",
        what: format!(
            "{TASKS} sleeping tasks, no terminal: context switches of all our threads in \
             {seconds} s."
        ),
        table: Table::new([]),
        targets: vec![Target::new(
            "no wake-ups at all",
            wakeups.to_string(),
            wakeups == 0,
        )],
    })
}
