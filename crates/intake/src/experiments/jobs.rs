//! Jobs: so many repetitions of an experiment at once.

use std::collections::HashMap;

use super::experiment::Experiment;

/// Where the jobs of an experiment begin.
pub(super) struct JobStart {
    first_job: u32,
    /// How many repetitions of the same name are before its own.
    before: u32,
    reps_per_job: u32,
}

impl JobStart {
    /// The job of a repetition at this place among those of the experiment.
    pub fn job(&self, within: u32) -> u32 {
        self.first_job + (self.before + within) / self.reps_per_job
    }
}

/// Repetitions of one name, over all its runs, are cut into jobs.
pub(super) fn cut_into_jobs(experiments: &[Experiment], starts: &[u32]) -> (Vec<JobStart>, u32) {
    struct JobGroup {
        reps_per_job: u32,
        repetitions: u32,
        first_job: u32,
    }
    let mut groups: Vec<JobGroup> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut places = Vec::with_capacity(experiments.len());
    for (experiment, bounds) in experiments.iter().zip(starts.windows(2)) {
        let group = *by_name.entry(&experiment.name).or_insert_with(|| {
            groups.push(JobGroup {
                reps_per_job: experiment.reps_per_job,
                repetitions: 0,
                first_job: 0,
            });
            groups.len() - 1
        });
        places.push((group, groups[group].repetitions));
        groups[group].repetitions += bounds[1] - bounds[0];
    }
    let mut jobs = 0;
    for group in &mut groups {
        group.first_job = jobs;
        jobs += group.repetitions.div_ceil(group.reps_per_job);
    }
    let starts = places.into_iter().map(|(group, before)| JobStart {
        first_job: groups[group].first_job,
        before,
        reps_per_job: groups[group].reps_per_job,
    });
    (starts.collect(), jobs)
}
