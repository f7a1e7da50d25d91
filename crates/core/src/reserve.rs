//! The reservation of the first in line.
//!
//! Without it, a task that needs much would wait for ever behind a stream of
//! small ones that always find a gap. With too much of it, devices would stay
//! idle. The rules in between:
//!
//! - Only one waiting task has a reservation: the first that could start if all
//!   of our attempts ended and other runs made room for it, and only if it fits
//!   nowhere now. (Those in front of it wait for a drained device or for other
//!   users' processes, and nothing that we could keep would help them.) It has as many devices of one node as it needs, and
//!   what it needs of that node's cores and main memory.
//! - Which devices? Those that need no other run to make room, if there are
//!   enough. (Else other runs are told what is wanted: see
//!   [`SchedulerState::wanted`](crate::SchedulerState::wanted).) If it is known when all on them end, those where it fits
//!   first. Else "ready soonest" is a guess: the emptiest, then those with the
//!   fewest attempts.
//! - It is sticky. If it followed every change of that guess, small tasks could
//!   fill up the devices it has just left, again and again. As it stands still,
//!   its devices only drain, and the holder starts at the latest when those have
//!   ended that were on them when it was made.
//! - It binds others only. Its holder starts wherever it fits first.
//! - Others may start (backfill) wherever they neither touch a reserved device
//!   nor leave the reserved node with less than the holder needs; what takes
//!   nothing of a kind cannot do the latter. And they may start on what is
//!   reserved if that provably does not delay the holder: because they fit into
//!   the [`slack`](crate::slack), or because they are over before the moment at
//!   which, by what is known, the holder can start there. That moment is never
//!   put off: when those on the devices end sooner it comes nearer, when they
//!   take longer than was known nobody else is let in.
//! - A slot needs no reservation: whatever the holder waits for is freed by the
//!   end of an attempt, which also frees a slot, and the holder is asked first.
//! - It ends when its holder starts, or is not the one to have it any more, or
//!   could not start there even if all of our attempts ended.

use packhorse_model::{Bytes, MemoryRequest, Milli, Request};

use crate::KeptRoom;
use crate::device::{DeviceLedger, DeviceRoom, is_whole, memory_of};
use crate::ledger::{Amounts, Ledger};
use crate::place::Spot;
use crate::queue::ClassId;
use crate::slack::left_over;
use crate::tasks::Handle;
use crate::time::Moment;

/// What is kept for the first in line.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) holder: Handle,
    /// The holder's class when it was made.
    pub(crate) class: ClassId,
    pub(crate) spot: Spot,
    /// What others must leave of the node.
    pub(crate) needs: Amounts,
    /// When the holder can start there at the latest, if that is known.
    pub(crate) until: Moment,
    /// What others may have of each device.
    pub(crate) slack: Vec<Option<Slack>>,
}

/// What others may have of a reserved device, however long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slack {
    pub(crate) share: Milli,
    /// Nothing if the holder does not count memory.
    pub(crate) memory: Option<Bytes>,
}

impl Reservation {
    /// For `holder`, which needs `request`, where it will probably fit soonest.
    /// `None` if it could start nowhere.
    pub(crate) fn new(
        ledger: &Ledger,
        (holder, class): (Handle, ClassId),
        request: &Request,
        now: Moment,
    ) -> Option<Self> {
        let spot = soonest(ledger, request, now)?;
        let mut reservation = Self {
            holder,
            class,
            needs: ledger.nodes[spot.node].needs(request),
            spot,
            until: Moment::NEVER,
            slack: Vec::new(),
        };
        reservation.refresh(ledger, request, now);
        Some(reservation)
    }

    /// Takes note of what has changed on its node.
    pub(crate) fn refresh(&mut self, ledger: &Ledger, request: &Request, now: Moment) {
        let devices = ledger.at(&self.spot.devices);
        let ready = devices.clone().map(|device| device.ready(request, now));
        let node_ready = ledger.nodes[self.spot.node].ready(request, now);
        self.until = self.until.min(ready.fold(node_ready, Moment::max));
        let kept = KeptRoom::of(request);
        self.slack = devices.map(|device| Slack::of(device, kept)).collect();
    }

    /// Whether its holder could start there if all of our attempts ended.
    pub(crate) fn is_possible(&self, ledger: &Ledger, request: &Request) -> bool {
        let mut devices = ledger.at(&self.spot.devices);
        !ledger.nodes[self.spot.node].leaving && devices.all(|device| is_reachable(device, request))
    }

    pub(crate) fn has_device(&self, device: usize) -> bool {
        self.spot.devices.contains(&device)
    }

    /// How much of `room` on a device of this node is left for another task like
    /// `request` that may still run when the holder starts. `None` if it may not
    /// use the device.
    pub(crate) fn room_left(
        &self,
        device: usize,
        request: &Request,
        room: DeviceRoom,
    ) -> Option<DeviceRoom> {
        let Some(place) = self.spot.devices.iter().position(|&kept| kept == device) else {
            return Some(room);
        };
        self.slack[place]?.limit(request, room)
    }
}

impl KeptRoom {
    /// What has to be left for `request`.
    fn of(request: &Request) -> Self {
        Self { share: request.gpus.share(), memory: memory_of(request), whole: is_whole(request) }
    }
}

