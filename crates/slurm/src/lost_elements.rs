//! Elements that ended with tasks left, and that neither Slurm nor they themselves start again.
//!
//! A job that Slurm ends for reasons of its own submits the next one itself, as does one whose
//! time is over. What died without a word cannot do that, nor can any job where nodes may submit
//! nothing: whoever follows the run does it for them.

use std::num::NonZeroU32;

use crate::SlurmError;
use crate::arrays::{ArraySubmission, arrays};
use crate::commands::limits;
use crate::folder::{ElementSpec, SubmittedJob};
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

/// Why lost elements were not submitted again.
#[derive(Debug)]
pub(crate) enum LostTrouble {
    /// Nothing has happened: they are to be looked at again.
    NotNow(SlurmError),
    /// They are left.
    Left(SlurmError),
}

impl FollowedRun {
    /// Whether it is still to be seen which elements are lost.
    pub(crate) fn has_unjudged(&self) -> bool {
        self.gone.values().any(|gone| !gone.is_judged)
    }

    /// Submits lost elements again, of those of which everything was read. Each is looked at
    /// once: what Slurm does not take is left.
    pub(crate) fn submit_lost(&mut self) -> Result<LostElements, LostTrouble> {
        let ended = self.gone.iter();
        let ended = ended.filter(|(_, gone)| gone.is_closed && !gone.is_judged);
        let maybe = ended.map(|(&element, _)| element);
        let maybe: Vec<u32> = maybe.filter(|it| self.may_be_lost(*it)).collect();
        let found = self.lost_of(&maybe).map_err(LostTrouble::NotNow)?;
        let lost = found.iter().filter(|(_, again)| again.is_worth_it);
        let lost: Vec<u32> = lost.map(|&(element, _)| element).collect();
        let answer = self.submit_again(&lost);
        // A file that cannot be read or written at the moment.
        if let Err(error @ SlurmError::Io(_)) = answer {
            return Err(LostTrouble::NotNow(error));
        }
        self.leave_lost();
        self.again.extend(found.iter().copied());
        answer.map_err(LostTrouble::Left)?;
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
        let size = limits(slurm.partition.as_deref()).max_array_size;
        let plans = arrays(&rows(lost.to_vec()), size);
        let room = Room::beside_or_behind(self.elements.values(), most, &plans);
        let submission = ArraySubmission {
            folder: &self.folder,
            at_once: room.at_once,
            // What the person has them come after was over when they ran.
            has_dependency: false,
            after: room.after.clone(),
        };
        let jobs = submission.submit(&plans)?;
        // The others come after the first.
        if let Some(first) = jobs.first().filter(|_| !room.after.is_empty()) {
            // If that is not possible, they begin later than they might.
            let _ = come_sooner(&self.folder, first, &room, None);
        }
        // They are known even if the list of jobs cannot be read.
        self.submitted.extend(jobs);
        Ok(())
    }

    /// Those that are lost indeed.
    fn lost_of(&mut self, maybe: &[u32]) -> Result<Vec<(u32, Again)>, SlurmError> {
        let mut lost = Vec::new();
        if maybe.is_empty() || is_stopped(&self.folder) {
            return Ok(lost);
        }
        // A job may have died before it could write down what it had submitted.
        self.adopt()?;
        let jobs = self.folder.jobs()?;
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
            let ended = self.elements.get(&element).map_or(0, |row| row.job);
            if is_in_later_job(&jobs, element, ended) {
                continue;
            }
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
            Some((_, at)) if at.is_over => {
                let is_unfinished = BY_THEMSELVES.contains(&row.state.as_str()) && !at.was_stopped;
                at.left > 0 && (is_innocent || is_unfinished)
            }
            _ => is_innocent,
        }
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

/// Whether an element is in a job that was submitted after this one, by itself or by others.
fn is_in_later_job(jobs: &[SubmittedJob], element: u32, job: u32) -> bool {
    let mut later = jobs.iter().filter(|it| it.job > job);
    later.any(|it| it.each().any(|its| its == element))
}

#[cfg(test)]
mod tests {
    use packhorse_model::Timestamp;

    use super::*;

    #[test]
    fn an_element_is_followed_by_a_later_job_only() {
        let job = |job, elements| SubmittedJob {
            job,
            base: 0,
            elements,
            at: Timestamp(5),
            cluster: None,
        };
        let jobs = [job(10, vec![(0, 4)]), job(11, vec![(2, 1)])];
        assert!(is_in_later_job(&jobs, 2, 10));
        assert!(!is_in_later_job(&jobs, 1, 10));
        // The later one has ended, too.
        assert!(!is_in_later_job(&jobs, 2, 11));
    }
}
