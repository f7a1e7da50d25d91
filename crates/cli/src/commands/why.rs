use std::io::Write as _;

use anyhow::bail;
use packhorse_model::Exit;
use packhorse_proc::ProcEntry;
use packhorse_session::{SessionError, ask_why, can_go_on, find_task, stored_run, stored_task};
use packhorse_slurm::view;
use packhorse_store::{Home, Reader, StoredRun};

use super::slurm::refresh_shown;
use crate::stdout::stdout;
use crate::wording;

/// `packhorse why`
pub fn why(task: &str) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let id = find_task(&reader, task)?;
    refresh_shown(&home, Some(&id.to_string()))?;
    let run = stored_run(&reader, id.run)?;
    let mut out = stdout();
    let running = home.is_running(run.id)?;
    let outcome = match stored_task(&reader, id) {
        Ok((task, _)) => task.outcome,
        // It may not be stored yet.
        Err(SessionError::NotFound(_)) if running => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(outcome) = outcome {
        writeln!(out, "task {id} is over: {outcome}")?;
        return Ok(Exit::Success);
    }
    if reader.run_spec(run.id)?.is_some_and(|spec| spec.slurm.is_some()) {
        let why =
            if reader.is_on_cluster(run.id)? { view(&home, run.id)?.why_waiting() } else { None };
        match why {
            Some(why) => writeln!(out, "task {id} waits: {why}")?,
            None => writeln!(
                out,
                "task {id} waits\nhint: `packhorse slurm status {}` shows its run",
                run.id
            )?,
        }
        return Ok(Exit::Success);
    }
    if running {
        let answer = ask_why(&home.run_dir(id.run), id).map_err(|error| silent(&run, &error))?;
        if answer.starts_with("there is no task") {
            bail!("{answer}\nhint: `packhorse show {}` lists the tasks", run.id);
        }
        writeln!(out, "{}", wording::message(answer))?;
    } else {
        writeln!(out, "task {id} waits because run {} is not running", run.id)?;
        if can_go_on(&reader, run.id)? {
            writeln!(out, "hint: `packhorse resume {}` runs the rest", run.id)?;
        }
    }
    Ok(Exit::Success)
}

/// What a person can do about a run that does not answer.
pub(super) fn silent(run: &StoredRun, error: &std::io::Error) -> anyhow::Error {
    let StoredRun { id, pid, .. } = run;
    let stat = ProcEntry::of(*pid).stat();
    let hint = if stat.is_ok_and(|stat| stat.is_stopped()) {
        format!(
            "its process {pid} is stopped; `fg` in its terminal or `kill -CONT {pid}` lets it go on"
        )
    } else {
        format!(
            "try again, or see what its process {pid} does; `packhorse show {id}` tells what it has stored"
        )
    };
    anyhow::anyhow!("cannot ask run {id}: {error}\nhint: {hint}")
}
