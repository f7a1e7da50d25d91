//! Submitting elements beside others of their run, so that no more run at a time than `--jobs`
//! allows.
//!
//! Slurm counts within one array only. So what is submitted later comes after others: after all
//! but the newest, as many as may run beside it. Then, whichever jobs run, those that are older
//! than the newest of them are no more than that one has left room for.
//!
//! Jobs that end at the same time submit others at the same time, and do not see each other's.
//! So a job first comes after everything that is seen. When it has its number, everything with a
//! lower one is in Slurm's queue, and it is told to come after no more than it has to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::SlurmError;
use crate::arrays::after_any;
use crate::commands::{queue_of_run, set_dependency};
use crate::folder::{SharedFolder, SubmittedJob};
use crate::queue::{ElementPhase, QueuedElement};

/// Whoever asks may be about to be ended, so Slurm has to answer within this.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Elements of an array are named one by one if they are no more than this.
const MOST_NAMED: usize = 50;

/// How elements are submitted beside others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// At most so many of them at a time.
    pub(crate) at_once: Option<u32>,
    /// The jobs that have to end before they begin: `12`, or `12_3`.
    pub(crate) after: Vec<String>,
}

impl Room {
    /// For so many elements, of which with the others together at most so many run at a time:
    /// after as few of the others as possible.
    pub(crate) fn beside<'q>(
        others: impl IntoIterator<Item = &'q QueuedElement>,
        most: Option<u32>,
        count: usize,
    ) -> Self {
        let Some(most) = most else {
            return Self::default();
        };
        let others = Others::of(others);
        let at_once = u32::try_from(count).unwrap_or(u32::MAX).min(most);
        let beside = (most - at_once) as usize;
        Self {
            at_once: Some(at_once),
            after: others.names_but_newest(beside),
        }
    }

    /// The same while others may be submitted at the same time: beside the others if there is
    /// room for all, else after all of them.
    pub(crate) fn beside_or_behind<'q>(
        others: impl IntoIterator<Item = &'q QueuedElement> + Clone,
        most: Option<u32>,
        count: usize,
    ) -> Self {
        let mut room = Self::beside(others.clone(), most, count);
        if !room.after.is_empty() {
            room.after = Others::of(others).names_but_newest(0);
        }
        room
    }
}

/// Has a job that was submitted behind others begin as soon as it may. `own` is the element
/// that it takes the place of.
pub(crate) fn come_sooner(
    folder: &SharedFolder,
    job: &SubmittedJob,
    most: Option<u32>,
    own: Option<&str>,
) -> Result<(), SlurmError> {
    let queue = queue_of_run(folder, SOON)?;
    let room = Room::beside(earlier(&queue, job.job, own), most, job.each().count());
    set_dependency(job.job, &after_any(&room.after).unwrap_or_default(), SOON)
}

/// What was submitted before a job, but for the element that it takes the place of.
fn earlier<'q>(
    queue: &'q [QueuedElement],
    job: u32,
    own: Option<&str>,
) -> impl Iterator<Item = &'q QueuedElement> {
    let earlier = queue.iter().filter(move |row| row.job < job);
    earlier.filter(move |row| own != Some(row.name().as_str()))
}

/// Others that will run or do, by their arrays, the newest last.
struct Others<'q>(BTreeMap<u32, OtherArray<'q>>);

#[derive(Default)]
struct OtherArray<'q> {
    /// In the order in which they come to run.
    active: Vec<&'q QueuedElement>,
    /// Whether elements are held: they begin when somebody lets them, if ever, so nothing waits
    /// for them.
    has_held: bool,
}

impl<'q> Others<'q> {
    fn of(others: impl IntoIterator<Item = &'q QueuedElement>) -> Self {
        let mut arrays: BTreeMap<u32, OtherArray<'q>> = BTreeMap::new();
        let others = others.into_iter();
        for row in others.filter(|row| row.phase() != ElementPhase::Over) {
            let array = arrays.entry(row.job).or_default();
            if row.is_held() {
                array.has_held = true;
            } else {
                array.active.push(row);
            }
        }
        for array in arrays.values_mut() {
            let is_pending = |row: &QueuedElement| row.phase() == ElementPhase::Pending;
            array.active.sort_by_key(|row| (is_pending(row), row.index));
        }
        Self(arrays)
    }

