//! What another life of an element would have to do, and whether the last one has brought it
//! on: what leads nowhere is not repeated for ever.

use std::rc::Rc;

use packhorse_model::DEFAULT_REQUEUES;

use crate::SlurmError;
use crate::earlier_lives::EarlierLives;
use crate::element_journal::ElementJournal;
use crate::folder::{ElementSpec, RunFile, SharedFolder};

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prospect {
    /// How many lives it has had.
    pub(crate) lives: u32,
    /// How many tasks another one would run.
    pub(crate) left: u64,
    /// Whether the last one has ended or begun any.
    pub(crate) came_on: bool,
}

impl Prospect {
    /// What is to be expected of an element, by all that its lives have written.
    pub(crate) fn of(
        folder: &SharedFolder,
        run: &RunFile,
        number: u32,
        element: &ElementSpec,
    ) -> Result<Self, SlurmError> {
        let earlier = Rc::new(EarlierLives::read(folder, number)?);
        let requeues = requeues(run);
        let mut journal = ElementJournal::new(run.run, folder, element, &earlier, requeues, None)?;
        let (_, left) = journal.look_through()?;
        Ok(Self { lives: earlier.lives, left, came_on: earlier.came_on })
    }
}

/// How often a task is run again that was cut off.
pub(crate) fn requeues(run: &RunFile) -> u32 {
    let said = run.spec.slurm.as_ref().and_then(|slurm| slurm.requeues);
    said.unwrap_or(DEFAULT_REQUEUES)
}
