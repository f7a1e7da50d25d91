//! Handing out: after every event, whatever can start does.
//!
//! The rule is simple: go through the line; start whom there is room for; the
//! first for whom there is none (but could be) gets the reservation, and those
//! behind it have to respect that. With a million in line and a thousand
//! devices nobody can go through the line at every event. It is not needed:
//! when it was gone through the last time, nobody was left who could start. So
//! only two kinds can start now: whoever came into line since, and whoever fits
//! where something has changed since. [`Stale`] remembers both.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::ledger::count;
use crate::needs::Rooms;
use crate::place::Spot;
use crate::queue_key::QueueKey;
use crate::reserve::Reservation;
use crate::state::{RunningAttempt, SchedulerState};
use crate::tasks::{Handle, TaskStatus};
use crate::time::{EndTimes, Moment};
use crate::{Effect, ProbePlan, reach};

/// What has changed since the last time that things were handed out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stale {
    /// The nodes where something has changed, if not all.
    nodes: BTreeSet<usize>,
    /// Whether all have to be looked at.
    all: bool,
    /// Who came into line.
    tasks: Vec<Handle>,
}

/// Who may be able to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StartCandidate {
    /// One that came into line. It goes before the same task as somebody who
    /// fits on a node, since it may fit on others as well.
    Fresh,
    /// Whoever goes first of those who fit on the node, as things stood when so
    /// many attempts had been started.
    OnNode { node: usize, started: u64 },
}

impl Stale {
    /// Something has changed on `node`.
    pub(crate) fn touch(&mut self, node: usize) {
        if !self.all {
            self.nodes.insert(node);
        }
    }

    /// Somebody came into line.
    pub(crate) fn arrive(&mut self, task: Handle) {
        self.tasks.push(task);
    }

    fn touches(&self, node: usize) -> bool {
        self.all || self.nodes.contains(&node)
    }

    /// The nodes to look at, in the pool's order, of so many.
    fn nodes(&self, len: usize) -> impl Iterator<Item = usize> {
        let all = if self.all { 0..len } else { 0..0 };
        all.chain(self.nodes.iter().copied())
    }
}

/// Starts what fits, in order.
pub(crate) fn dispatch(state: &mut SchedulerState, effects: &mut Vec<Effect>) {
    reach::refresh(state);
    drop_stale_reservation(state);
    if state.held || !state.ledger.has_slot() {
        defer(state);
        return;
    }
    if first_ones(state, effects) && fill(state, effects) {
        settle(state);
        state.stale.nodes.clear();
        state.stale.all = false;
    } else {
        defer(state);
    }
}

/// Not all could be asked whether they can start. So anybody might, later.
fn defer(state: &mut SchedulerState) {
    if !state.stale.tasks.is_empty() {
        settle(state);
        state.stale.all = true;
        state.stale.nodes.clear();
    }
}

fn settle(state: &mut SchedulerState) {
    for task in state.stale.tasks.drain(..) {
        state.tasks.get_mut(task).fresh = false;
    }
}

fn drop_stale_reservation(state: &mut SchedulerState) {
    let Some(kept) = &state.reservation else {
        return;
    };
    let holds = reach::first(state) == Some(kept.holder)
        && state.tasks.get(kept.holder).class == kept.class
        && kept.is_possible(
            &state.ledger,
            state.settings,
            state.queue.demand(kept.class),
        );
    if !holds {
        drop_reservation(state);
    }
}

/// What was kept is open to all again.
fn drop_reservation(state: &mut SchedulerState) {
    if let Some(kept) = state.reservation.take() {
        state.stale.touch(kept.spot.node);
    }
}

/// Something has changed on the node of what is kept.
fn refresh_reservation(state: &mut SchedulerState) {
    if let Some(kept) = &mut state.reservation {
        let demand = state.queue.demand(kept.class);
        let now = Moment::new(state.now);
        kept.refresh(&state.ledger, state.settings, demand, now);
    }
}

/// Starts those at the head of the line, and keeps a place for the first that
/// has to wait. Whether there is still a slot.
fn first_ones(state: &mut SchedulerState, effects: &mut Vec<Effect>) -> bool {
    while let Some(task) = reach::first(state) {
        if !state.ledger.has_slot() {
            return false;
        }
        if let Some(spot) = find(state, task, None) {
            start(state, task, spot, effects);
            drop_reservation(state);
            continue;
        }
        if state.reservation.is_none() {
            let class = state.tasks.get(task).class;
            state.reservation = Reservation::new(
                &state.ledger,
                state.settings,
                (task, class),
                state.queue.demand(class),
                Moment::new(state.now),
            );
        }
        break;
    }
    state.ledger.has_slot()
}

