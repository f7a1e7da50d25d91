//! Where a demand fits now, and which of those places is best.

use packhorse_model::{GpuRequest, MemoryRequest, Placing, Request};
use rustc_hash::FxHashSet;

use crate::device::{DeviceLedger, DeviceRoom};
use crate::fragmentation::{Outlook, RequestMix, are_alike, likeness};
use crate::ledger::{Amounts, Ledger, NodeLedger};
use crate::needs::Rooms;
use crate::queue::Demand;
use crate::reserve::Reservation;
use crate::time::Moment;

/// A place for an attempt: a node, and devices of it in the pool's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) node: usize,
    pub(crate) devices: Vec<usize>,
}

/// A place that fits.
struct PlaceCandidate {
    spot: Spot,
    /// How much strangers are in the way there.
    crowding: u64,
    /// What decides between places that cost the same: the least is best, and of equals
    /// the first in the pool's order.
    ties: [u64; 3],
}

/// The pool, as seen by a task that looks for a place.
#[derive(Clone, Copy)]
pub(crate) struct PoolView<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) policy: Placing,
    /// What tasks need here, and how often.
    pub(crate) mix: &'a RequestMix,
    /// What has to be left to the first in line.
    pub(crate) kept: Option<&'a Reservation>,
    pub(crate) now: Moment,
}

