//! How finished tasks ended: two bits each.
//!
//! A task may name one that has long finished as its dependency, and an id must
//! not be used twice; nothing else about finished tasks matters here.

use packhorse_model::{Outcome, RunId, TaskId};
use rustc_hash::FxHashMap;

/// How a task ended, as far as it matters to tasks that come after it. The last of
/// several decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TaskEnding {
    /// Tasks after it may start.
    Succeeded = 1,
    /// Tasks after it are skipped.
    Unsuccessful = 2,
    /// Tasks after it are interrupted too.
    Interrupted = 3,
}

impl From<Outcome> for TaskEnding {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Interrupted => Self::Interrupted,
            _ => Self::Unsuccessful,
        }
    }
}

impl TaskEnding {
    /// What becomes of those after it, unless they may start.
    pub(crate) fn passed_on(self) -> Option<Outcome> {
        match self {
            Self::Succeeded => None,
            Self::Unsuccessful => Some(Outcome::Skipped),
            Self::Interrupted => Some(Outcome::Interrupted),
        }
    }
}

/// All that have finished, 32 neighbouring tasks of a run in one word.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinishedTasks {
    words: FxHashMap<(RunId, u32), u64>,
    len: u64,
}

impl FinishedTasks {
    pub(crate) fn record(&mut self, task: TaskId, ending: TaskEnding) {
        let word = self.words.entry((task.run, task.number / 32)).or_default();
        *word |= (ending as u64) << (task.number % 32 * 2);
        self.len += 1;
    }

    pub(crate) fn get(&self, task: TaskId) -> Option<TaskEnding> {
        let word = self.words.get(&(task.run, task.number / 32))?;
        match word >> (task.number % 32 * 2) & 3 {
            1 => Some(TaskEnding::Succeeded),
            2 => Some(TaskEnding::Unsuccessful),
            3 => Some(TaskEnding::Interrupted),
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}