impl Slack {
    /// What others may have of `device`, of which `kept` has to be left. `None`: it is
    /// closed to them.
    pub(crate) fn of(device: &DeviceLedger, kept: KeptRoom) -> Option<Self> {
        if kept.whole {
            return None;
        }
        // With a limit, the holder and the newcomer both need a place.
        let both = device.attempts().saturating_add(2);
        if device.max_attempts.is_some_and(|most| both > most) {
            return None;
        }
        let other_run = device.outside.leaving_at_once();
        let shares = device.tenants.iter().map(|tenant| tenant.share.0.into());
        let share = left_over(
            Milli::ONE.0.into(),
            device.used().0.into(),
            kept.share.0.into(),
            shares.chain([other_run.share.0.into()]),
        )?;
        let memory = match kept.memory {
            Bytes(0) => None,
            Bytes(needed) => {
                let memory = device.tenants.iter().map(|tenant| tenant.memory().0);
                Some(Bytes(left_over(
                    device.capacity.0,
                    device.taken().0,
                    needed,
                    memory.chain([other_run.memory.0]),
                )?))
            }
        };
        Some(Self { share: Milli(u32::try_from(share).unwrap_or(u32::MAX)), memory })
    }

    /// How much of `room` is left for a task like `request`. `None` if it may not use the
    /// device.
    pub(crate) fn limit(self, request: &Request, room: DeviceRoom) -> Option<DeviceRoom> {
        // One that is promised all that is free leaves nothing.
        if is_whole(request) || matches!(request.memory, MemoryRequest::AtLeast(_)) {
            return None;
        }
        let memory = match (self.memory, request.memory) {
            (None, _) => room.memory,
            // Nobody knows what it will take.
            (Some(_), MemoryRequest::Uncounted) => return None,
            (Some(memory), _) => room.memory.min(memory),
        };
        let share = room.share.min(self.share);
        Some(DeviceRoom { share, memory })
    }
}

fn is_reachable(device: &DeviceLedger, request: &Request) -> bool {
    let reach = device.reach(request);
    reach.is_some_and(|reach| reach.fits(request))
}

/// A device that would do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Able {
    /// Whether other runs have to make room first.
    needs_others: bool,
    /// When it has room.
    ready: Moment,
    /// If that is not known, it is guessed by how full it is, and with how many
    /// attempts.
    fullness: u64,
    attempts: u32,
    index: usize,
}

/// How far a place is from being free, what is known before what is guessed:
/// whether other runs have to make room, when it is free, how full its devices are, how many attempts are on them, and what
/// its node lacks.
type Distance = (bool, Moment, u64, u64, Amounts);

/// Where `request` will fit soonest, or probably will. `None` if it never will,
/// as things stand.
pub(crate) fn soonest(ledger: &Ledger, request: &Request, now: Moment) -> Option<Spot> {
    let wanted = request.gpus.devices() as usize;
    let mut able = Vec::with_capacity(ledger.devices.len());
    let mut nodes = Vec::with_capacity(ledger.nodes.len());
    let mut is_known = true;
    // Asks when something is free, as long as that is known of all.
    let mut when = |ready: &dyn Fn() -> Moment| {
        let ready = if is_known { ready() } else { now };
        is_known &= ready != Moment::NEVER;
        ready
    };
    for (node, account) in ledger.nodes.iter().enumerate() {
        let first = able.len();
        if account.leaving || !account.needs(request).is_within(account.size) {
            continue;
        }
        if wanted > 0 {
            let devices = ledger.devices_of(node);
            let reachable = devices.filter(|(_, device)| is_reachable(device, request));
            able.extend(reachable.map(|(index, device)| Able {
                needs_others: device.needs_others(request),
                ready: now,
                fullness: device.fullness(device.load),
                attempts: device.attempts(),
                index,
            }));
        }
        if able.len() - first < wanted {
            able.truncate(first);
            continue;
        }
        for device in able[first..].iter_mut().filter(|it| !it.needs_others) {
            let account = &ledger.devices[device.index];
            device.ready = when(&|| account.ready(request, now));
        }
        let ready = when(&|| account.ready(request, now));
        nodes.push((node, ready, first..able.len()));
    }
    if !is_known {
        for device in &mut able {
            device.ready = now;
        }
        for (_, ready, _) in &mut nodes {
            *ready = now;
        }
    }
    let mut best: Option<(Distance, Spot)> = None;
    for (node, ready, devices) in nodes {
        let devices = &mut able[devices];
        if wanted > 0 {
            devices.select_nth_unstable(wanted - 1);
        }
        let devices = &devices[..wanted];
        let account = &ledger.nodes[node];
        let lacking = account.needs(request).beyond(account.free);
        let mut distance: Distance = (false, ready, 0, 0, lacking);
        for device in devices {
            distance.0 |= device.needs_others;
            distance.1 = distance.1.max(device.ready);
            distance.2 = distance.2.saturating_add(device.fullness);
            distance.3 += u64::from(device.attempts);
        }
        if best.as_ref().is_none_or(|(least, _)| distance < *least) {
            let mut devices: Vec<usize> = devices.iter().map(|device| device.index).collect();
            devices.sort_unstable();
            best = Some((distance, Spot { node, devices }));
        }
    }
    best.map(|(_, spot)| spot)
}