    /// The names of all but so many, the newest.
    fn names_but_newest(&self, newest: usize) -> Vec<String> {
        let mut names: Vec<Vec<String>> = Vec::new();
        let mut skipped = newest;
        for (job, array) in self.0.iter().rev() {
            let count = array.active.len();
            let before = &array.active[..count.saturating_sub(skipped)];
            skipped = skipped.saturating_sub(count);
            let is_whole = before.len() == count || before.len() > MOST_NAMED;
            if is_whole && !array.has_held && count > 0 {
                names.push(vec![job.to_string()]);
            } else {
                names.push(before.iter().map(|row| row.name()).collect());
            }
        }
        names.into_iter().rev().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::read_queue;

    fn after(queue: &[QueuedElement], most: u32, count: usize) -> Vec<String> {
        let room = Room::beside(queue, Some(most), count);
        assert_eq!(
            room.at_once,
            Some(u32::try_from(count).unwrap_or(most).min(most))
        );
        room.after
    }

    #[test]
    fn there_is_room_beside_others_or_after_them() {
        let queue = read_queue(
            "2|0|NODE_FAIL|None|n1\n2|1|RUNNING|None|n2\n2|2|PENDING|JobArrayTaskLimit|\n\
             5|3|PENDING|Dependency|\n",
        );
        assert_eq!(Room::beside(&queue, None, 7), Room::default());
        assert!(after(&queue, 4, 1).is_empty());
        assert!(after(&queue, 5, 2).is_empty());
        // Those that wait come to run, too: the newest of them may do so beside it.
        assert_eq!(after(&queue, 3, 1), ["2_1"]);
        assert_eq!(after(&queue, 2, 1), ["2"]);
        assert_eq!(after(&queue, 1, 1), ["2", "5"]);
        assert_eq!(after(&queue, 3, 9), ["2", "5"]);
    }

    #[test]
    fn while_others_may_be_submitted_it_is_beside_all_or_behind_all() {
        let queue = read_queue("2|1|RUNNING|None|n2\n5|3|PENDING|Dependency|\n");
        let room = |most, count| Room::beside_or_behind(&queue, Some(most), count);
        assert!(room(3, 1).after.is_empty());
        assert_eq!(room(2, 1).after, ["2", "5"]);
        assert_eq!(Room::beside(&queue, Some(2), 1).after, ["2"]);
    }

    #[test]
    fn nothing_waits_for_what_is_held() {
        let queue = read_queue(
            "2|1|RUNNING|None|n2\n2|3|PENDING|launch failed requeued held|\n\
             2|4|PENDING|JobArrayTaskLimit|\n3|0|PENDING|JobHeldUser|\n\
             4|0|SPECIAL_EXIT|None|\n5|0|PENDING|Dependency|\n",
        );
        assert_eq!(after(&queue, 1, 1), ["2_1", "2_4", "5"]);
        assert_eq!(after(&queue, 2, 1), ["2_1", "2_4"]);
        assert!(after(&queue, 4, 1).is_empty());
    }

    #[test]
    fn a_large_array_is_named_as_a_whole() {
        let rows: Vec<String> = (0..100).map(|at| format!("2|{at}|PENDING|x|")).collect();
        let queue = read_queue(&rows.join("\n"));
        assert_eq!(after(&queue, 4, 1), ["2"]);
        assert_eq!(after(&queue, 60, 1).len(), 41);
    }

    /// At most so many at a time.
    const MOST: usize = 4;

    /// A queue as Slurm keeps it: rows, and what they come after. The first array is 10.
    struct Queue(Vec<(QueuedElement, Vec<String>)>);

    impl Queue {
        fn new(elements: u32) -> Self {
            let rows = (0..elements).map(|index| (row(10, index), Vec::new()));
            Self(rows.collect())
        }

        fn rows(&self) -> Vec<QueuedElement> {
            self.0.iter().map(|(row, _)| row.clone()).collect()
        }

        /// The names of those that run now.
        fn running(&self) -> Vec<String> {
            let is_there = |name: &String| {
                let mut rows = self.0.iter().map(|(row, _)| row);
                rows.any(|row| row.name() == *name || row.job.to_string() == *name)
            };
            let free = self
                .0
                .iter()
                .filter(|(_, after)| !after.iter().any(is_there));
            let mut of_array = 0;
            let running = free.filter(|(row, _)| {
                of_array += usize::from(row.job == 10);
                row.job != 10 || of_array <= MOST
            });
            running.map(|(row, _)| row.name()).collect()
        }

        /// These end, and each submits another job, without seeing those of the others. Then
        /// each has its job come sooner.
        fn go_on(&mut self, ending: &[String], next: u32) {
            let most = u32::try_from(MOST).ok();
            let seen = self.rows();
            let numbers = next..;
            for (own, job) in ending.iter().zip(numbers.clone()) {
                let others = seen.iter().filter(|row| row.name() != *own);
                let room = Room::beside_or_behind(others, most, 1);
                self.0.push((row(job, 0), room.after));
            }
            let before_that = self.running();
            let started = before_that.iter().filter(|name| !ending.contains(name));
            assert!(started.count() <= MOST, "{before_that:?}");
            let seen = self.rows();
            for (own, job) in ending.iter().zip(numbers) {
                let room = Room::beside(earlier(&seen, job, Some(own)), most, 1);
                let submitted = self.0.iter_mut().find(|(row, _)| row.job == job);
                submitted.unwrap().1 = room.after;
            }
            self.0.retain(|(row, _)| !ending.contains(&row.name()));
        }
    }

    fn row(job: u32, index: u32) -> QueuedElement {
        read_queue(&format!("{job}|{index}|PENDING|None|")).remove(0)
    }

    #[test]
    fn jobs_that_go_on_run_side_by_side_and_no_more_than_may() {
        // One after the other, or several at the same time.
        for together in 1..=MOST {
            let mut queue = Queue::new(12);
            for round in 0..50 {
                let running = queue.running();
                assert_eq!(
                    running.len(),
                    MOST,
                    "{together} in round {round}: {running:?}"
                );
                let next = 11 + round * 10;
                queue.go_on(&running[..together], next);
            }
        }
    }
}
