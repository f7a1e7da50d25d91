use packhorse_model::{Exit, StopMode};
use packhorse_session::{SessionError, StoppedRun, find_run, stop_run};
use packhorse_store::{Home, Reader};

use super::why::silent;
use crate::args::StopArgs;
use crate::complain;

/// `packhorse stop`
pub fn stop(args: &StopArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let stored = find_run(&Reader::open(&home)?, args.run.as_deref())?;
    let run = stored.id;
    let how = if args.now {
        StopMode::Kill
    } else {
        StopMode::Terminate
    };
    let stopped = stop_run(&home, run, how).map_err(|error| match error {
        // What it was asked holds, once it goes on.
        SessionError::Io(error) => silent(&stored, &error),
        error => error.into(),
    })?;
    complain(&match stopped {
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
