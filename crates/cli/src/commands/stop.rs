use anyhow::bail;
use packhorse_model::{Exit, StopMode};
use packhorse_session::{SessionError, StoppedRun, can_go_on, find_run, stop_run};
use packhorse_store::{Home, Reader, StoredRun};

use super::slurm::cancel_run;
use super::why::silent;
use crate::args::StopArgs;
use crate::complain;

/// So many runs are looked at for one that is going on.
const RECENT: u32 = 1000;

/// The run that is going on, if it is clear which one that is; the latest if none is.
fn the_one_that_runs(home: &Home, reader: &Reader) -> anyhow::Result<StoredRun> {
    let mut running = reader.runs(RECENT)?;
    running.retain(|run| matches!(home.is_running(run.id), Ok(true)));
    if running.len() > 1 {
        let numbers: Vec<String> = running.iter().map(|run| run.id.to_string()).collect();
        let (last, numbers) = (running[0].id, numbers.join(", "));
        bail!(
            "several runs are going on: {numbers}\nhint: `packhorse stop {last}` stops one of them"
        );
    }
    match running.pop() {
        Some(run) => Ok(run),
        None => Ok(find_run(reader, None)?),
    }
}

/// `packhorse stop`
pub fn stop(args: &StopArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let stored = match args.run.as_deref() {
        None => the_one_that_runs(&home, &reader)?,
        named => find_run(&reader, named)?,
    };
    let run = stored.id;
    if reader.run_spec(run)?.is_some_and(|spec| spec.slurm.is_some()) {
        return cancel_run(&home, run);
    }
    let how = if args.now { StopMode::Kill } else { StopMode::Terminate };
    let stopped = stop_run(&home, run, how).map_err(|error| match error {
        // What it was asked holds, once it goes on.
        SessionError::Io(error) => silent(&stored, &error),
        error => error.into(),
    })?;
    complain(&match stopped {
        StoppedRun::Alive if !can_go_on(&reader, run)? => format!("run {run} has stopped"),
        StoppedRun::Alive => format!(
            "run {run} has stopped\nhint: `packhorse resume {run}` runs what is left of it, if anything is"
        ),
        StoppedRun::Dead(0) => format!("run {run} is not running"),
        StoppedRun::Dead(1) => {
            format!("run {run} was not running; a process that it had left behind was ended")
        }
        StoppedRun::Dead(many) => format!(
            "run {run} was not running; {many} processes that it had left behind were ended"
        ),
    });
    Ok(Exit::Success)
}
