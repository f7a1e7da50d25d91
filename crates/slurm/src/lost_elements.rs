//! Elements that ended with tasks left, and that neither Slurm nor they themselves start again.
//!
//! A job that Slurm ends for reasons of its own submits the next one itself, as does one whose
//! time is over. What died without a word cannot do that, nor can any job where nodes may submit
//! nothing: whoever follows the run does it for them.

use std::num::NonZeroU32;

use packhorse_model::DEFAULT_REQUEUES;

use crate::SlurmError;
use crate::arrays::{ArraySubmission, arrays};
use crate::commands::limits;
use crate::folder::ElementSpec;
use crate::followed_run::{Again, FollowedRun};
use crate::planning::rows;
use crate::prospect::Prospect;
use crate::queue::ElementPhase;
use crate::stop_file::is_stopped;
use crate::submit::has_dependency;

/// States of jobs that ended through no fault of theirs, and that Slurm does not start again.
const NOT_THEIR_FAULT: [&str; 4] = ["PREEMPTED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL"];

/// States of jobs that ended by themselves: nobody has cancelled them.
const BY_THEMSELVES: [&str; 2] = ["COMPLETED", "FAILED"];

/// What has become of lost elements.
#[derive(Debug, Default)]
pub(crate) struct LostElements {
    /// How many were submitted again.
    pub(crate) submitted: usize,
    /// How many were not, since that has led nowhere before.
    pub(crate) given_up: usize,
}

impl FollowedRun {
    /// Whether it is still to be seen which elements are lost.
    pub(crate) fn has_unjudged(&self) -> bool {
        self.gone.values().any(|gone| !gone.is_judged)
    }

    /// Submits lost elements again, of those of which everything was read. Each is looked at
    /// once: what Slurm does not take is left.
    pub(crate) fn submit_lost(&mut self) -> Result<LostElements, SlurmError> {
        let ended = self.gone.iter();
        let ended = ended.filter(|(_, gone)| gone.is_closed && !gone.is_judged);
        let ended: Vec<u32> = ended.map(|(&element, _)| element).collect();
        let maybe = ended.iter().copied().filter(|it| self.may_be_lost(*it));
        let maybe: Vec<u32> = maybe.collect();
        let slurm = self.file.spec.slurm.clone().unwrap_or_default();
        let room = self.room(slurm.jobs.map(NonZeroU32::get));
        let mut found = LostElements::default();
        if !maybe.is_empty() && room == Some(0) {
            // As many run as --jobs allows: when one of them has ended, there is room.
            return Ok(found);
        }
        let lost = self.lost_of(&maybe, &mut found)?;
        for element in ended {
            if let Some(gone) = self.gone.get_mut(&element) {
                gone.is_judged = true;
            }
        }
        if lost.is_empty() {
            return Ok(found);
        }
        let submission = ArraySubmission {
            folder: &self.folder,
            at_once: room,
            has_dependency: has_dependency(&slurm),
        };
        let size = limits(slurm.partition.as_deref()).max_array_size;
        submission.submit(&arrays(&rows(lost.clone()), size))?;
        found.submitted = lost.len();
        for element in lost {
            self.begins_again(element);
        }
        Ok(found)
    }

    /// How many more may be in the queue, of at most so many.
    fn room(&self, most: Option<u32>) -> Option<u32> {
        let rows = self.elements.values();
        let active = rows.filter(|row| row.phase() != ElementPhase::Over).count();
        most.map(|most| most.saturating_sub(u32::try_from(active).unwrap_or(u32::MAX)))
    }

    /// Those that are lost indeed.
    fn lost_of(&mut self, maybe: &[u32], found: &mut LostElements) -> Result<Vec<u32>, SlurmError> {
        let mut lost = Vec::new();
        if maybe.is_empty() || is_stopped(&self.folder) {
            return Ok(lost);
        }
        let specs = self.folder.elements()?;
        let Some(latest) = specs.last() else {
            return Ok(lost);
        };
        for &element in maybe {
            let spec = specs.get(element as usize);
            // What was left of those before the run was resumed is in others now.
            let Some(spec) = spec.filter(|spec| spec.file == latest.file) else {
                continue;
            };
            match self.is_lost(element, spec)? {
                Some(true) => lost.push(element),
                Some(false) => found.given_up += 1,
                None => {}
            }
        }
        Ok(lost)
    }

    /// Whether an element has ended with tasks left, by what Slurm and it itself have said.
    fn may_be_lost(&self, element: u32) -> bool {
        let Some(row) = self.elements.get(&element) else {
            return false;
        };
        if row.phase() != ElementPhase::Over {
            return false;
        }
        let last = self.files.last_life(element);
        let is_innocent = NOT_THEIR_FAULT.contains(&row.state.as_str());
        match last {
            Some((life, _)) if self.has_followed(element, life) => false,
            Some((_, at)) if at.is_over => {
                let is_unfinished = BY_THEMSELVES.contains(&row.state.as_str()) && !at.was_stopped;
                at.left > 0 && (is_innocent || is_unfinished)
            }
            _ => is_innocent,
        }
    }

    /// Whether a life has submitted the next one itself. The list of jobs may be older.
    fn has_followed(&self, element: u32, life: u32) -> bool {
        let name = format!("jobs/{element}.{life}.json");
        self.folder.file(&name).exists()
    }

    /// Whether an element is to be submitted again. `None`: there is nothing to do for it.
    fn is_lost(&mut self, element: u32, spec: &ElementSpec) -> Result<Option<bool>, SlurmError> {
        let prospect = Prospect::of(&self.folder, &self.file, element, spec)?;
        let is_innocent = self
            .elements
            .get(&element)
            .is_some_and(|row| NOT_THEIR_FAULT.contains(&row.state.as_str()));
        if prospect.left == 0 || !(is_innocent || prospect.came_on) {
            // It has said so itself.
            return Ok(None);
        }
        let slurm = self.file.spec.slurm.as_ref();
        let most = slurm.and_then(|slurm| slurm.requeues);
        let again = self.again.entry(element).or_default();
        // A job that never came to run has brought nothing on, whatever the one before did.
        let came_on = prospect.came_on && prospect.lives > again.lives;
        let in_vain = if came_on { 0 } else { again.in_vain + 1 };
        *again = Again {
            lives: prospect.lives,
            in_vain,
        };
        Ok(Some(in_vain <= most.unwrap_or(DEFAULT_REQUEUES)))
    }
}
