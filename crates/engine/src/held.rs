//! Tasks that are held back before the scheduler sees them, because enough others of their
//! group are there.
//!
//! ```text
//!  submit ──▶ a task it comes after is not over ──▶ behind ─┐
//!         ──▶ its group is full ──▶ line of the group ──────┤ when a task is over
//!         ──▶ the scheduler  ◀───────────────── ready ◀─────┘
//! ```
//!
//! A group counts those that the scheduler has, whether they run or wait for room: so no
//! more than the limit ever run, and the most urgent go first. One that comes after another
//! of which the scheduler has not heard waits for it here, whatever its group; one with a
//! group takes no room in it before it could start.

use std::collections::{BTreeMap, VecDeque};

use packhorse_model::{Priority, RunId, TaskId, TaskSpec};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::arrivals::Arrival;
use crate::engine::Engine;

/// The tasks of a run that are held back.
#[derive(Default)]
pub(crate) struct HeldTasks {
    groups: FxHashMap<String, Group>,
    /// Those that wait until the task with this number is over.
    behind: FxHashMap<u32, Vec<Arrival>>,
    /// Those that may try again.
    ready: VecDeque<Arrival>,
    /// The numbers of all that are held back.
    numbers: FxHashSet<u32>,
}

/// The tasks of a group.
#[derive(Default)]
struct Group {
    /// How many of them the scheduler has.
    inside: u32,
    /// The others: the most urgent first, then in the order in which they came.
    line: BTreeMap<(Priority, u32), Arrival>,
}

/// What keeps a task back.
enum HeldBy {
    /// Another task that has to be over first.
    Task(u32),
    /// Its group, which is full.
    Group(String),
    Nobody,
}

impl HeldTasks {
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }

    /// Why a task is held back, in words, if it is.
    fn why(&self, run: RunId, number: u32) -> Option<String> {
        if !self.contains(number) {
            return None;
        }
        let mut groups = self.groups.iter();
        let in_line = groups.find_map(|(name, group)| {
            let mut line = group.line.keys();
            let place = line.position(|(_, other)| *other == number)?;
            Some((name, group.inside, place))
        });
        if let Some((name, inside, place)) = in_line {
            let front = match place {
                0 => String::new(),
                1 => ", and one of them is in front of it".to_owned(),
                many => format!(", and {many} of them are in front of it"),
            };
            let run = if inside == 1 { "runs" } else { "run" };
            return Some(format!(
                "waits: {inside} of its group `{name}` {run} or will at once, and no more may{front}"
            ));
        }
        let mut behind = self.behind.iter();
        behind.find_map(|(first, others)| {
            let is_there = others.iter().any(|other| other.id.number == number);
            is_there.then(|| format!("waits until {} has succeeded", TaskId::new(run, *first)))
        })
    }

    /// How many tasks run at a time if all groups are as limited as that of a task with
    /// these options.
    pub(crate) fn at_a_time(&self, spec: &TaskSpec) -> u64 {
        let limit = spec.group_limit.map_or(u64::MAX, |limit| limit.get().into());
        limit.saturating_mul(self.groups.len().max(1) as u64)
    }

    /// A task is over. `group` is the one it took room in.
    fn over(&mut self, number: u32, group: Option<&str>) {
        self.ready.extend(self.behind.remove(&number).into_iter().flatten());
        if let Some(name) = group {
            if let Some(group) = self.groups.get_mut(name) {
                group.inside = group.inside.saturating_sub(1);
            }
            self.release_next(name);
        }
    }

    /// Lets the first in the line of a group go on, if there is room for it.
    fn release_next(&mut self, name: &str) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let inside = group.inside;
        let fits = |first: &Arrival| limit(first.spec()).is_none_or(|(_, most)| inside < most);
        if group.line.first_entry().is_some_and(|it| fits(it.get())) {
            self.ready.extend(group.line.pop_first().map(|(_, it)| it));
        }
    }
}

/// The group that limits a task, and how many of it may run.
fn limit(spec: &TaskSpec) -> Option<(&str, u32)> {
    let limit = spec.group_limit?.get();
    Some((spec.group.as_deref().unwrap_or_default(), limit))
}

impl Engine {
    /// Holds a task back if it has to wait here. Returns it if not: then it has its room.
    pub(crate) fn hold_back(&mut self, arrival: Arrival) -> Option<Arrival> {
        let (id, spec) = (arrival.id, arrival.spec());
        let held_by = match (self.unfinished_before(&arrival), limit(spec)) {
            (Some(first), _) => HeldBy::Task(first),
            (None, None) => HeldBy::Nobody,
            (None, Some((name, limit))) => {
                let run = self.runs.get(&id.run)?;
                let group = run.held.groups.get(name);
                if group.map_or(0, |group| group.inside) < limit {
                    HeldBy::Nobody
                } else {
                    HeldBy::Group(name.to_owned())
                }
            }
        };
        let held = &mut self.runs.get_mut(&id.run)?.held;
        match held_by {
            HeldBy::Nobody => {
                if let Some((name, _)) = limit(arrival.spec()) {
                    held.groups.entry(name.to_owned()).or_default().inside += 1;
                    held.release_next(name);
                }
                held.numbers.remove(&id.number);
                return Some(arrival);
            }
            HeldBy::Task(first) => held.behind.entry(first).or_default().push(arrival),
            HeldBy::Group(name) => {
                let key = (arrival.spec().priority.unwrap_or_default(), id.number);
                let group = held.groups.entry(name).or_default();
                group.line.insert(key, arrival);
            }
        }
        held.numbers.insert(id.number);
        None
    }

    /// The first task that one comes after and that has to be over before it is handed on.
    fn unfinished_before(&self, arrival: &Arrival) -> Option<u32> {
        let run = self.runs.get(&arrival.id.run)?;
        let has_group = limit(arrival.spec()).is_some();
        let is_unfinished = |number: u32| {
            let id = TaskId::new(arrival.id.run, number);
            run.held.contains(number) || (has_group && self.tasks.contains_key(&id))
        };
        let mut after = arrival.after().iter().copied();
        after.find(|number| is_unfinished(*number))
    }

    /// Takes note that a task is over which the scheduler had.
    pub(crate) fn make_room_in_group(&mut self, id: TaskId, spec: &TaskSpec) {
        let group = limit(spec).map(|(group, _)| group);
        if let Some(run) = self.runs.get_mut(&id.run) {
            run.held.over(id.number, group);
        }
    }

    /// Hands on tasks that were held back and may go on. Says whether there were any.
    pub(crate) fn submit_released(&mut self) -> bool {
        let mut any = false;
        let ids: Vec<_> = self.runs.keys().copied().collect();
        for id in ids {
            while let Some(run) = self.runs.get_mut(&id).filter(|run| run.takes_tasks())
                && let Some(arrival) = run.held.ready.pop_front()
            {
                any = true;
                self.submit(arrival);
            }
        }
        any
    }

    /// Why a task is held back, in words, if it is.
    pub(crate) fn why_held(&self, task: TaskId) -> Option<String> {
        let run = self.runs.get(&task.run)?;
        let why = run.held.why(task.run, task.number)?;
        Some(format!("{task} {why}"))
    }
}
