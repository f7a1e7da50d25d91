//! The reservation of the first in line.
//!
//! Without it, a task that needs much would wait for ever behind a stream of
//! small ones that always find a gap. With too much of it, devices would stand
//! idle. What stands between:
//!
//! - Only the first waiting task, and only if it fits nowhere, has a
//!   reservation: as many devices of one node as it needs, and as many cores
//!   of that node. How long attempts take is unknown, so "ready soonest" is a
//!   guess: the devices with the least share given out, then with the fewest
//!   attempts.
//! - It is sticky. If it followed every change of that guess, small tasks could
//!   fill up the devices it has just left, again and again. As it stands still
//!   and nobody else may enter, its devices only drain, and the first in line
//!   starts at the latest when those have ended that were on them when it was
//!   made.
//! - It binds others only. Its holder starts wherever it fits first.
//! - Others may start (backfill) wherever they neither touch a reserved device
//!   nor leave the reserved node with fewer free cores than the holder needs.
//!   Those that take no cores of their own cannot do the latter.
//! - A slot needs no reservation: whatever the holder waits for is freed by the
//!   end of an attempt, which also frees a slot, and the holder is asked first.
//! - It ends when its holder starts, or is not the first in line any more.

use std::cmp::Reverse;

use packhorse_model::Request;

use crate::ledger::{DeviceLedger, Ledger, count};
use crate::place::Spot;
use crate::tasks::Handle;

/// What is kept for the first in line.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) holder: Handle,
    pub(crate) spot: Spot,
    pub(crate) cores: u32,
    /// How many attempts had started when it was made: all later ones had to
    /// respect it.
    pub(crate) made: u64,
}

impl Reservation {
    pub(crate) fn has_device(&self, device: usize) -> bool {
        self.spot.devices.contains(&device)
    }

    /// How many cores of `node` others must leave free.
    pub(crate) fn cores_kept(&self, node: usize) -> u32 {
        if node == self.spot.node {
            self.cores
        } else {
            0
        }
    }
}

/// Where `request` will probably fit soonest. `None` if it never will.
pub(crate) fn soonest(ledger: &Ledger, request: &Request) -> Option<Spot> {
    let wanted = request.gpus.devices();
    let able = ledger.nodes.iter().enumerate().filter(|(_, node)| {
        count(node.devices.len()) >= wanted && count(node.cores.len()) >= request.cores
    });
    let best = able.map(|(index, node)| {
        let mut devices: Vec<usize> = node.devices.clone().collect();
        devices.sort_by_key(|&device| {
            let device = &ledger.devices[device];
            (Reverse(device.free()), device.attempts)
        });
        devices.truncate(wanted as usize);
        devices.sort_unstable();
        let total = |amount: fn(&DeviceLedger) -> u32| -> u64 {
            devices
                .iter()
                .map(|&device| u64::from(amount(&ledger.devices[device])))
                .sum()
        };
        let short = request.cores.saturating_sub(node.free_cores);
        let score = (
            total(|device| device.used.0),
            total(|device| device.attempts),
            short,
        );
        (
            score,
            Spot {
                node: index,
                devices,
            },
        )
    });
    best.min_by_key(|(score, _)| *score).map(|(_, spot)| spot)
}