impl PoolView<'_> {
    /// The best place for `demand` on one of `nodes`, which are in the pool's
    /// order; `None` if it fits on none of them.
    pub(crate) fn best(
        &self,
        demand: &Demand,
        nodes: impl IntoIterator<Item = usize>,
    ) -> Option<Spot> {
        let mut met = FxHashSet::default();
        let mut candidates = Vec::new();
        for node in nodes {
            if !self.has_amounts(node, demand) {
                continue;
            }
            let before = candidates.len();
            self.add_candidates(node, demand, &mut candidates);
            if candidates.len() > before && !self.is_worth_a_look(node, &mut met) {
                candidates.truncate(before);
            }
        }
        // On a busy pool there is seldom a choice.
        if let [_] | [] = candidates[..] {
            return candidates.pop().map(|place| place.spot);
        }
        // Strangers are avoided, whatever that costs those who will come.
        let least = candidates.iter().map(|place| place.crowding).min();
        candidates.retain(|place| Some(place.crowding) == least);
        let places = candidates.chunk_by(|one, other| one.spot.node == other.spot.node);
        let best = places.map(|places| self.best_of_node(demand, places));
        let best = best.min_by_key(|(cost, place)| (*cost, place.ties));
        best.map(|(_, place)| place.spot.clone())
    }

    /// Whether `demand` fits on more devices of `node` than it needs.
    pub(crate) fn has_choice(&self, node: usize, demand: &Demand) -> bool {
        let wanted = demand.request.gpus.devices();
        wanted > 0 && self.fitting(node, demand).nth(wanted as usize).is_some()
    }

    /// The best of some places on one node, and what it costs.
    fn best_of_node<'b>(
        &self,
        demand: &Demand,
        places: &'b [PlaceCandidate],
    ) -> (i128, &'b PlaceCandidate) {
        let (request, node) = (&demand.request, places[0].spot.node);
        let counts = self.policy == Placing::Pack && !takes_all_free(request);
        let outlook = counts.then(|| Outlook::new(self.mix, self.ledger, node));
        let cost = |place: &PlaceCandidate| {
            let outlook = outlook.as_ref();
            outlook.map_or(0, |outlook| outlook.cost(request, &place.spot.devices))
        };
        let costs: Vec<i128> = places.iter().map(cost).collect();
        let least = costs.iter().copied().min().unwrap_or(0);
        let most = least + outlook.as_ref().map_or(0, Outlook::rounding);
        let cheap = places.iter().zip(&costs).filter(|(_, cost)| **cost <= most);
        let best = cheap.min_by_key(|(place, _)| place.ties);
        (least, best.map_or(&places[0], |(place, _)| place))
    }

    /// Adds what those like `request` may need to start on `node`.
    pub(crate) fn add_rooms(&self, node: usize, request: &Request, rooms: &mut Rooms) {
        let ledger = &self.ledger.nodes[node];
        if ledger.leaving {
            return;
        }
        let mut add = |nanos, kept: Option<&Reservation>| {
            let devices = self.device_rooms(node, request, kept);
            let devices = devices.map(|(_, room)| room);
            rooms.add_machine(nanos, free_beside(ledger, kept), request.gpus, devices);
        };
        let kept = self.kept.filter(|kept| kept.spot.node == node);
        add(u64::MAX, kept);
        // What is over in time may use what is kept.
        if let Some(kept) = kept
            && let Some(nanos) = kept.until.nanos_from(self.now)
        {
            add(nanos, None);
        }
    }

    /// Of nodes that are alike, the first is as good as any; `met` are those
    /// that were looked at.
    fn is_worth_a_look(&self, node: usize, met: &mut FxHashSet<u64>) -> bool {
        let is_kept = self.kept.is_some_and(|kept| kept.spot.node == node);
        self.policy == Placing::Spread || is_kept || met.insert(likeness(self.ledger, node))
    }

    fn has_amounts(&self, node: usize, demand: &Demand) -> bool {
        let ledger = &self.ledger.nodes[node];
        let kept = self.kept_from(node, demand);
        let needs = ledger.needs(&demand.request);
        !ledger.leaving && needs.is_within(free_beside(ledger, kept))
    }

    /// What `demand` has to leave on `node`: nothing if it will be over before the
    /// holder of the reservation can start.
    fn kept_from(&self, node: usize, demand: &Demand) -> Option<&Reservation> {
        self.kept
            .filter(|kept| kept.spot.node == node && !demand.bound.is_over_by(kept.until, self.now))
    }

    /// The devices of `node` that a task like `request` may use while it leaves
    /// what is `kept`, and how much room each has.
    fn device_rooms(
        &self,
        node: usize,
        request: &Request,
        kept: Option<&Reservation>,
    ) -> impl Iterator<Item = (usize, DeviceRoom)> {
        let devices = self.ledger.devices_of(node);
        devices.filter_map(move |(index, device)| {
            let room = device.headroom(request)?;
            let room = match kept {
                Some(kept) => kept.room_left(index, request, room)?,
                None => room,
            };
            Some((index, room))
        })
    }

    /// The devices of `node` where `demand` itself fits.
    fn fitting(&self, node: usize, demand: &Demand) -> impl Iterator<Item = usize> {
        let request = &demand.request;
        let rooms = self.device_rooms(node, request, self.kept_from(node, demand));
        rooms.filter_map(move |(index, room)| room.fits(request).then_some(index))
    }

    /// Adds the places on `node`, which has the amounts that it takes.
    fn add_candidates(&self, node: usize, demand: &Demand, candidates: &mut Vec<PlaceCandidate>) {
        let mut add = |devices, crowding, ties| {
            candidates.push(PlaceCandidate { spot: Spot { node, devices }, crowding, ties });
        };
        let policy = self.policy;
        match demand.request.gpus {
            GpuRequest::None => {
                let ledger = &self.ledger.nodes[node];
                let ties = match policy {
                    Placing::Pack => [ledger.free.cores, ledger.free.cpu, 0],
                    Placing::Spread => [ledger.guests.len() as u64, 0, 0],
                };
                add(Vec::new(), 0, ties);
            }
            GpuRequest::Share(_) => {
                let mut met: Vec<&DeviceLedger> = Vec::new();
                for index in self.fitting(node, demand) {
                    let device = &self.ledger.devices[index];
                    // Of devices that are alike, the first is as good as any.
                    if met.iter().any(|other| are_alike(other, device)) {
                        continue;
                    }
                    met.push(device);
                    // Neighbours slow each other down: of those that cost the same,
                    // the emptier one. Of equally full ones the smaller: large ones
                    // are for those who need them.
                    let first = if takes_all_free(&demand.request) {
                        u64::MAX - device.free().0
                    } else {
                        device.fullness(device.load)
                    };
                    let ties = [first, device.attempts().into(), device.capacity.0];
                    add(vec![index], device.crowding(), ties);
                }
            }
            GpuRequest::Whole(wanted) => {
                let mut devices: Vec<usize> = self.fitting(node, demand).collect();
                let many = devices.len() as u64;
                if many < u64::from(wanted) {
                    return;
                }
                // Of equals, the first in the pool's order.
                let in_the_way = |&index: &usize| {
                    let device = &self.ledger.devices[index];
                    (device.crowding(), device.outside.drawn)
                };
                devices.sort_by_key(in_the_way);
                devices.truncate(wanted as usize);
                let crowding = devices.last().map(|index| in_the_way(index).0);
                devices.sort_unstable();
                let ties = match policy {
                    Placing::Pack => [many, 0, 0],
                    Placing::Spread => [u64::MAX - many, 0, 0],
                };
                add(devices, crowding.unwrap_or(0), ties);
            }
        }
    }
}

/// Whether a part of a device is asked for with all that is free of its memory: then it
/// is best where most is.
fn takes_all_free(request: &Request) -> bool {
    matches!(request.gpus, GpuRequest::Share(_))
        && matches!(request.memory, MemoryRequest::AtLeast(_))
}

/// What is free of a machine beside what is `kept` there.
fn free_beside(node: &NodeLedger, kept: Option<&Reservation>) -> Amounts {
    kept.map_or(node.free, |kept| node.free.beyond(kept.needs))
}
