//! Elements that ended with tasks left, and that neither Slurm nor they themselves start again.
//!
//! A job that Slurm ends for reasons of its own submits the next one itself, as does one whose
//! time is over. What died without a word cannot do that, nor can any job where nodes may submit
//! nothing: whoever follows the run does it for them.

use std::num::NonZeroU32;

use crate::SlurmError;
use crate::arrays::{ArraySubmission, arrays};
use crate::commands::limits;
use crate::folder::ElementSpec;
use crate::followed_run::{Again, FollowedRun};
use crate::planning::rows;
use crate::prospect::{Prospect, requeues};
use crate::queue::ElementPhase;
use crate::room::{Room, come_sooner};
use crate::stop_file::is_stopped;

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
    /// once: what Slurm does not take is left. If a file cannot be read or written at the
    /// moment, nothing has happened, and they are to be looked at again.
    pub(crate) fn submit_lost(&mut self) -> Result<LostElements, SlurmError> {
        let ended = self.gone.iter();
        let ended = ended.filter(|(_, gone)| gone.is_closed && !gone.is_judged);
        let maybe = ended.map(|(&element, _)| element);
        let maybe: Vec<u32> = maybe.filter(|it| self.may_be_lost(*it)).collect();
        let found = self.lost_of(&maybe)?;
        let lost = found.iter().filter(|(_, again)| again.is_worth_it);
        let lost: Vec<u32> = lost.map(|&(element, _)| element).collect();
        let answer = self.submit_again(&lost);
        if !matches!(answer, Err(SlurmError::Io(_))) {
            self.leave_lost();
            self.again.extend(found.iter().copied());
        }
        answer?;
        for &element in &lost {
            self.begins_again(element);
        }
        Ok(LostElements {
            submitted: lost.len(),
            given_up: found.len() - lost.len(),
        })
    }

    /// Whatever has ended is not looked at again.
    pub(crate) fn leave_lost(&mut self) {
        let ended = self.gone.values_mut().filter(|gone| gone.is_closed);
        ended.for_each(|gone| gone.is_judged = true);
    }

    fn submit_again(&mut self, lost: &[u32]) -> Result<(), SlurmError> {
        if lost.is_empty() {
            return Ok(());
        }
        let slurm = self.file.spec.slurm.clone().unwrap_or_default();
        let most = slurm.jobs.map(NonZeroU32::get);
        let room = Room::beside_or_behind(self.elements.values(), most, lost.len());
        let is_behind = !room.after.is_empty();
        let submission = ArraySubmission {
            folder: &self.folder,
            at_once: room.at_once,
            // What the person has them come after was over when they ran.
            has_dependency: false,
            after: room.after,
        };
        let size = limits(slurm.partition.as_deref()).max_array_size;
        let jobs = submission.submit(&arrays(&rows(lost.to_vec()), size))?;
        // The others come after the first.
        if let Some(first) = jobs.first().filter(|_| is_behind) {
            // If that is not possible, they begin later than they might.
            let _ = come_sooner(&self.folder, first, most, None);
        }
        // They are known even if the list of jobs cannot be read.
        self.submitted.extend(jobs);
        Ok(())
    }

    /// Those that are lost indeed.
    fn lost_of(&self, maybe: &[u32]) -> Result<Vec<(u32, Again)>, SlurmError> {
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
            lost.extend(self.is_lost(element, spec)?.map(|again| (element, again)));
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
    fn is_lost(&self, element: u32, spec: &ElementSpec) -> Result<Option<Again>, SlurmError> {
        let prospect = Prospect::of(&self.folder, &self.file, element, spec)?;
        let is_innocent = self
            .elements
            .get(&element)
            .is_some_and(|row| NOT_THEIR_FAULT.contains(&row.state.as_str()));
        if prospect.left == 0 || !(is_innocent || prospect.came_on) {
            // It has said so itself.
            return Ok(None);
        }
        let before = self.again.get(&element).copied().unwrap_or_default();
        // A job that never came to run has brought nothing on, whatever the one before did.
        let came_on = prospect.came_on && prospect.lives > before.lives;
        let in_vain = if came_on { 0 } else { before.in_vain + 1 };
        Ok(Some(Again {
            lives: prospect.lives,
            in_vain,
            is_worth_it: in_vain <= requeues(&self.file),
        }))
    }
}
