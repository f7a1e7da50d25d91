//! What there is, what is taken, and what is left.

use std::time::Duration;

use crate::{DeviceSpec, KeptRoom, NodeSpec, Outside};
use packhorse_model::{Bytes, CoreId, DeviceId, GpuRequest, MemoryRequest, Milli, Request};

use super::{Model, Run};

/// One of our attempts, as a device or a machine sees it.
#[derive(Clone, Debug)]
pub struct Tenant {
    pub share: u64,
    pub memory: u64,
    pub whole: bool,
    /// Cores, busy cores in thousandths, main memory.
    pub amounts: [u64; 3],
    /// When it ends, if that is known.
    pub end: Option<Duration>,
}

/// The amount of memory that it needs of each device.
pub fn memory(request: &Request) -> u64 {
    match request.memory {
        MemoryRequest::Bytes(memory) | MemoryRequest::AtLeast(memory) => memory.0,
        _ => 0,
    }
}

pub fn is_whole(request: &Request) -> bool {
    matches!(request.gpus, GpuRequest::Whole(_)) || request.memory == MemoryRequest::Whole
}

pub fn amounts(request: &Request) -> [u64; 3] {
    let cores = u64::from(request.cores);
    [cores, u64::from(request.cpu.0).max(cores * 1000), request.ram.0]
}

/// The sums that some of these make.
fn sums(items: impl Iterator<Item = u64>) -> std::collections::BTreeSet<u64> {
    let mut sums = std::collections::BTreeSet::from([0]);
    for item in items {
        let more: Vec<u64> = sums.iter().map(|sum| sum + item).collect();
        sums.extend(more);
    }
    sums
}

/// What of cores, busy cores and main memory `node` lacks beside `guests`.
pub fn lacking(node: &NodeSpec, request: &Request, guests: &[Tenant]) -> [u64; 3] {
    let sizes = [
        Some(node.cores.len() as u64),
        node.cpu.map(|cpu| cpu.0.into()),
        node.ram.map(|ram| ram.0),
    ];
    let needs = amounts(request);
    [0, 1, 2].map(|kind| {
        let taken: u64 = guests.iter().map(|guest| guest.amounts[kind]).sum();
        // What takes nothing of a kind lacks nothing of it, however full it is.
        match sizes[kind] {
            Some(size) if needs[kind] > 0 => (taken + needs[kind]).saturating_sub(size),
            _ => 0,
        }
    })
}

/// The same if `kept` has to be left, of what it takes at all.
pub fn lacking_beside(
    node: &NodeSpec,
    request: &Request,
    guests: &[Tenant],
    kept: &Request,
) -> [u64; 3] {
    let mut guests = guests.to_vec();
    let needs = amounts(request);
    let mut amounts = amounts(kept);
    for kind in 0..3 {
        if needs[kind] == 0 {
            amounts[kind] = 0;
        }
    }
    guests.push(Tenant { share: 0, memory: 0, whole: false, amounts, end: None });
    lacking(node, request, &guests)
}

impl Model {
    pub fn outside(&self, device: DeviceId) -> Outside {
        self.outside.get(&device).copied().unwrap_or_default()
    }

    pub fn tenants(&self, device: &DeviceSpec) -> Vec<Tenant> {
        let mut tenants = vec![];
        for (_, run) in self.runs() {
            let mut granted = run.placement.devices.iter();
            if let Some(granted) = granted.find(|granted| granted.device == device.id) {
                let observed = run.observed.get(&device.id).copied().unwrap_or_default();
                tenants.push(Tenant {
                    share: granted.share.0.into(),
                    memory: granted.memory.max(observed).0,
                    ..self.guest(run)
                });
            }
        }
        tenants
    }

    pub fn guests(&self, node: &NodeSpec) -> Vec<Tenant> {
        let runs = self.runs().map(|(_, run)| run);
        let here = runs.filter(|run| run.placement.node == node.id);
        here.map(|run| self.guest(run)).collect()
    }

