use std::io::Write as _;

use anyhow::Context as _;
use packhorse_model::Exit;
use packhorse_runner::ask_why;
use packhorse_store::{Home, Reader};

use super::find;
use crate::args::WhyArgs;

/// `packhorse why`
pub fn why(args: &WhyArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let id = find::task(&reader, &args.task)?;
    let run = find::run(&reader, Some(&id.run.to_string()))?;
    let mut out = std::io::stdout().lock();
    let task = reader.task(id)?.map(|(task, _)| task);
    let running = home.is_running(run.id)?;
    if task.is_none() && !running {
        anyhow::bail!(
            "there is no task {id}\nhint: `packhorse show {}` lists the tasks",
            id.run
        );
    }
    if let Some(outcome) = task.and_then(|task| task.outcome) {
        writeln!(out, "task {id} is over: {outcome}")?;
        return Ok(Exit::Success);
    }
    if running {
        let answer = ask_why(&home.run_dir(id.run), id)
            .with_context(|| format!("run {} does not answer", run.id))?;
        writeln!(out, "{answer}")?;
    } else {
        writeln!(
            out,
            "task {id} waits because run {0} is not running\n\
             hint: `packhorse resume {0}` goes on with it",
            run.id
        )?;
    }
    Ok(Exit::Success)
}