/// A place for `task` among those that it may not have been refused before.
fn find(state: &SchedulerState, task: Handle, kept: Option<&Reservation>) -> Option<Spot> {
    let record = state.tasks.get(task);
    let demand = state.queue.demand(record.class);
    let view = state.view(kept);
    let len = state.ledger.nodes.len();
    if record.fresh {
        view.best(demand, 0..len)
    } else {
        view.best(demand, state.stale.nodes(len))
    }
}

/// Starts those behind the holder of the reservation who do not delay it.
/// Whether all were asked; if not, there is no slot left.
fn fill(state: &mut SchedulerState, effects: &mut Vec<Effect>) -> bool {
    if let Some(kept) = &state.reservation
        && state.stale.touches(kept.spot.node)
    {
        refresh_reservation(state);
    }
    let mut line = BinaryHeap::new();
    for &task in &state.stale.tasks {
        let record = state.tasks.get(task);
        if record.status == TaskStatus::Waiting {
            line.push(Reverse((record.key, StartCandidate::Fresh, task)));
        }
    }
    let nodes = state.stale.nodes(state.ledger.nodes.len());
    line.extend(nodes.filter_map(|node| on_node(state, node)));
    while let Some(Reverse((_, candidate, task))) = line.pop() {
        if !state.ledger.has_slot() {
            return false;
        }
        match candidate {
            // If another of its class is in front of it and still waits, there
            // is no room for that one, and so none for this.
            StartCandidate::Fresh => {
                let head = state.queue.head(state.tasks.get(task).class);
                if head.is_none_or(|(_, head)| head != task) {
                    continue;
                }
            }
            StartCandidate::OnNode { node, started } => {
                if started != state.started {
                    line.extend(on_node(state, node));
                    continue;
                }
            }
        }
        let Some(spot) = find(state, task, state.reservation.as_ref()) else {
            continue;
        };
        let node = spot.node;
        start(state, task, spot, effects);
        if let Some(kept) = &state.reservation
            && kept.spot.node == node
        {
            refresh_reservation(state);
        }
        if let StartCandidate::OnNode { node, .. } = candidate {
            line.extend(on_node(state, node));
        }
    }
    true
}

/// Who goes first of those who fit on `node`, and his place in line.
fn on_node(
    state: &SchedulerState,
    node: usize,
) -> Option<Reverse<(QueueKey, StartCandidate, Handle)>> {
    let (order, task) = first_on(state, node)?;
    let started = state.started;
    let candidate = StartCandidate::OnNode { node, started };
    Some(Reverse((order, candidate, task)))
}

/// Who goes first of those who fit on `node`.
fn first_on(state: &SchedulerState, node: usize) -> Option<(QueueKey, Handle)> {
    let view = state.view(state.reservation.as_ref());
    let mut rooms = Rooms::default();
    let task = state.queue.first_of(|family| {
        rooms.clear();
        view.add_rooms(node, &family.request, &mut rooms);
        family.index.first(&rooms)
    })?;
    Some((state.tasks.get(task).key, task))
}

fn start(state: &mut SchedulerState, task: Handle, spot: Spot, effects: &mut Vec<Effect>) {
    let record = state.tasks.get_mut(task);
    state.queue.remove(record.class, record.key);
    let ends = EndTimes::new(Moment::new(state.now), record.limit, record.expected);
    let request = &state.queue.demand(record.class).request;
    let held = state.ledger.take(spot, request, task, ends);
    let attempt = if record.probe == ProbePlan::First {
        0
    } else {
        record.attempts += 1;
        record.attempts
    };
    record.probe = ProbePlan::None;
    record.status = TaskStatus::Running(count(state.running.len()));
    effects.push(Effect::Start {
        task: record.id,
        attempt,
        placement: state.ledger.placement(&held, task),
        time_limit: record.limit.get(),
    });
    state.queue.refer_to_class(record.class);
    state.running.push(RunningAttempt {
        task,
        class: record.class,
        attempt,
        since: state.now,
        number: state.started,
        allocation: held,
        stopping: false,
    });
    state.started += 1;
}
