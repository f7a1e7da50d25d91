//! What a run would be like, without running it.

use std::path::Path;
use std::sync::Arc;

use packhorse_core::Submission;
use packhorse_intake::lines::Options;
use packhorse_model::{Command, RunId, TaskId};
use packhorse_store::Reader;
use rustc_hash::FxHashMap;

use crate::memory::foresee;
use crate::wishes::{lay_over, overrides};
use crate::{Defaults, Places, RunError};

/// What the scheduler would be told of these commands, in their order, as tasks
/// of `run`. `reader` knows what was learned, if anything was.
pub fn submissions(
    places: &Places,
    defaults: &Defaults,
    reader: Option<&Reader>,
    run: RunId,
    commands: Vec<(Command, Options)>,
) -> Result<Vec<Submission>, RunError> {
    let folder = std::env::current_dir().unwrap_or_default();
    let mut names: FxHashMap<String, TaskId> = FxHashMap::default();
    let mut submissions = Vec::with_capacity(commands.len());
    for ((command, options), number) in commands.into_iter().zip(1..) {
        let id = TaskId::new(run, number);
        let mut submission = defaults.submission(id);
        let mut known = defaults.known(Arc::new(command), 0);
        lay_over(places, &overrides(&options), &mut submission, &mut known);
        let folder: &Path = known.folder.as_deref().unwrap_or(&folder);
        foresee(places, reader, folder, &mut submission, &known)?;
        let after = options.after.iter().filter_map(|name| names.get(name));
        submission.after = after.copied().collect();
        if let Some(name) = options.name {
            names.insert(name, id);
        }
        submissions.push(submission);
    }
    Ok(submissions)
}
