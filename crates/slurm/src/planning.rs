//! Which tasks go into which element: as few elements as make sense.
//!
//! An element has room for so much work: what fits into a job at a time, as often as that
//! fits into its time. A task takes its share of the job for as long as it is expected to
//! run. Elements are filled one after the other, in the order of the tasks.
//!
//! Tasks that come after each other are in the same element, for an element knows nothing
//! of the others.

use std::time::Duration;

use rustc_hash::FxHashMap;

/// How long a task takes of which nothing is known.
pub const ASSUMED_TASK: Duration = Duration::from_mins(10);
/// How long a job may take if nobody says.
pub const ASSUMED_JOB: Duration = Duration::from_hours(1);

/// How much of a job's time is planned for: starts take time, and tasks are not alike.
const PLANNED: f64 = 0.9;

/// What is to be cut into elements, as it is read.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    /// The cost of tasks in the order of their numbers, and of how many in a row.
    costs: Vec<(TaskCost, u32)>,
    tasks: u32,
    /// Tasks that come after others, or others after them, and one that each hangs together
    /// with.
    chains: FxHashMap<u32, u32>,
}

/// What a task takes of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TaskCost {
    /// Its share of the job, in thousandths.
    pub(crate) share: u32,
    /// How long it is expected to take.
    pub(crate) time: Duration,
}

