//! Results that runs of ours on a cluster are still to come to. Nothing in their folders tells:
//! a task makes its folder when it starts.

use std::path::PathBuf;

use anyhow::bail;
use packhorse_model::TaskId;
use packhorse_session::{each_task, stored_run};
use packhorse_slurm::{AskSlurm, SlurmError, refresh};
use packhorse_store::{Home, Reader, TaskFilter};
use rustc_hash::FxHashMap;

/// The folders of results that tasks on a cluster are to fill.
#[derive(Default)]
pub struct ResultsOnCluster {
    folders: FxHashMap<PathBuf, TaskId>,
    /// The first of them that somebody else is to fill now.
    taken: Option<(TaskId, String)>,
}

impl ResultsOnCluster {
    /// Those of all runs that are not over.
    pub fn find() -> anyhow::Result<Self> {
        let home = Home::locate()?;
        let mut found = Self::default();
        if !home.db().exists() {
            return Ok(found);
        }
        let runs = Reader::open(&home)?.cluster_runs(true)?;
        for run in runs {
            // What cannot be asked now is as it was.
            let _ = refresh(&home, run, AskSlurm::Yes);
            let reader = Reader::open(&home)?;
            if !reader.is_on_cluster(run)? {
                continue;
            }
            let stored = stored_run(&reader, run)?;
            each_task(&reader, run, TaskFilter::Unfinished, |listed| {
                let (id, spec) = (listed.task.id, listed.task.spec);
                if let Some(results) = spec.results {
                    let folder = stored.cwd.join(spec.folder.unwrap_or_default());
                    found.folders.insert(folder.join(results), id);
                }
                Ok::<(), SlurmError>(())
            })?;
        }
        Ok(found)
    }

    /// Takes note of a folder of results that is to be filled now.
    pub fn note(&mut self, folder: impl FnOnce() -> String) -> anyhow::Result<()> {
        if self.folders.is_empty() || self.taken.is_some() {
            return Ok(());
        }
        let folder = folder();
        let task = self.folders.get(&std::env::current_dir()?.join(&folder));
        self.taken = task.map(|task| (*task, folder));
        Ok(())
    }

    /// Refuses to go on if one of those is theirs: whoever comes second would replace what
    /// the first has done.
    pub fn refuse(self) -> anyhow::Result<()> {
        let Some((task, folder)) = self.taken else {
            return Ok(());
        };
        let run = task.run;
        bail!(
            "`{folder}` belongs to task {task}, which is still to run on the cluster\n\
             hint: wait for it with `packhorse slurm wait {run}`, or end its run with \
             `packhorse stop {run}`"
        );
    }
}
