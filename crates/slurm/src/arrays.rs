//! From elements to arrays of Slurm: as few as its MaxArraySize allows, all or none of them.

use crate::SlurmError;
use crate::folder::{SharedFolder, SubmittedJob};
use crate::planning::Rows;
use crate::sbatch::{submit_array, take_back};

/// What Slurm allows if it does not say: its own default.
const MAX_ARRAY_SIZE: u32 = 1001;

/// Elements of one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArrayPlan {
    /// The element that index 0 stands for.
    pub(crate) base: u32,
    /// The elements: the first of several in a row, and how many.
    pub(crate) elements: Rows,
}

impl ArrayPlan {
    /// How many elements it has.
    pub(crate) fn count(&self) -> u32 {
        self.elements.iter().map(|(_, count)| count).sum()
    }

    /// What sbatch is told: `--array=0-3,7%2`.
    pub(crate) fn option(&self, at_once: Option<u32>) -> String {
        let rows = self.elements.iter().map(|(first, count)| {
            let first = first - self.base;
            match count {
                1 => first.to_string(),
                count => format!("{first}-{}", first + count - 1),
            }
        });
        let rows: Vec<String> = rows.collect();
        let at_once = at_once.map_or_else(String::new, |most| format!("%{most}"));
        format!("--array={}{at_once}", rows.join(","))
    }
}

/// Cuts elements into arrays none of whose indices is as high as `max_size`.
pub(crate) fn arrays(elements: &[(u32, u32)], max_size: Option<u32>) -> Vec<ArrayPlan> {
    let size = max_size.unwrap_or(MAX_ARRAY_SIZE).max(1);
    let mut plans: Vec<ArrayPlan> = Vec::new();
    for &(mut first, mut count) in elements {
        while count > 0 {
            let base = first / size * size;
            let here = count.min(base + size - first);
            match plans.last_mut() {
                Some(plan) if plan.base == base => plan.elements.push((first, here)),
                _ => plans.push(ArrayPlan { base, elements: vec![(first, here)] }),
            }
            first += here;
            count -= here;
        }
    }
    plans
}

/// Slurm's words for coming after jobs, whatever becomes of those.
pub(crate) fn after_any(jobs: &[String]) -> Option<String> {
    (!jobs.is_empty()).then(|| format!("afterany:{}", jobs.join(":")))
}

/// What sbatch is told of a job that comes after others.
pub(crate) fn coming_after(jobs: &[String]) -> Option<String> {
    after_any(jobs).map(|jobs| format!("--dependency={jobs}"))
}

/// How arrays are submitted.
pub(crate) struct ArraySubmission<'a> {
    pub(crate) folder: &'a SharedFolder,
    /// At most so many elements at a time, of all arrays together.
    pub(crate) at_once: Option<u32>,
    /// Whether the person has said themselves what the jobs come after.
    pub(crate) has_dependency: bool,
    /// The jobs that they come after, whatever becomes of those.
    pub(crate) after: Vec<String>,
}

impl ArraySubmission<'_> {
    /// Submits them and writes each of them down. If one cannot be, the others are taken
    /// back.
    pub(crate) fn submit(&self, plans: &[ArrayPlan]) -> Result<Vec<SubmittedJob>, SlurmError> {
        let mut submitted: Vec<SubmittedJob> = Vec::new();
        for plan in plans {
            let mut options = vec![plan.option(self.at_once)];
            // Each array counts by itself: one after the other they are no more at a time.
            match submitted.last() {
                Some(last) if self.at_once.is_some() && !self.has_dependency => {
                    options.extend(coming_after(&[last.job.to_string()]));
                }
                _ => options.extend(coming_after(&self.after)),
            }
            let record = |job: &SubmittedJob| self.folder.add_job(job);
            match submit_array(self.folder, plan, &options, record) {
                Ok(job) => submitted.push(job),
                Err(error) => return Err(take_back(&submitted, error)),
            }
        }
        Ok(submitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_split_where_slurm_demands_it() {
        let plans = arrays(&[(0, 2500)], Some(1001));
        let options: Vec<_> = plans.iter().map(|it| (it.base, it.option(Some(4)))).collect();
        assert_eq!(
            options,
            [
                (0, "--array=0-1000%4".to_owned()),
                (1001, "--array=0-1000%4".to_owned()),
                (2002, "--array=0-497%4".to_owned()),
            ]
        );
    }

    #[test]
    fn elements_that_are_left_keep_their_numbers() {
        let plans = arrays(&[(3, 1), (5, 2), (12, 1)], Some(10));
        assert_eq!(plans.len(), 2);
        assert_eq!(plans[0].option(None), "--array=3,5-6");
        assert_eq!((plans[1].base, plans[1].option(None)), (10, "--array=2".to_owned()));
    }
}
