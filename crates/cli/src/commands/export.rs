use std::io::Write as _;

use packhorse_model::{Exit, GpuRequest};
use packhorse_session::{each_task, find_run};
use packhorse_store::{Home, Reader, TaskFilter};
use rustc_hash::FxHashSet;

use super::slurm::refresh_shown;
use crate::args::ExportArgs;
use crate::stdout::stdout;

/// `packhorse export`
pub fn export(args: &ExportArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    refresh_shown(&home, args.run.as_deref())?;
    let reader = Reader::open(&home)?;
    let run = find_run(&reader, args.run.as_deref())?;
    let defaults = reader.run_spec(run.id)?.unwrap_or_default().defaults;
    let filter = if args.failed { TaskFilter::Failed } else { TaskFilter::All };
    let mut out = std::io::BufWriter::new(stdout());
    let mut printed = FxHashSet::default();
    each_task(&reader, run.id, filter, |listed| {
        // What the run said of all tasks is said of each: they may run elsewhere.
        let vram = listed.task.spec.vram;
        let mut spec = listed.task.spec.over(&defaults);
        if spec.gpus == Some(GpuRequest::None) {
            spec.vram = vram;
        }
        spec.folder = Some(match spec.folder {
            Some(folder) => run.cwd.join(folder),
            None => run.cwd.clone(),
        });
        // With --failed, what it came after may have succeeded, and is not printed.
        spec.after.retain(|name| printed.contains(name));
        printed.extend(spec.name.clone());
        writeln!(out, "{}", serde_json::to_string(&spec)?)?;
        anyhow::Ok(())
    })?;
    out.flush()?;
    Ok(Exit::Success)
}
