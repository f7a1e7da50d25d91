use std::time::Duration;

use packhorse_model::{RunId, StopMode};
use packhorse_store::{Home, StoreError};

use crate::SessionError;
use crate::control::ask_to_stop;
use crate::leaders::end_left_running;

/// How long what a dead run left behind has to end before it is killed.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedRun {
    /// A run that was going on, and is over now.
    Alive,
    /// Nobody was at work on it; so many processes that it had left behind were ended.
    Dead(usize),
}

/// Ends a run that another process is at work on, or what a dead one left behind. Waits
/// until all of it is over.
pub fn stop_run(home: &Home, run: RunId, how: StopMode) -> Result<StoppedRun, SessionError> {
    if home.is_running(run)? {
        ask_to_stop(&home.run_dir(run), how)?;
        home.wait_until_over(run)?;
        return Ok(StoppedRun::Alive);
    }
    // Who goes on with it meanwhile would lose what they start. Of one without a folder
    // nobody can.
    let _lock = match home.lock_run(run) {
        Err(StoreError::NoSuchRun { .. }) => None,
        lock => Some(lock?),
    };
    let grace = match how {
        StopMode::Terminate => GRACE,
        StopMode::Kill => Duration::ZERO,
    };
    Ok(StoppedRun::Dead(end_left_running(home, run, grace)?))
}
