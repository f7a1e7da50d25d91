//! What the loop knows of a task that the core has.

use std::path::Path;
use std::sync::Arc;

use packhorse_core::{ProbePlan, Submission};
use packhorse_model::{Command, DeviceId, TaskId};
use packhorse_store::Start;

use crate::memory::Wants;
use crate::{Appetite, Defaults, Event};

/// A task that the core has.
pub(crate) struct Known {
    pub(crate) command: Arc<Command>,
    /// Attempts of earlier sessions.
    pub(crate) before: u32,
    pub(crate) retries: u32,
    /// The bytes it takes in the backlog, while it is one of the plain tasks that
    /// wait there.
    pub(crate) queued: Option<usize>,
    /// What to write and tell when an attempt starts that could not yet.
    pub(crate) later: Option<(Start, Event)>,
    /// How much GPU memory it asks for.
    pub(crate) appetite: Appetite,
    /// What it is remembered by, if somebody said.
    pub(crate) signature: Option<Arc<str>>,
    /// How it is measured, if nothing is known of it.
    pub(crate) probe: Option<Arc<Command>>,
    /// The folder it runs in, if it is not ours.
    pub(crate) folder: Option<Arc<Path>>,
    /// How its memory is come by, if it is counted.
    pub(crate) wants: Option<Box<Wants>>,
    /// The devices that its attempt runs on.
    pub(crate) devices: Vec<DeviceId>,
    /// Its attempt is ended because of its device, not because of itself.
    pub(crate) uprooted: bool,
}

impl Known {
    pub(crate) fn new(command: Arc<Command>, before: u32, retries: u32) -> Self {
        Self {
            command,
            before,
            retries,
            queued: None,
            later: None,
            appetite: Appetite::Uncounted,
            signature: None,
            probe: None,
            folder: None,
            wants: None,
            devices: Vec::new(),
            uprooted: false,
        }
    }
}

/// About how many bytes a command takes.
pub(crate) fn weight(command: &Command) -> usize {
    match command {
        Command::Line(line) => line.len(),
        Command::Words(words) => words.iter().map(|word| word.len() + 24).sum(),
    }
}

impl Defaults {
    /// What the core needs to know of a task that asks for nothing itself.
    pub(crate) fn submission(&self, id: TaskId) -> Submission {
        Submission {
            id,
            request: self.request.clone(),
            // Tasks are counted from 1.
            batch: self.batch.map_or(0, |size| (id.number.max(1) - 1) / size),
            priority: self.priority,
            retries: self.retries,
            time_limit: self.time_limit,
            expected: None,
            probe: ProbePlan::None,
            after: Vec::new(),
        }
    }

    /// What the loop needs to know of such a task.
    pub(crate) fn known(&self, command: Arc<Command>, before: u32) -> Known {
        let probe = self.probe.as_ref().and_then(|probe| probe.of(&command));
        Known {
            appetite: self.appetite.clone(),
            signature: self.signature.clone(),
            probe: probe.map(Arc::new),
            ..Known::new(command, before, self.retries)
        }
    }
}
