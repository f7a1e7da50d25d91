//! Where a demand fits now, and which of those places is best.

use std::cmp::Reverse;

use packhorse_model::{Bytes, GpuRequest};

use crate::ledger::{Ledger, count};
use crate::queue::Demand;
use crate::reserve::Reservation;
use crate::time::Moment;
use crate::{Policy, Settings};

/// A place for an attempt: a node, and devices of it in the pool's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) node: usize,
    pub(crate) devices: Vec<usize>,
}

/// How good a place is: the least is best, and of equals the first in the
/// pool's order.
type Score = [u64; 2];

/// The pool as one sees it who looks for a place.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) settings: Settings,
    /// What has to be left to another.
    pub(crate) kept: Option<&'a Reservation>,
    pub(crate) now: Moment,
}

impl View<'_> {
    /// The best place for `demand` on one of `nodes`, which are in the pool's
    /// order; `None` if it fits on none of them.
    pub(crate) fn best(
        &self,
        demand: &Demand,
        nodes: impl IntoIterator<Item = usize>,
    ) -> Option<Spot> {
        let fitting = nodes
            .into_iter()
            .filter(|&node| self.has_amounts(node, demand));
        let spots = fitting.filter_map(|node| match demand.request.gpus {
            GpuRequest::None => Some(self.node(node)),
            GpuRequest::Share(_) => self.device(node, demand),
            GpuRequest::Whole(wanted) => self.group(node, demand, wanted),
        });
        let (_, spot) = spots.min_by_key(|&(score, _)| score)?;
        Some(spot)
    }

    /// How much memory of each of its devices one with the shape of `demand`
    /// could be promised on `node`; `None` if none fits there at all.
    pub(crate) fn headroom(&self, node: usize, demand: &Demand) -> Option<Bytes> {
        if !self.has_amounts(node, demand) {
            return None;
        }
        let rooms = self.rooms(node, demand).map(|(_, room)| room);
        match demand.request.gpus {
            GpuRequest::None => Some(Bytes(u64::MAX)),
            GpuRequest::Share(_) | GpuRequest::Whole(1) => rooms.max(),
            GpuRequest::Whole(wanted) => nth_largest(rooms, wanted),
        }
    }

    fn has_amounts(&self, node: usize, demand: &Demand) -> bool {
        let ledger = &self.ledger.nodes[node];
        let needs = ledger.needs(&demand.request);
        match self.kept {
            Some(kept) if kept.spot.node == node && !self.is_in_time(kept, demand) => {
                needs.leaves(kept.needs, ledger.free)
            }
            _ => needs.is_within(ledger.free),
        }
    }

    /// Whether it will be over before the one comes for whom things are kept.
    fn is_in_time(&self, kept: &Reservation, demand: &Demand) -> bool {
        demand.bound.is_over_by(kept.until, self.now)
    }

    /// The devices of `node` where one with the shape of `demand` fits, with
    /// the memory that it could be promised.
    fn rooms(&self, node: usize, demand: &Demand) -> impl Iterator<Item = (usize, Bytes)> {
        let kept = self
            .kept
            .filter(|kept| kept.spot.node == node && !self.is_in_time(kept, demand));
        self.ledger
            .devices_of(node)
            .filter_map(move |(index, device)| {
                let room = device.headroom(self.settings, &demand.request)?;
                let room = match kept {
                    Some(kept) => kept.room_left(index, &demand.request, room)?,
                    None => room,
                };
                Some((index, room))
            })
    }

    /// The devices of `node` where `demand` itself fits.
    fn fitting(&self, node: usize, demand: &Demand) -> impl Iterator<Item = usize> {
        let needed = demand.memory();
        let rooms = self.rooms(node, demand);
        rooms.filter_map(move |(index, room)| (room >= needed).then_some(index))
    }

    fn node(&self, node: usize) -> (Score, Spot) {
        let ledger = &self.ledger.nodes[node];
        let score = match self.settings.policy {
            Policy::Pack => [ledger.free.cores, ledger.free.cpu],
            Policy::Spread => [ledger.guests.len() as u64, 0],
        };
        let devices = Vec::new();
        (score, Spot { node, devices })
    }

    fn device(&self, node: usize, demand: &Demand) -> Option<(Score, Spot)> {
        let scored = self.fitting(node, demand).map(|index| {
            let device = &self.ledger.devices[index];
            let score = match self.settings.policy {
                // Of equally full ones the smaller: large ones are for those
                // who need them.
                Policy::Pack => [u64::MAX - device.fullness(), device.capacity.0],
                Policy::Spread => [device.fullness(), device.attempts().into()],
            };
            (score, index)
        });
        let (score, device) = scored.min()?;
        let devices = vec![device];
        Some((score, Spot { node, devices }))
    }

    fn group(&self, node: usize, demand: &Demand, wanted: u32) -> Option<(Score, Spot)> {
        let mut devices: Vec<usize> = self.fitting(node, demand).collect();
        let many = devices.len() as u64;
        if many < u64::from(wanted) {
            return None;
        }
        devices.truncate(wanted as usize);
        let score = match self.settings.policy {
            Policy::Pack => [many, 0],
            Policy::Spread => [u64::MAX - many, 0],
        };
        Some((score, Spot { node, devices }))
    }
}

/// What the `wanted` largest have all.
pub(crate) fn nth_largest(rooms: impl Iterator<Item = Bytes>, wanted: u32) -> Option<Bytes> {
    let mut rooms: Vec<Bytes> = rooms.collect();
    if count(rooms.len()) < wanted {
        return None;
    }
    rooms.sort_unstable_by_key(|&room| Reverse(room));
    rooms.get((wanted as usize).checked_sub(1)?).copied()
}
