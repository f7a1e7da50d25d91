//! What `grid` and `exp` say of tests that run, may run or are done.

use anyhow::bail;
use packhorse_model::Exit;
use packhorse_session::{RunningTest, RunningTests, TestState};
use packhorse_store::Home;

use crate::{complain, wording};

/// Says which tests do not run since they may be at work elsewhere. Returns how many there are.
/// `way_out` is the option that runs them all the same.
pub fn warn_of_left_alone(running: &RunningTests, way_out: &str) -> u64 {
    let count = running.left_alone_count();
    if let Some((test, folder)) = running.left_alone() {
        let (others, it) = match count {
            1 => (String::new(), "it"),
            _ => (format!(" (and {} more)", count - 1), "them"),
        };
        complain(&format!(
            "warning: `{folder}`{others} is left alone: {}\n\
             hint: wait for it; if it is over, {way_out} runs {it} again, and nothing that is done",
            test.describe()
        ));
    }
    count
}

/// The exit status of a run that left so many tests alone.
pub fn exit_with(left_alone: u64, exit: Exit) -> Exit {
    match exit {
        Exit::Success if left_alone > 0 => Exit::TasksFailed,
        exit => exit,
    }
}

/// Refuses to run tests while one of them still runs.
pub fn refuse_at_work(running: &RunningTests) -> anyhow::Result<()> {
    if let Some((RunningTest { task, home, .. }, folder)) = running.at_work() {
        let end = if Home::locate()?.id()? == *home {
            format!("end its run with `packhorse stop {}`", task.run)
        } else {
            "end its run, which has another PACKHORSE_HOME".to_owned()
        };
        // Two of them in one folder would spoil each other's results.
        bail!(
            "`{folder}` is in use: its test still runs, as task {task}\n\
             hint: wait for it, or {end}"
        );
    }
    Ok(())
}

/// How many places there are.
pub fn count(places: &[(u32, u32)]) -> u64 {
    places.iter().map(|(_, count)| u64::from(*count)).sum()
}

/// `3 tests are`
pub fn are(number: u64, thing: &str) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", wording::count(number, thing))
}

/// Why a test is skipped.
pub fn why(state: &TestState) -> &str {
    match state {
        TestState::Unmarked => "its folder is there",
        other => other.word(),
    }
}
