//! Which run or task a person means.

use anyhow::{Context as _, bail};
use packhorse_model::{RunId, TaskId};
use packhorse_store::{Reader, Run};

/// A run by its number; the latest if none is given.
pub fn run(reader: &Reader, text: Option<&str>) -> anyhow::Result<Run> {
    let id = match text {
        None | Some("latest" | "last") => latest(reader)?,
        Some(text) => text.parse()?,
    };
    reader
        .run(id)?
        .with_context(|| format!("there is no run {id}\nhint: `packhorse ls` lists the runs"))
}

/// A task: `12.3`, or `3` for the third of the latest run.
pub fn task(reader: &Reader, text: &str) -> anyhow::Result<TaskId> {
    if let Ok(number) = text.parse::<u32>() {
        if number == 0 {
            bail!("tasks are counted from 1");
        }
        return Ok(TaskId::new(latest(reader)?, number));
    }
    Ok(text.parse()?)
}

fn latest(reader: &Reader) -> anyhow::Result<RunId> {
    reader
        .latest_run()?
        .context("there is no run yet\nhint: start one with `packhorse run`")
}
