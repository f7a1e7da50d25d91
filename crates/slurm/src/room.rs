//! Submitting elements beside others of their run, so that no more run at a time than `--jobs`
//! allows.
//!
//! Slurm counts within one array only. So what is submitted later comes after others: after all
//! but the newest, as many as may run beside it. Then, whichever jobs run, those that are older
//! than the newest of them are no more than that one has left room for. While fewer others are
//! there than may run, as many begin at once as there is room for.
//!
//! Jobs that end at the same time submit others at the same time, and do not see each other's.
//! So a job first comes after everything that is seen. When it has its number, everything with a
//! lower one is in Slurm's queue, and it is told to come after no more than it has to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::SlurmError;
use crate::arrays::{ArrayPlan, after_any};
use crate::commands::{queue_of_run, set_dependency};
use crate::folder::{SharedFolder, SubmittedJob};
use crate::queue::{ElementPhase, QueuedElement};

/// Whoever asks may be about to be ended, so Slurm has to answer within this.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Elements of an array are named one by one if they are no more than this.
const MOST_NAMED: usize = 50;

/// How elements are submitted beside others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobRoom {
    /// At most so many of them at a time.
    pub(crate) at_once: Option<u32>,
    /// The jobs that have to end before they begin: `12`, or `12_3`.
    pub(crate) after: Vec<String>,
    /// So many others may run at the same time as they.
    beside: u32,
}

impl JobRoom {
    /// For arrays of which one runs after the other, and with the others together at most so
    /// many elements at a time. If not even one of them can begin, they come after as few of
    /// the others as possible.
    pub(crate) fn beside<'q>(
        others: impl IntoIterator<Item = &'q QueuedElement>,
        most: Option<u32>,
        plans: &[ArrayPlan],
    ) -> Self {
        let Some(most) = most else {
            return Self::default();
        };
        let others = Others::of(others);
        let largest = plans.iter().map(ArrayPlan::count).max();
        let wanted = largest.unwrap_or_default().min(most);
        // Fewer of them now are better than all of them when others have ended.
        let at_once = match most.saturating_sub(others.count()) {
            0 => wanted,
            free => wanted.min(free),
        };
        let beside = most - at_once;
        Self { at_once: Some(at_once), after: others.names_but_newest(beside), beside }
    }

    /// The same while others may be submitted at the same time: beside the others if there is
    /// room, else after all of them.
    pub(crate) fn beside_or_behind<'q>(
        others: impl IntoIterator<Item = &'q QueuedElement> + Clone,
        most: Option<u32>,
        plans: &[ArrayPlan],
    ) -> Self {
        let mut room = Self::beside(others.clone(), most, plans);
        if !room.after.is_empty() {
            room.after = Others::of(others).names_but_newest(0);
        }
        room
    }

    /// For one element of which at most so many run at a time, if nobody tells what else is in
    /// the queue: after all of the array that it was in.
    pub(crate) fn behind_array(array: &str, most: u32) -> Self {
        Self { at_once: Some(1), after: vec![array.to_owned()], beside: most.saturating_sub(1) }
    }

    /// What they have to come after if these were submitted before them: as few as possible. As
    /// many at a time as they were submitted for.
    fn after_earlier<'q>(
        &self,
        others: impl IntoIterator<Item = &'q QueuedElement>,
    ) -> Vec<String> {
        Others::of(others).names_but_newest(self.beside)
    }
}