    fn guest(&self, run: &Run) -> Tenant {
        let limit = run.limit.map(|limit| run.since + limit);
        let expected = run.expected.map(|expected| run.since + expected);
        let ends = [expected, limit].into_iter().flatten();
        Tenant {
            share: 0,
            memory: 0,
            whole: is_whole(&run.request),
            // What was adopted may have other cores than it asks for.
            amounts: amounts(&Request {
                cores: u32::try_from(run.placement.cores.len()).unwrap(),
                ..run.request.clone()
            }),
            end: match limit {
                Some(limit) if limit < self.now => None,
                _ => ends.filter(|&end| end >= self.now).min(),
            },
        }
    }

    /// How much memory of `device` another could be promised beside `tenants`.
    pub fn room(
        &self,
        device: &DeviceSpec,
        tenants: &[Tenant],
        outside: Outside,
        request: &Request,
    ) -> Option<u64> {
        let attempts = tenants.len() + outside.attempts as usize;
        let share: u64 = tenants.iter().map(|tenant| tenant.share).sum();
        let share = share + u64::from(outside.share.0);
        let most = self.settings.max_per_device.unwrap_or(u32::MAX) as usize;
        let shares = matches!(request.gpus, GpuRequest::Share(_));
        let fits = request.models.contains(device.model)
            && !(device.one_process && (shares || outside.has_strangers))
            && device.memory >= request.device_memory
            && !outside.whole
            && !tenants.iter().any(|tenant| tenant.whole)
            && attempts < most
            && share + u64::from(request.gpus.share().0) <= 1000
            && !(is_whole(request) && (attempts > 0 || outside.share > Milli(0)));
        if !fits {
            return None;
        }
        match request.memory {
            MemoryRequest::Whole
                if outside.memory.0.saturating_sub(outside.drawn.0) * 20 > device.memory.0 =>
            {
                None
            }
            MemoryRequest::Uncounted | MemoryRequest::Whole => Some(u64::MAX),
            MemoryRequest::AtLeast(_)
                if outside.memory.0.saturating_sub(outside.runs.0 + outside.drawn.0) * 20
                    > device.memory.0 =>
            {
                None
            }
            _ if device.memory.0 == 0 => None,
            MemoryRequest::Bytes(_) | MemoryRequest::AtLeast(_) => {
                let ours: u64 = tenants.iter().map(|tenant| tenant.memory).sum();
                Some(device.memory.0.saturating_sub(ours + outside.memory.0))
            }
        }
    }

    /// The memory of `device` that nobody holds and nobody was promised.
    pub fn free_memory(&self, device: &DeviceSpec) -> u64 {
        let tenants = self.tenants(device);
        let ours: u64 = tenants.iter().map(|tenant| tenant.memory).sum();
        let taken = ours + self.outside(device.id).memory.0;
        device.memory.0.saturating_sub(taken)
    }

    /// How many twentieths of `device` strangers hold who compute there, and one.
    pub fn crowding(&self, device: &DeviceSpec) -> u64 {
        let outside = self.outside(device.id);
        let held = outside.memory.0.saturating_sub(outside.runs.0 + outside.drawn.0);
        let part = (held * 20).checked_div(device.memory.0).unwrap_or(0);
        if outside.has_strangers { part + 1 } else { 0 }
    }

    /// Whether it fits on `device` beside `tenants`.
    pub fn fits_beside(&self, device: &DeviceSpec, tenants: &[Tenant], request: &Request) -> bool {
        let outside = self.outside(device.id);
        !self.is_closed(device.id)
            && self.room(device, tenants, outside, request) >= Some(memory(request))
    }

    /// Whether it fits on `device` if nothing of ours were there, and other runs made room.
    pub fn is_in_reach(&self, device: &DeviceSpec, request: &Request) -> bool {
        let mut outside = self.outside(device.id);
        if outside.yields {
            let memory = Bytes(outside.memory.0 - outside.runs.0);
            let (drawn, has_strangers) = (outside.drawn, outside.has_strangers);
            outside = Outside { memory, drawn, has_strangers, ..Outside::default() };
        }
        !self.is_closed(device.id)
            && self.room(device, &[], outside, request) >= Some(memory(request))
    }

