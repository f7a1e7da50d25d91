//! What a run would be like, without running it.

use std::collections::BTreeMap;

use packhorse_core::Submission;
use packhorse_engine::forecast;
use packhorse_model::{RunId, TaskId, TaskSpec};
use packhorse_store::Reader;
use rustc_hash::FxHashMap;

use crate::SessionError;
use crate::devices::Devices;

/// What the scheduler would be told of these tasks, in their order, as tasks of `run`.
/// `reader` knows what was learned, if anything was.
pub fn plan_submissions(
    devices: &Devices,
    defaults: &TaskSpec,
    reader: Option<&Reader>,
    run: RunId,
    tasks: Vec<TaskSpec>,
) -> Result<Vec<Submission>, SessionError> {
    let folder = std::env::current_dir().unwrap_or_default();
    let mut names: FxHashMap<String, TaskId> = FxHashMap::default();
    let mut submissions = Vec::with_capacity(tasks.len());
    let mut error = None;
    for (spec, number) in tasks.into_iter().zip(1..) {
        let id = TaskId::new(run, number);
        let spec = spec.over(defaults);
        let peaks = |signature: &str| match reader.map(|reader| reader.peaks(signature)) {
            Some(Ok(peaks)) => peaks,
            Some(Err(failed)) => {
                error.get_or_insert(failed);
                BTreeMap::new()
            }
            None => BTreeMap::new(),
        };
        let mut submission = forecast(&devices.info, devices.slots, id, &spec, &folder, peaks);
        let after = spec.after.iter().filter_map(|name| names.get(name));
        submission.after = after.copied().collect();
        if let Some(name) = spec.name {
            names.insert(name, id);
        }
        submissions.push(submission);
    }
    match error {
        Some(error) => Err(error.into()),
        None => Ok(submissions),
    }
}
