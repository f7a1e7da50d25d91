//! Dispatch: after every event, everything that can start is started.
//!
//! The rule is simple. Go through the line and start every task that fits. The
//! first one that does not fit now, but could, gets the reservation, and those
//! behind it have to respect that. With a million tasks in line and a thousand
//! devices we cannot go through the whole line at every event, and need not:
//! after the last dispatch nothing was left that could start. So only two kinds
//! of tasks can start now: those that came into line since, and those that fit
//! where something has changed since. [`Stale`] remembers both.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::needs::Rooms;
use crate::place::Spot;
use crate::queue_key::QueueKey;
use crate::reserve::Reservation;
use crate::state::SchedulerState;
use crate::tasks::{Handle, TaskStatus};
use crate::time::{EndTimes, Moment};
use crate::{Effect, reach};

/// What has changed since the last dispatch.
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
    /// One that came into line. If the same task is also the first that fits on a
    /// node, this one is tried first, since it may fit on other nodes as well.
    Fresh,
    /// The first of those that fit on the node, as found when `started` attempts
    /// had been started.
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

    /// A node is gone, and those behind it have moved by one.
    pub(crate) fn remove_node(&mut self, node: usize) {
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        let nodes = nodes.filter(|&other| other != node);
        self.nodes = nodes.map(|other| other - usize::from(other > node)).collect();
    }

    fn touches(&self, node: usize) -> bool {
        self.all || self.nodes.contains(&node)
    }

    /// The nodes to look at, in the pool's order; `len` is how many there are.
    fn nodes(&self, len: usize) -> impl Iterator<Item = usize> {
        let all = if self.all { 0..len } else { 0..0 };
        all.chain(self.nodes.iter().copied())
    }
}

/// Starts what fits, in order.
pub(crate) fn dispatch(state: &mut SchedulerState, effects: &mut Vec<Effect>) {
    reach::refresh(state);
    drop_stale_reservation(state);
    if state.held || state.looking || !state.ledger.has_slot() {
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

/// Not every task was tried, so any of them may be able to start later.
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
        && kept.is_possible(&state.ledger, &state.queue.demand(kept.class).request);
    if !holds {
        drop_reservation(state);
    }
}

/// What was reserved is open to all again.
fn drop_reservation(state: &mut SchedulerState) {
    if let Some(kept) = state.reservation.take() {
        state.stale.touch(kept.spot.node);
    }
}

/// Something has changed on the node of the reservation.
fn refresh_reservation(state: &mut SchedulerState) {
    if let Some(kept) = &mut state.reservation {
        let request = &state.queue.demand(kept.class).request;
        let now = Moment::new(state.now);
        kept.refresh(&state.ledger, request, now);
    }
}

/// Starts those at the head of the line, and makes a reservation for the first
/// that has to wait. Returns whether there is still a slot, and no look is waited for.
fn first_ones(state: &mut SchedulerState, effects: &mut Vec<Effect>) -> bool {
    while let Some(task) = reach::first(state) {
        if !state.ledger.has_slot() {
            return false;
        }
        if let Some(spot) = find(state, task, None) {
            if looks_first(state, task, &spot, effects) {
                return false;
            }
            start(state, task, spot, effects);
            drop_reservation(state);
            continue;
        }
        if state.reservation.is_none() {
            let class = state.tasks.get(task).class;
            let request = &state.queue.demand(class).request;
            let now = Moment::new(state.now);
            state.reservation = Reservation::new(&state.ledger, (task, class), request, now);
        }
        break;
    }
    state.ledger.has_slot()
}

/// Whether who is on the devices has to be looked at before `task` starts at `spot`, since
/// there are others that it could have. Then that is asked for.
fn looks_first(
    state: &mut SchedulerState,
    task: Handle,
    spot: &Spot,
    effects: &mut Vec<Effect>,
) -> bool {
    if state.has_looked() {
        return false;
    }
    let demand = state.queue.demand(state.tasks.get(task).class);
    state.looking = state.view(None).has_choice(spot.node, demand);
    if state.looking {
        effects.push(Effect::Look);
    }
    state.looking
}

/// A place for `task`, on the nodes that may have changed since it was last tried.
fn find(state: &SchedulerState, task: Handle, kept: Option<&Reservation>) -> Option<Spot> {
    let record = state.tasks.get(task);
    let demand = state.queue.demand(record.class);
    let view = state.view(kept);
    let len = state.ledger.nodes.len();
    if record.fresh { view.best(demand, 0..len) } else { view.best(demand, state.stale.nodes(len)) }
}

/// Starts those behind the holder of the reservation that do not delay it.
/// Returns whether all were tried; if not, there is no slot left, or a look is waited for.
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
        if looks_first(state, task, &spot, effects) {
            return false;
        }
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

/// The first of those that fit on `node`, as a candidate.
fn on_node(
    state: &SchedulerState,
    node: usize,
) -> Option<Reverse<(QueueKey, StartCandidate, Handle)>> {
    let view = state.view(state.reservation.as_ref());
    let mut rooms = Rooms::default();
    let task = state.queue.first_of(|family| {
        rooms.clear();
        view.add_rooms(node, &family.request, &mut rooms);
        family.index.first(&rooms)
    })?;
    let started = state.started;
    let candidate = StartCandidate::OnNode { node, started };
    Some(Reverse((state.tasks.get(task).key, candidate, task)))
}

fn start(state: &mut SchedulerState, task: Handle, spot: Spot, effects: &mut Vec<Effect>) {
    let record = state.tasks.get_mut(task);
    state.queue.remove(record.class, record.key);
    let ends = EndTimes::new(Moment::new(state.now), record.limit, record.expected);
    let request = &state.queue.demand(record.class).request;
    let known = state.queue.len() + state.running.len() + 1;
    let held = state.ledger.take(spot, request, (task, known), ends);
    let attempt = record.next_attempt();
    record.attempts = record.attempts.max(attempt);
    effects.push(Effect::Start {
        task: record.id,
        attempt,
        placement: state.ledger.placement(&held, task),
        time_limit: record.limit.get(),
    });
    state.add_running(task, attempt, state.now, held, false);
}