/// Has a job that was submitted behind others begin as soon as it may. `own` is the element
/// that it takes the place of.
pub(crate) fn come_sooner(
    folder: &SharedFolder,
    job: &SubmittedJob,
    room: &JobRoom,
    own: Option<&str>,
) -> Result<(), SlurmError> {
    let queue = queue_of_run(folder, SOON)?;
    let after = room.after_earlier(earlier(&queue, job.job, own));
    set_dependency(job.job, &after_any(&after).unwrap_or_default(), SOON)
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

    /// How many there are.
    fn count(&self) -> u32 {
        let count: usize = self.0.values().map(|array| array.active.len()).sum();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The names of all but so many, the newest.
    fn names_but_newest(&self, newest: u32) -> Vec<String> {
        let mut names: Vec<Vec<String>> = Vec::new();
        let mut skipped = newest as usize;
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

    /// An array of so many elements.
    fn plan(count: u32) -> ArrayPlan {
        ArrayPlan { base: 0, elements: vec![(0, count)] }
    }

    /// What so many elements come after that are all submitted to run at the same time.
    fn after(queue: &[QueuedElement], most: u32, count: u32) -> Vec<String> {
        let room = JobRoom::beside(queue, Some(most), &[plan(count)]);
        assert_eq!(room.at_once, Some(count.min(most)));
        room.after
    }

    #[test]
    fn there_is_room_beside_others_or_after_them() {
        let queue = read_queue(
            "2|0|NODE_FAIL|None|n1\n2|1|RUNNING|None|n2\n2|2|PENDING|JobArrayTaskLimit|\n\
             5|3|PENDING|Dependency|\n",
        );
        assert_eq!(JobRoom::beside(&queue, None, &[plan(7)]), JobRoom::default());
        assert!(after(&queue, 4, 1).is_empty());
        assert!(after(&queue, 5, 2).is_empty());
        // Those that wait come to run, too: the newest of them may do so beside it.
        assert_eq!(after(&queue, 3, 1), ["2_1"]);
        assert_eq!(after(&queue, 2, 1), ["2"]);
        assert_eq!(after(&queue, 1, 1), ["2", "5"]);
        assert_eq!(after(&queue, 3, 9), ["2", "5"]);
        // As many of them as there is room for, rather than all of them later.
        let room = JobRoom::beside(&queue, Some(5), &[plan(4)]);
        assert_eq!((room.at_once, room.after.len()), (Some(2), 0));
    }

    #[test]
    fn of_arrays_that_come_after_each_other_the_largest_counts() {
        let queue = read_queue("2|1|RUNNING|None|n2\n2|2|RUNNING|None|n2\n");
        let plans = [plan(1), plan(4), plan(2)];
        let room = |most| JobRoom::beside(&queue, Some(most), &plans).at_once;
        assert_eq!([room(3), room(5), room(9)], [Some(1), Some(3), Some(4)]);
        // There is no room for one: what the first array would be told must do for all.
        let room = JobRoom::beside_or_behind(&queue, Some(2), &plans);
        assert_eq!(room.at_once, Some(2));
        assert_eq!(room.after_earlier(&queue), ["2"]);
        // Meanwhile one has ended, which leaves no room for two.
        assert_eq!(room.after_earlier(&queue[..1]), ["2"]);
    }

    #[test]
    fn while_others_may_be_submitted_it_is_beside_all_or_behind_all() {
        let queue = read_queue("2|1|RUNNING|None|n2\n5|3|PENDING|Dependency|\n");
        let room = |most, count| JobRoom::beside_or_behind(&queue, Some(most), &[plan(count)]);
        assert!(room(3, 1).after.is_empty());
        assert_eq!(room(2, 1).after, ["2", "5"]);
        assert_eq!(room(2, 1).after_earlier(&queue), ["2"]);
    }

    #[test]
    fn while_nobody_tells_the_queue_it_is_behind_the_array_that_it_was_in() {
        let room = JobRoom::behind_array("2", 2);
        assert_eq!((room.at_once, room.after.as_slice()), (Some(1), &["2".to_owned()][..]));
        // Somebody tells it after all.
        let queue = read_queue("2|1|RUNNING|None|n2\n2|2|RUNNING|None|n2\n");
        assert_eq!(room.after_earlier(&queue), ["2_1"]);
        assert!(room.after_earlier(&queue[..1]).is_empty());
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

    /// An element in Slurm's queue.
    struct Entry {
        row: QueuedElement,
        /// What it comes after.
        after: Vec<String>,
        /// At most so many of its array at a time.
        at_once: usize,
    }

    /// A queue as Slurm keeps it. The first array is 10.
    struct Queue(Vec<Entry>);

    impl Queue {
        fn new(elements: u32) -> Self {
            let mut queue = Self(Vec::new());
            let room = JobRoom { at_once: u32::try_from(MOST).ok(), ..JobRoom::default() };
            queue.add(10, elements, &room);
            queue
        }

        fn add(&mut self, job: u32, elements: u32, room: &JobRoom) {
            let rows = (0..elements).map(|index| Entry {
                row: row(job, index),
                after: room.after.clone(),
                at_once: room.at_once.map_or(usize::MAX, |most| most as usize),
            });
            self.0.extend(rows);
        }

        fn rows(&self) -> Vec<QueuedElement> {
            self.0.iter().map(|it| it.row.clone()).collect()
        }

        /// The names of those that run now.
        fn running(&self) -> Vec<String> {
            let is_there = |name: &String| {
                let mut rows = self.0.iter().map(|it| &it.row);
                rows.any(|row| row.name() == *name || row.job.to_string() == *name)
            };
            let free = self.0.iter();
            let free = free.filter(|it| !it.after.iter().any(is_there));
            let mut of_array: BTreeMap<u32, usize> = BTreeMap::new();
            let running = free.filter(|it| {
                let count = of_array.entry(it.row.job).or_default();
                *count += 1;
                *count <= it.at_once
            });
            running.map(|it| it.row.name()).collect()
        }

        fn end(&mut self, ending: &[String]) {
            self.0.retain(|it| !ending.contains(&it.row.name()));
        }

        fn set_after(&mut self, job: u32, after: &[String]) {
            for it in self.0.iter_mut().filter(|it| it.row.job == job) {
                it.after = after.to_vec();
            }
        }

        /// These end, and each submits another job, without seeing those of the others. Then
        /// each has its job come sooner.
        fn go_on(&mut self, ending: &[String], next: u32) {
            let most = u32::try_from(MOST).ok();
            let seen = self.rows();
            let numbers = next..;
            let mut rooms = Vec::new();
            for (own, job) in ending.iter().zip(numbers.clone()) {
                let others = seen.iter().filter(|row| row.name() != *own);
                let room = JobRoom::beside_or_behind(others, most, &[plan(1)]);
                self.add(job, 1, &room);
                rooms.push(room);
            }
            let before_that = self.running();
            let started = before_that.iter().filter(|name| !ending.contains(name));
            assert!(started.count() <= MOST, "{before_that:?}");
            let seen = self.rows();
            for ((own, job), room) in ending.iter().zip(numbers).zip(rooms) {
                if !room.after.is_empty() {
                    let after = room.after_earlier(earlier(&seen, job, Some(own)));
                    self.set_after(job, &after);
                }
            }
            self.end(ending);
        }

        /// Arrays of lost elements are submitted, each of which comes after the one before.
        fn submit_lost(&mut self, counts: &[u32], first: u32) {
            let plans: Vec<ArrayPlan> = counts.iter().map(|count| plan(*count)).collect();
            let seen = self.rows();
            let mut room = JobRoom::beside_or_behind(&seen, u32::try_from(MOST).ok(), &plans);
            let after = room.after_earlier(&seen);
            let is_behind = !room.after.is_empty();
            for (&count, job) in counts.iter().zip(first..) {
                self.add(job, count, &room);
                room.after = vec![job.to_string()];
            }
            if is_behind {
                self.set_after(first, &after);
            }
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
                assert_eq!(running.len(), MOST, "{together} in round {round}: {running:?}");
                let next = 11 + round * 10;
                queue.go_on(&running[..together], next);
            }
        }
    }

    #[test]
    fn lost_elements_use_the_room_that_there_is_and_no_more_run_than_may() {
        for (others, lost) in (0..9).flat_map(|others| (1..9).map(move |lost| (others, lost))) {
            let cut = (0..lost).map(|first| match first {
                0 => vec![lost],
                first => vec![first, lost - first],
            });
            // Elements that run end, the newest or the oldest, or go on in other jobs.
            for (counts, turn) in
                cut.flat_map(|counts| (0..4).map(move |turn| (counts.clone(), turn)))
            {
                let mut queue = Queue::new(others);
                queue.submit_lost(&counts, 11);
                let case = format!("{counts:?} beside {others}, {turn}");
                let may = MOST.min(others as usize + counts[0] as usize);
                let running = queue.running().len();
                assert!(running <= MOST, "{case}: {running} run");
                if counts.len() == 1 {
                    assert_eq!(running, may, "{case}");
                }
                for round in 0..50 {
                    let running = queue.running();
                    assert!(running.len() <= MOST, "{case}: {running:?}");
                    let Some(last) = running.len().checked_sub(1) else {
                        break;
                    };
                    let ending = [running[if turn % 2 == 0 { 0 } else { last }].clone()];
                    if turn < 2 || round > 20 {
                        queue.end(&ending);
                    } else {
                        queue.go_on(&ending, 20 + round);
                    }
                }
                assert!(queue.0.is_empty(), "{case}: {:?}", queue.rows());
            }
        }
    }
}
