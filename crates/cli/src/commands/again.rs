use anyhow::bail;
use packhorse_model::Exit;
use packhorse_session::settings::Settings;
use packhorse_session::{Resume, WhichTasks};
use packhorse_store::StoredRun;

use super::launch::{observer, output_mode};
use crate::args::AgainArgs;
use crate::{complain, terminal, wording};

/// `packhorse resume` and `packhorse retry`
pub fn again(args: &AgainArgs, which: WhichTasks) -> anyhow::Result<Exit> {
    if let (None, [_, second, ..]) = (&args.run, args.pool.gpus.as_slice()) {
        bail!(
            "`{second}` could be a GPU or the run\n\
             hint: name the run first, or separate GPUs with commas"
        );
    }
    let mut resume = Resume::open(args.run.as_deref(), which, terminal::colour())?;
    if resume.is_done(&mut complain) {
        say_nothing_to_do(resume.run(), which);
        return Ok(Exit::Success);
    }
    let summary = resume.start(
        args.pool.spec(),
        output_mode(&args.output),
        terminal::colour(),
        &Settings::find()?,
        observer(&args.output, false),
        &mut complain,
    )?;
    Ok(summary.exit)
}

fn say_nothing_to_do(run: &StoredRun, which: WhichTasks) {
    let done = wording::count(run.counts.succeeded, "task");
    let id = run.id;
    match which {
        WhichTasks::Unfinished if run.counts.failed > 0 => complain(&format!(
            "nothing to resume: every task of run {id} is settled\nhint: `packhorse retry {id}` runs the {} again that failed",
            run.counts.failed
        )),
        _ => complain(&format!(
            "nothing to do: run {id} has finished, {done} succeeded"
        )),
    }
}
