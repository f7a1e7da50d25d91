//! Finding runs and tasks that people name.

use packhorse_model::{ParseValueError, RunId, TaskId};
use packhorse_store::{
    ListedTask, Reader, StoreError, StoredAttempt, StoredRun, StoredTask, TaskFilter,
};

use crate::SessionError;

/// How many tasks are read from the store at once.
const PAGE: u32 = 1000;

/// A run by its number; the latest if none is given.
pub fn find_run(reader: &Reader, text: Option<&str>) -> Result<StoredRun, SessionError> {
    let id = match text {
        None | Some("latest" | "last") => latest(reader)?,
        Some(text) => text.parse().map_err(no_id)?,
    };
    stored_run(reader, id)
}

pub fn stored_run(reader: &Reader, id: RunId) -> Result<StoredRun, SessionError> {
    reader.run(id)?.ok_or_else(|| {
        let text = format!("there is no run {id}\nhint: `packhorse ls` lists the runs");
        SessionError::NotFound(text)
    })
}

/// Whether what is left of a run, or what failed, can be run by another process.
pub fn can_go_on(reader: &Reader, run: RunId) -> Result<bool, StoreError> {
    Ok(reader.run_spec(run)?.is_none_or(|spec| !spec.calls))
}

/// Refuses a run that no other process can go on with.
pub fn check_can_go_on(reader: &Reader, run: RunId) -> Result<(), SessionError> {
    if can_go_on(reader, run).map_err(SessionError::RunSettings)? {
        return Ok(());
    }
    Err(SessionError::CallsEnded(run))
}

/// A task: `12.3`, or `3` for the third of the latest run.
pub fn find_task(reader: &Reader, text: &str) -> Result<TaskId, SessionError> {
    match text.parse() {
        Ok(0) => {
            let text = "tasks are counted from 1";
            Err(SessionError::NotFound(text.to_owned()))
        }
        Ok(number) => Ok(TaskId::new(latest(reader)?, number)),
        Err(_) => text.parse().map_err(no_id),
    }
}

/// The task of this number, and its attempts.
pub fn stored_task(
    reader: &Reader,
    id: TaskId,
) -> Result<(StoredTask, Vec<StoredAttempt>), SessionError> {
    reader.task(id)?.ok_or_else(|| {
        let run = id.run;
        let text = format!("there is no task {id}\nhint: `packhorse show {run}` lists the tasks");
        SessionError::NotFound(text)
    })
}

/// Goes through the tasks of a run, however many there are.
pub fn each_task<E: From<StoreError>>(
    reader: &Reader,
    run: RunId,
    filter: TaskFilter,
    mut act: impl FnMut(ListedTask) -> Result<(), E>,
) -> Result<(), E> {
    let mut after = 0;
    loop {
        let page = reader.tasks(run, filter, after, PAGE)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.task.id.number;
        page.into_iter().try_for_each(&mut act)?;
    }
}

fn latest(reader: &Reader) -> Result<RunId, SessionError> {
    reader.latest_run()?.ok_or_else(|| {
        let text = "there is no run yet\nhint: start one with `packhorse run`";
        SessionError::NotFound(text.to_owned())
    })
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` wants it")]
fn no_id(error: ParseValueError) -> SessionError {
    SessionError::NotFound(error.to_string())
}
