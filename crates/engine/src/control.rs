//! Questions about tasks.

use packhorse_core::{self as core, Now};
use packhorse_model::TaskId;

use crate::engine::Engine;

impl Engine {
    /// Why a task is where it is, in words.
    pub(crate) fn why(&self, task: TaskId) -> String {
        let explanation = core::explain(&self.state, task, Now(self.now.monotonic));
        if let Some(explanation) = explanation {
            return explanation.prose(&self.device_names()).to_string();
        }
        let run = self.runs.get(&task.run);
        if run.is_some_and(|run| run.is_in_store(task.number)) {
            return format!(
                "task {task} waits in line, with more than {} others in front of it",
                self.state.counts().waiting
            );
        }
        if run.is_some_and(|run| run.arriving.iter().any(|it| it.id == task)) {
            return format!("task {task} has just arrived, and is not in line yet");
        }
        format!("run {} does not wait for task {task}", task.run)
    }
}
