use anyhow::bail;
use packhorse_model::{Exit, PoolSpec, SlurmSpec};
use packhorse_session::{Resume, WhichTasks, find_run};
use packhorse_store::{Home, Reader, StoredRun};

use super::launch::{find_settings_of, observer};
use super::slurm::resume_run;
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
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let run = find_run(&reader, args.run.as_deref())?.id;
    if reader.run_spec(run)?.is_some_and(|spec| spec.slurm.is_some()) {
        if args.pool.spec() != PoolSpec::default() {
            bail!(
                "run {run} is on Slurm, where options about this machine's GPUs have no effect\n\
                 hint: `packhorse slurm resume {run}` takes options of Slurm"
            );
        }
        let changes = SlurmSpec::default();
        return resume_run(&home, run, which, changes, false, &args.output);
    }
    drop(reader);
    let mut resume = Resume::open(args.run.as_deref(), which, terminal::colour())?;
    if resume.is_done(&mut complain) {
        let run = resume.run();
        say_nothing_to_do(run, which);
        // It stands for the whole run, as it does when something was left.
        let failed = which == WhichTasks::Unfinished && run.counts.failed > 0;
        return Ok(if failed { Exit::TasksFailed } else { Exit::Success });
    }
    let output = args.output.mode();
    let shown = output.or(resume.spec().output);
    let shown = observer(&args.output, resume.spec(), shown, false);
    let settings = find_settings_of(resume.config())?;
    let summary = resume.start(
        args.pool.spec(),
        output,
        terminal::colour(),
        &settings,
        shown,
        &mut complain,
    )?;
    Ok(summary.exit)
}

pub fn say_nothing_to_do(run: &StoredRun, which: WhichTasks) {
    let done = wording::count(run.counts.succeeded, "task");
    let id = run.id;
    match which {
        WhichTasks::Unfinished if run.counts.failed > 0 => complain(&format!(
            "nothing to resume: every task of run {id} is settled\nhint: `packhorse retry {id}` runs again what failed ({})",
            run.counts.failed
        )),
        _ => complain(&format!("nothing to do: run {id} has finished, {done} succeeded")),
    }
}