impl TaskCost {
    /// In seconds of a whole job.
    fn work(self) -> f64 {
        self.time.as_secs_f64() * f64::from(self.share) / 1000.0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ElementLimits {
    /// How long a job may take.
    pub(crate) time: Option<Duration>,
    /// How many elements are wanted at a time.
    pub(crate) jobs: Option<u32>,
}

/// The tasks of an element: the number of the first of several in a row, and how many.
pub(crate) type Rows = Vec<(u32, u32)>;

impl Workload {
    /// The next task, and the numbers of those that it comes after.
    pub(crate) fn add(&mut self, cost: TaskCost, after: &[u32]) {
        self.tasks += 1;
        match self.costs.last_mut() {
            Some((last, count)) if *last == cost => *count += 1,
            _ => self.costs.push((cost, 1)),
        }
        for &before in after {
            self.join(before, self.tasks);
        }
    }

    pub(crate) fn tasks(&self) -> u32 {
        self.tasks
    }

    /// The task that stands for all that hangs together with this one.
    fn chain(&mut self, task: u32) -> u32 {
        let mut root = task;
        while let Some(&next) = self.chains.get(&root).filter(|next| **next != root) {
            root = next;
        }
        let mut at = task;
        while let Some(next) = self.chains.insert(at, root).filter(|next| *next != root) {
            at = next;
        }
        root
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.chain(one), self.chain(other));
        // The first of a chain stands for it.
        self.chains.insert(one.max(other), one.min(other));
    }

    /// Two tasks of which one comes after the other though they are in different elements, if
    /// these are of so many tasks each.
    pub(crate) fn torn_apart(&mut self, sizes: &[u32]) -> Option<(u32, u32)> {
        let mut ends = Vec::with_capacity(sizes.len());
        let mut end = 0_u32;
        for size in sizes {
            end = end.saturating_add(*size);
            ends.push(end);
        }
        let element = |task: u32| ends.partition_point(|end| *end < task);
        let mut tasks: Vec<u32> = self.chains.keys().copied().collect();
        tasks.sort_unstable();
        let mut pairs = tasks.into_iter().map(|task| (self.chain(task), task));
        pairs.find(|(first, task)| element(*first) != element(*task))
    }

    /// The most that hangs together, if it is more than one job should have: how many tasks,
    /// and how long a job takes for them.
    pub(crate) fn too_much_together(&mut self, limits: ElementLimits) -> Option<(u32, Duration)> {
        if self.chains.is_empty() {
            return None;
        }
        let room = self.room(limits);
        let mut chains: FxHashMap<u32, (ElementFill, u32)> = FxHashMap::default();
        let costs = self.costs.clone().into_iter();
        let costs = costs.flat_map(|(cost, count)| std::iter::repeat_n(cost, count as usize));
        for (cost, task) in costs.zip(1..) {
            if self.chains.contains_key(&task) {
                let (fill, count) = chains.entry(self.chain(task)).or_default();
                fill.add(cost, 1);
                *count += 1;
            }
        }
        let work = |(fill, _): &(ElementFill, u32)| fill.work;
        let most = chains.into_values().max_by(|one, other| work(one).total_cmp(&work(other)));
        let (fill, count) = most?;
        // A little more than its share is no matter.
        let is_much = fill.work > room.most + TINY || fill.work > room.enough * 2.0;
        (is_much && fill.share > WHOLE).then(|| (count, Duration::from_secs_f64(fill.work)))
    }

    /// How much work an element has.
    fn room(&self, limits: ElementLimits) -> ElementRoom {
        let time = limits.time.unwrap_or(ASSUMED_JOB);
        let mut room = ElementRoom { most: time.as_secs_f64() * PLANNED, enough: f64::INFINITY };
        let of_all = |of: fn(TaskCost) -> f64| -> f64 {
            let costs = self.costs.iter();
            costs.map(|(cost, count)| of(*cost) * f64::from(*count)).sum()
        };
        if let Some(jobs) = limits.jobs {
            // Who names a number of jobs wants that many at work, if each is full at least
            // once.
            let full = of_all(|cost| f64::from(cost.share) / 1000.0).ceil().max(1.0);
            room.enough = of_all(TaskCost::work) / f64::from(jobs).min(full);
        }
        room
    }

    /// As few elements as make sense.
    pub(crate) fn cut(self, limits: ElementLimits) -> Vec<Rows> {
        let room = self.room(limits);
        if self.chains.is_empty() { self.cut_in_order(room) } else { self.cut_by_chains(room) }
    }

    fn cut_in_order(self, room: ElementRoom) -> Vec<Rows> {
        let (mut elements, mut first) = (Vec::new(), 1_u32);
        let (mut next, mut fill) = (1_u32, ElementFill::default());
        for (cost, mut count) in self.costs {
            while count > 0 {
                let fit = fill.how_many(cost, room).min(count);
                if fit == 0 && next > first {
                    elements.push(vec![(first, next - first)]);
                    (first, fill) = (next, ElementFill::default());
                    continue;
                }
                // One that takes longer than a job is tried all the same.
                let fit = fit.max(1);
                fill.add(cost, fit);
                next += fit;
                count -= fit;
            }
        }
        if next > first {
            elements.push(vec![(first, next - first)]);
        }
        elements
    }

    fn cut_by_chains(mut self, room: ElementRoom) -> Vec<Rows> {
        let costs = std::mem::take(&mut self.costs).into_iter();
        let costs = costs.flat_map(|(cost, count)| std::iter::repeat_n(cost, count as usize));
        // What hangs together counts where the first of it stands.
        let mut chains: Vec<(ElementFill, Vec<u32>)> = Vec::new();
        let mut places: FxHashMap<u32, usize> = FxHashMap::default();
        for (cost, task) in costs.zip(1..) {
            let first = if self.chains.contains_key(&task) { self.chain(task) } else { task };
            let place = *places.entry(first).or_insert_with(|| {
                chains.push((ElementFill::default(), Vec::new()));
                chains.len() - 1
            });
            chains[place].0.add(cost, 1);
            chains[place].1.push(task);
        }
        let mut elements: Vec<(ElementFill, Vec<u32>)> = Vec::new();
        for (chain, tasks) in chains {
            match elements.last_mut() {
                Some((fill, element)) if fill.takes(&chain, room) => {
                    fill.work += chain.work;
                    fill.share += chain.share;
                    element.extend(tasks);
                }
                _ => elements.push((chain, tasks)),
            }
        }
        elements.into_iter().map(|(_, tasks)| rows(tasks)).collect()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ElementFill {
    /// In seconds of a whole job.
    work: f64,
    /// What its tasks would take of a job if all of them ran at once, in thousandths.
    share: u64,
}

impl ElementFill {
    fn add(&mut self, cost: TaskCost, count: u32) {
        self.work += cost.work() * f64::from(count);
        self.share += u64::from(cost.share) * u64::from(count);
    }

    /// How many more tasks it takes: those that run at once anyway, and those that there is
    /// time for.
    fn how_many(&self, cost: TaskCost, room: ElementRoom) -> u32 {
        let at_once = WHOLE.saturating_sub(self.share) / u64::from(cost.share.max(1));
        let at_once = u32::try_from(at_once).unwrap_or(u32::MAX);
        let work = cost.work();
        let enough = ((room.enough - self.work - TINY) / work).ceil();
        let most = ((room.most - self.work + TINY) / work).floor();
        whole_number(enough.min(most)).max(at_once)
    }

    /// Whether it takes all of this.
    fn takes(&self, other: &Self, room: ElementRoom) -> bool {
        let has_time = self.work + other.work <= room.most + TINY;
        let has_enough = self.work >= room.enough - TINY;
        (has_time && !has_enough) || self.share + other.share <= WHOLE
    }
}

/// How much work an element has, in seconds of a whole job.
#[derive(Clone, Copy, Debug)]
struct ElementRoom {
    /// No more than this.
    most: f64,
    /// No more when it has this.
    enough: f64,
}

/// A whole job.
const WHOLE: u64 = 1000;

/// What sums of many small times may be off by.
const TINY: f64 = 1e-6;

/// A number of tasks.
fn whole_number(number: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number beyond all tasks saturates, and so does a negative one"
    )]
    let whole = number as u32;
    whole
}

/// Numbers as rows of several.
pub(crate) fn rows(mut numbers: Vec<u32>) -> Rows {
    numbers.sort_unstable();
    let mut rows: Rows = Vec::new();
    for number in numbers {
        match rows.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => rows.push((number, 1)),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn workload(tasks: u32, share: u32, time: Duration) -> Workload {
        let mut workload = Workload::default();
        for _ in 0..tasks {
            workload.add(TaskCost { share, time }, &[]);
        }
        workload
    }

    fn sizes(elements: &[Rows]) -> Vec<u32> {
        let size = |rows: &Rows| rows.iter().map(|(_, count)| count).sum();
        elements.iter().map(size).collect()
    }

    fn hours(hours: u64) -> ElementLimits {
        ElementLimits { time: Some(Duration::from_hours(hours)), jobs: None }
    }

    #[test]
    fn an_element_has_as_much_as_fits_into_its_time() {
        // Eight at a time, ten minutes each: ten rounds in 108 minutes.
        let elements = workload(200, 125, 10 * MINUTE).cut(hours(2));
        assert_eq!(elements, [[(1, 86)], [(87, 86)], [(173, 28)]].map(Vec::from));
    }

    #[test]
    fn what_runs_at_once_anyway_is_in_one_element_however_long_it_takes() {
        let elements = workload(12, 250, 90 * MINUTE).cut(hours(1));
        assert_eq!(sizes(&elements), [4, 4, 4]);
    }

    #[test]
    fn short_tasks_need_one_element() {
        let elements = workload(10_000, 125, Duration::from_millis(10)).cut(hours(1));
        assert_eq!(sizes(&elements), [10_000]);
    }

    #[test]
    fn one_that_takes_longer_than_a_job_has_an_element_of_its_own() {
        let elements = workload(3, 1000, 90 * MINUTE).cut(hours(1));
        assert_eq!(sizes(&elements), [1, 1, 1]);
    }

    #[test]
    fn who_names_a_number_of_jobs_has_that_many_at_work() {
        let limits = ElementLimits { jobs: Some(4), ..hours(2) };
        let elements = workload(80, 125, MINUTE).cut(limits);
        assert_eq!(sizes(&elements), [20, 20, 20, 20]);
        let elements = workload(9, 1000, MINUTE).cut(limits);
        assert_eq!(sizes(&elements), [3, 3, 3]);
        // Not if most of each would be idle.
        let elements = workload(10, 125, MINUTE).cut(limits);
        assert_eq!(sizes(&elements), [8, 2]);
    }

    #[test]
    fn what_hangs_together_is_together() {
        // Six that prepare something, and six that come after one each.
        let mut workload = workload(6, 1000, 20 * MINUTE);
        for before in 1..=6 {
            let cost = TaskCost { share: 1000, time: 5 * MINUTE };
            workload.add(cost, &[before]);
        }
        let elements = workload.cut(hours(1));
        let wanted: Vec<Rows> =
            vec![vec![(1, 2), (7, 2)], vec![(3, 2), (9, 2)], vec![(5, 2), (11, 2)]];
        assert_eq!(elements, wanted);
    }

    #[test]
    fn too_much_that_hangs_together_is_noticed() {
        let fan_out = |tasks: u32| {
            let mut workload = workload(1, 125, MINUTE);
            for _ in 0..tasks {
                let cost = TaskCost { share: 125, time: MINUTE };
                workload.add(cost, &[1]);
            }
            workload
        };
        let jobs = |jobs| ElementLimits { jobs: Some(jobs), ..hours(1) };
        let found = fan_out(999).too_much_together(hours(1));
        assert_eq!(found, Some((1000, 125 * MINUTE)));
        assert_eq!(fan_out(99).too_much_together(hours(1)), None);
        // Who wants four jobs at work has one.
        let found = fan_out(99).too_much_together(jobs(4));
        assert_eq!(found.map(|(tasks, _)| tasks), Some(100));
        assert_eq!(fan_out(5).too_much_together(jobs(4)), None);
    }

    #[test]
    fn what_hangs_together_is_not_torn_apart() {
        let mut workload = workload(3, 1000, MINUTE);
        let cost = TaskCost { share: 1000, time: MINUTE };
        workload.add(cost, &[2]);
        assert_eq!(workload.torn_apart(&[1, 3]), None);
        assert_eq!(workload.torn_apart(&[2, 2]), Some((2, 4)));
    }

    #[test]
    fn nothing_gives_no_elements() {
        assert!(Workload::default().cut(hours(1)).is_empty());
    }
}
