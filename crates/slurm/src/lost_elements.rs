//! Elements that ended with tasks left, and that neither Slurm nor they themselves start again.
//!
//! A job that Slurm ends for reasons of its own submits the next one itself, as does one whose
//! time is over. What died without a word cannot do that, nor can any job where nodes may submit
//! nothing: whoever follows the run does it for them.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use crate::SlurmError;
use crate::arrays::{ArraySubmission, arrays};
use crate::commands::{limits, queue_of_run};
use crate::folder::{ElementSpec, SubmittedJob};
use crate::followed_run::{Again, FollowedRun};
use crate::planning::rows;
use crate::prospect::{Prospect, requeues};
use crate::queue::ElementPhase;
use crate::room::{JobRoom, SOON, come_sooner};
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
    /// Why it is not known of others whether they are lost. They are to be looked at again.
    pub(crate) trouble: Option<SlurmError>,
}

/// What was found of elements that may be lost.
#[derive(Debug, Default)]
struct FoundElements {
    /// Those that are.
    lost: Vec<(u32, Again)>,
    /// Those of which files cannot be read at the moment.
    unread: BTreeSet<u32>,
    /// Why not, of the first of them.
    trouble: Option<SlurmError>,
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
        let lost = found.lost.iter().filter(|(_, again)| again.is_worth_it);
        let lost: Vec<u32> = lost.map(|&(element, _)| element).collect();
        let answer = self.submit_again(&lost);
        // A file that cannot be read or written at the moment.
        if let Err(error @ SlurmError::Io(_)) = answer {
            return Err(LostTrouble::NotNow(error));
        }
        self.leave_lost_but(&found.unread);
        self.again.extend(found.lost.iter().copied());
        answer.map_err(LostTrouble::Left)?;
        for &element in &lost {
            self.begins_again(element);
        }
        Ok(LostElements {
            submitted: lost.len(),
            given_up: found.lost.len() - lost.len(),
            trouble: found.trouble,
        })
    }

    /// Whatever has ended is not looked at again.
    pub(crate) fn leave_lost(&mut self) {
        self.leave_lost_but(&BTreeSet::new());
    }

    fn leave_lost_but(&mut self, unread: &BTreeSet<u32>) {
        let ended = self.gone.iter_mut().filter(|(_, gone)| gone.is_closed);
        let judged = ended.filter(|(element, _)| !unread.contains(element));
        judged.for_each(|(_, gone)| gone.is_judged = true);
    }

    fn submit_again(&mut self, lost: &[u32]) -> Result<(), SlurmError> {
        if lost.is_empty() {
            return Ok(());
        }
        let slurm = self.file.spec.slurm.clone().unwrap_or_default();
        let most = slurm.jobs.map(NonZeroU32::get);
        let size = limits(slurm.partition.as_deref()).max_array_size;
        let plans = arrays(&rows(lost.to_vec()), size);
        // What jobs have submitted since Slurm was last asked counts, too.
        let others = match most {
            Some(_) => queue_of_run(&self.folder, SOON),
            None => Ok(Vec::new()),
        };
        let others = others.unwrap_or_else(|_| self.elements.values().cloned().collect());
        let room = JobRoom::beside_or_behind(&others, most, &plans);
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
    fn lost_of(&mut self, maybe: &[u32]) -> Result<FoundElements, SlurmError> {
        let mut found = FoundElements::default();
        if maybe.is_empty() || is_stopped(&self.folder) {
            return Ok(found);
        }
        // A job may have died before it could write down what it had submitted.
        self.adopt()?;
        let jobs = self.folder.jobs()?;
        let specs = self.folder.elements()?;
        let Some(latest) = specs.last() else {
            return Ok(found);
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
            // Files of one that cannot be read are in no other's way.
            match self.is_lost(element, spec, ended) {
                Ok(again) => found.lost.extend(again.map(|again| (element, again))),
                Err(error) => {
                    found.unread.insert(element);
                    found.trouble.get_or_insert(error);
                }
            }
        }
        Ok(found)
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

    /// Whether an element is to be submitted again whose job has ended. `None`: there is nothing
    /// to do for it.
    fn is_lost(
        &mut self,
        element: u32,
        spec: &ElementSpec,
        ended: u32,
    ) -> Result<Option<Again>, SlurmError> {
        let prospect = Prospect::of(&self.folder, &self.file, element, spec)?;
        // A network file system may list a folder as it was a while ago, but it opens a file by
        // its name as soon as that is there.
        let next = self.folder.last_job_of(element, prospect.lives)?;
        if let Some(next) = next.filter(|next| is_in_later_job([next], element, ended)) {
            self.folder.add_job(&next)?;
            self.note_adopted(vec![next]);
            return Ok(None);
        }
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
fn is_in_later_job<'j>(
    jobs: impl IntoIterator<Item = &'j SubmittedJob>,
    element: u32,
    job: u32,
) -> bool {
    let mut later = jobs.into_iter().filter(|it| it.job > job);
    later.any(|it| it.each().any(|its| its == element))
}

#[cfg(test)]
mod tests {
    use fs_err as fs;
    use packhorse_model::{NewRun, Record, RunSpec, SlurmSpec, Timestamp};
    use packhorse_store::{Home, Writer, new_run_uuid};

    use super::*;
    use crate::folder::{RunFile, SharedFolder};
    use crate::queue::read_queue;

    fn job(job: u32, elements: Vec<(u32, u32)>) -> SubmittedJob {
        SubmittedJob { job, base: 0, elements, at: Timestamp(5), cluster: None }
    }

    #[test]
    fn an_element_is_followed_by_a_later_job_only() {
        let jobs = [job(10, vec![(0, 4)]), job(11, vec![(2, 1)])];
        assert!(is_in_later_job(&jobs, 2, 10));
        assert!(!is_in_later_job(&jobs, 1, 10));
        // The later one has ended, too.
        assert!(!is_in_later_job(&jobs, 2, 11));
    }

    /// A run of so many elements with a task each, all of which died with their node in job 10.
    fn dead_run(at: &std::path::Path, elements: u32) -> FollowedRun {
        let home = Home::open(at.join("home")).unwrap();
        let (run, lock) = home.new_run().unwrap();
        let folder = SharedFolder::create(&at.join("shared")).unwrap();
        let spec = RunSpec {
            slurm: Some(SlurmSpec {
                folder: Some(folder.path().to_owned()),
                ..SlurmSpec::default()
            }),
            ..RunSpec::default()
        };
        let tasks = "{\"command\":\"a\"}\n".repeat(elements as usize);
        fs::write(folder.file(SharedFolder::TASKS), tasks).unwrap();
        let all: Vec<ElementSpec> = (1..=elements)
            .map(|line| ElementSpec {
                file: SharedFolder::TASKS.to_owned(),
                lines: vec![(line, 1)],
                offset_line: 1,
                ..ElementSpec::default()
            })
            .collect();
        folder.write_elements(&all).unwrap();
        let uuid = new_run_uuid(Timestamp(5));
        let file = RunFile {
            run,
            uuid,
            home: home.id().unwrap(),
            folder: packhorse_model::ByteString::default(),
            spec: spec.clone(),
        };
        folder.write_run(&file).unwrap();
        let facts = Box::new(NewRun {
            uuid,
            started: Timestamp(5),
            cwd: at.to_owned(),
            argv: Vec::new(),
            host: String::new(),
            pid: 1,
            spec,
        });
        let mut writer = Writer::start(&home).unwrap();
        writer.send(Record::NewRun { run, facts });
        writer.finish().unwrap();
        let mut followed = FollowedRun::open(&home, lock).unwrap();
        followed.folder.add_job(&job(10, vec![(0, elements)])).unwrap();
        for element in 0..elements {
            fs::write(followed.folder.outcome_file(element, 1), "").unwrap();
            let row = read_queue(&format!("10|{element}|NODE_FAIL|None|n1")).remove(0);
            followed.elements.insert(element, row);
        }
        followed
    }

    fn lost(found: &FoundElements) -> Vec<u32> {
        found.lost.iter().map(|(element, _)| *element).collect()
    }

    #[test]
    fn an_element_whose_file_cannot_be_read_is_in_no_others_way() {
        let parent = tempfile::tempdir().unwrap();
        let mut run = dead_run(parent.path(), 3);
        // Not even root can read a folder as a file.
        let path = run.folder.outcome_file(1, 1);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let found = run.lost_of(&[0, 1, 2]).unwrap();
        assert_eq!(lost(&found), [0, 2]);
        assert_eq!(found.unread, BTreeSet::from([1]));
        assert!(found.trouble.is_some());
        fs::remove_dir(&path).unwrap();
        let found = run.lost_of(&[1]).unwrap();
        assert_eq!((lost(&found), found.unread.len()), (vec![1], 0));
    }

    #[test]
    fn what_an_element_has_submitted_is_found_by_its_name() {
        let parent = tempfile::tempdir().unwrap();
        let mut run = dead_run(parent.path(), 3);
        let at = run.folder.path().to_owned();
        let next = job(11, vec![(1, 1)]);
        run.folder.add_job_of(1, 1, &next).unwrap();
        // One that has begun already.
        let begun = job(12, vec![(2, 1)]);
        run.folder.add_job_of(2, 1, &begun).unwrap();
        fs::write(run.folder.outcome_file(2, 2), "").unwrap();
        let specs = run.folder.elements().unwrap();
        let mut is_lost = |element: u32, ended| {
            let again = run.is_lost(element, &specs[element as usize], ended);
            again.unwrap().is_some()
        };
        assert!(is_lost(0, 10) && !is_lost(1, 10) && !is_lost(2, 10));
        // That one has ended, too.
        assert!(is_lost(1, 11));
        assert_eq!(run.take_adopted(), [next.clone(), begun.clone()]);
        // They are followed even while the folder is listed as it was.
        fs::remove_dir_all(at.join("jobs")).unwrap();
        let known = run.jobs();
        assert_eq!(known[1..], [next, begun]);
    }
}