    pub fn free_cores(&self, node: &NodeSpec) -> Vec<CoreId> {
        let mut free: Vec<CoreId> = node.cores.iter().map(|core| core.id).collect();
        for (_, run) in self.runs() {
            if run.placement.node == node.id {
                free.retain(|core| !run.placement.cores.contains(core));
            }
        }
        free
    }

    /// How full a device is in thousandths, and with how many attempts.
    pub fn fullness(&self, device: &DeviceSpec) -> (u64, usize) {
        let tenants = self.tenants(device);
        let outside = self.outside(device.id);
        let share: u64 = tenants.iter().map(|tenant| tenant.share).sum();
        let memory: u64 = tenants.iter().map(|tenant| tenant.memory).sum();
        let taken = (memory + outside.memory.0) * 1000;
        let memory = taken.checked_div(device.memory.0).unwrap_or(0);
        (memory.max(share + u64::from(outside.share.0)), tenants.len() + outside.attempts as usize)
    }

    /// When `fits` if these end when they should; `None` if that is not known.
    pub fn ready(
        &self,
        mut tenants: Vec<Tenant>,
        fits: impl Fn(&[Tenant]) -> bool,
    ) -> Option<Duration> {
        let mut when = self.now;
        while !fits(&tenants) {
            let ends = tenants.iter().filter_map(|tenant| tenant.end);
            when = ends.min()?;
            let index = tenants.iter().position(|tenant| tenant.end == Some(when));
            tenants.remove(index?);
        }
        Some(when)
    }

    /// Whether a newcomer may join these on `device` beside what is kept there for other
    /// runs.
    pub fn leaves_kept(&self, device: &DeviceSpec, newcomer: &Request) -> bool {
        let kept = self.outside(device.id).kept;
        kept == KeptRoom::default() || self.has_room_beside(device, kept, newcomer)
    }

    /// Whether a newcomer of any length may join these on `device`, which is kept
    /// for `holder`.
    pub fn has_slack(&self, device: &DeviceSpec, holder: &Request, newcomer: &Request) -> bool {
        let kept = KeptRoom {
            share: holder.gpus.share(),
            memory: Bytes(memory(holder)),
            whole: is_whole(holder),
        };
        self.has_room_beside(device, kept, newcomer)
    }

    fn has_room_beside(&self, device: &DeviceSpec, kept: KeptRoom, newcomer: &Request) -> bool {
        let takes_all_free = matches!(newcomer.memory, MemoryRequest::AtLeast(_));
        if kept.whole || is_whole(newcomer) || takes_all_free {
            return false;
        }
        let tenants = self.tenants(device);
        let outside = self.outside(device.id);
        let most = self.settings.max_per_device.unwrap_or(u32::MAX) as usize;
        if tenants.len() + outside.attempts as usize + 2 > most {
            return false;
        }
        // Whichever of them have gone when there is enough for the holder, there
        // has to be enough for both.
        let enough = |size: u64, others: u64, items: &[u64], holder: u64, newcomer: u64| {
            let taken = items.iter().sum::<u64>() + others;
            let sums = sums(items.iter().copied());
            let suffices = |sum: &u64| size + sum >= taken + holder;
            sums.iter().any(suffices)
                && (sums.iter().filter(|sum| suffices(sum)))
                    .all(|sum| size + sum >= taken + holder + newcomer)
        };
        let mut shares: Vec<u64> = tenants.iter().map(|tenant| tenant.share).collect();
        let mut memories: Vec<u64> = tenants.iter().map(|tenant| tenant.memory).collect();
        let mut outside = outside;
        // The one attempt of another run is like one of ours.
        if outside.yields && outside.attempts == 1 {
            shares.push(outside.share.0.into());
            memories.push(outside.runs.0);
            outside.share = Milli(0);
            outside.memory.0 -= outside.runs.0;
        }
        let (its_share, share) = (kept.share.0, newcomer.gpus.share().0);
        enough(1000, outside.share.0.into(), &shares, its_share.into(), share.into())
            && match (kept.memory, newcomer.memory) {
                (Bytes(0), _) => true,
                (_, MemoryRequest::Uncounted) => false,
                (Bytes(wanted), _) => {
                    enough(device.memory.0, outside.memory.0, &memories, wanted, memory(newcomer))
                }
            }
    }
}
