//! What a place costs those who will come, counted anew every time.

use crate::{DeviceSpec, NodeSpec, Outside};
use packhorse_model::{Bytes, MemoryRequest, Milli, Request};

use super::Model;
use super::rooms::{Tenant, amounts, is_whole, lacking, memory};

/// What tasks were seen to need, how often each, and how many of those have not
/// started.
#[derive(Default)]
pub struct RequestMix(Vec<(Request, i128, i128)>);

impl RequestMix {
    pub fn see(&mut self, request: &Request) {
        if self.find(request).is_none() {
            if self.0.len() == 64 {
                let of_devices =
                    |it: &Request| Request { cores: 0, cpu: Milli(0), ram: Bytes(0), ..it.clone() };
                let rarity = |kind: &(Request, i128, i128)| {
                    (of_devices(&kind.0) != of_devices(request), kind.1)
                };
                let rarest = self.0.iter().map(rarity).min().unwrap();
                let mut kinds = self.0.iter_mut();
                let kind = kinds.find(|kind| rarity(kind) == rarest).unwrap();
                *kind = (request.clone(), kind.1, 0);
            } else {
                self.0.push((request.clone(), 0, 0));
            }
        }
        self.find(request).unwrap().1 += 1;
        self.wait(request);
    }

    fn find(&mut self, request: &Request) -> Option<&mut (Request, i128, i128)> {
        self.0.iter_mut().find(|kind| kind.0 == *request)
    }

    pub fn forget(&mut self, request: &Request) {
        self.stop_waiting(request);
        if let Some(kind) = self.find(request) {
            kind.1 -= 1;
        }
        self.0.retain(|kind| kind.1 > 0);
    }

    pub fn wait(&mut self, request: &Request) {
        if let Some(kind) = self.find(request) {
            kind.2 += 1;
        }
    }

    pub fn stop_waiting(&mut self, request: &Request) {
        if let Some(kind) = self.find(request) {
            kind.2 = (kind.2 - 1).max(0);
        }
    }
}

/// The node if somebody took these devices.
struct Taking<'a> {
    request: &'a Request,
    devices: &'a [&'a DeviceSpec],
}

impl Model {
    /// What it costs if `request` takes these devices of the node.
    pub fn cost(&self, node: &NodeSpec, request: &Request, devices: &[&DeviceSpec]) -> i128 {
        let taking = Taking { request, devices };
        let room = |taking: Option<&Taking>| -> i128 {
            let rooms = node.devices.iter();
            rooms.map(|device| self.room_beside(device, &self.tenants_with(device, taking))).sum()
        };
        let kinds = self.mix.0.iter();
        let kinds = kinds.map(|(kind, seen, waiting)| {
            let often = if self.more_to_come { seen } else { waiting };
            (kind, often * self.weight(kind))
        });
        let kinds: Vec<(&Request, i128)> = kinds.collect();
        let used = |taking: Option<&Taking>| -> i128 {
            let kinds = kinds.iter();
            kinds.map(|(kind, counts)| counts * self.value(node, kind, taking)).sum()
        };
        let all = 2 * kinds.iter().map(|(_, counts)| counts).sum::<i128>();
        let taken = room(None) - room(Some(&taking));
        used(None) - used(Some(&taking)) - all * taken
            + self.emptiness(node, &taking, all, room(Some(&taking)))
    }

    /// By how much costs may differ though they are the same.
    pub fn rounding(&self, request: &Request) -> i128 {
        let takes_all_free = matches!(request.memory, MemoryRequest::AtLeast(_))
            && matches!(request.gpus, packhorse_model::GpuRequest::Share(_));
        if self.settings.policy != packhorse_model::Placing::Pack || takes_all_free {
            return 0;
        }
        let kinds = self.mix.0.iter().map(|(kind, seen, waiting)| {
            let often = if self.more_to_come { seen } else { waiting };
            often * self.weight(kind)
        });
        4 * kinds.sum::<i128>()
    }

    /// The fewer devices it could use, the more it counts.
    fn weight(&self, kind: &Request) -> i128 {
        if kind.gpus.devices() == 0 {
            return 256;
        }
        // Those that it could use if nobody were there.
        let suits = |device: &&DeviceSpec| {
            self.room(device, &[], Outside::default(), kind) >= Some(memory(kind))
        };
        let usable = self.pool.nodes.iter().map(|node| {
            let suiting = node.devices.iter().filter(suits).count();
            let suffices = suiting >= kind.gpus.devices() as usize;
            if suffices && lacking(node, kind, &[]) == [0, 0, 0] { suiting as u64 } else { 0 }
        });
        let all: usize = self.pool.nodes.iter().map(|node| node.devices.len()).sum();
        let times = (all as u64 * 65_536).checked_div(usable.sum());
        times.map_or(256, |times| i128::from(times.isqrt()))
    }

    fn tenants_with(&self, device: &DeviceSpec, taking: Option<&Taking>) -> Vec<Tenant> {
        let mut tenants = self.tenants(device);
        if let Some(taking) = taking
            && taking.devices.iter().any(|taken| taken.id == device.id)
        {
            tenants.push(Tenant {
                share: taking.request.gpus.share().0.into(),
                memory: match taking.request.memory {
                    MemoryRequest::Whole => device.memory.0,
                    MemoryRequest::AtLeast(_) => self.free_memory(device),
                    _ => memory(taking.request),
                },
                whole: is_whole(taking.request),
                amounts: [0; 3],
                end: None,
            });
        }
        tenants
    }

    /// Thousandths of the device that are left.
    fn room_beside(&self, device: &DeviceSpec, tenants: &[Tenant]) -> i128 {
        let outside = self.outside(device.id);
        if outside.whole || tenants.iter().any(|tenant| tenant.whole) {
            return 0;
        }
        let share: u64 = tenants.iter().map(|tenant| tenant.share).sum();
        let memory: u64 = tenants.iter().map(|tenant| tenant.memory).sum();
        let memory = (memory + outside.memory.0) * 1000;
        let memory = memory.checked_div(device.memory.0).unwrap_or(0);
        let taken = memory.max(share + u64::from(outside.share.0));
        (1000 - i128::from(taken)).max(0)
    }

    /// What tasks like `kind` could use of the node.
    fn value(&self, node: &NodeSpec, kind: &Request, taking: Option<&Taking>) -> i128 {
        let wanted = i128::from(kind.gpus.devices());
        let mut guests = self.guests(node);
        if let Some(taking) = taking {
            guests.push(Tenant {
                share: 0,
                memory: 0,
                whole: false,
                amounts: amounts(taking.request),
                end: None,
            });
        }
        let fits = |device: &&DeviceSpec, taking| {
            self.fits_beside(device, &self.tenants_with(device, taking), kind)
        };
        let fitting: Vec<&DeviceSpec> = node.devices.iter().filter(|it| fits(it, taking)).collect();
        let devices = i128::try_from(fitting.len()).unwrap();
        if wanted == 0 || devices < wanted || lacking(node, kind, &guests) != [0, 0, 0] {
            return 0;
        }
        let size = |device: &DeviceSpec| {
            let memory = (memory(kind) * 1000).checked_div(device.memory.0);
            let part = memory.unwrap_or(0).max(kind.gpus.share().0.into());
            i128::from(if is_whole(kind) { 1000 } else { part })
        };
        let fill = |device: &&DeviceSpec| {
            let tenants = self.tenants_with(device, taking);
            let attempts = tenants.len() + self.outside(device.id).attempts as usize;
            let most = self.settings.max_per_device.map(i128::from);
            let places = most.map(|most| most - i128::try_from(attempts).unwrap());
            let (room, size) = (self.room_beside(device, &tenants), size(device).max(1));
            let tasks = (room / size).max(1).min(places.unwrap_or(i128::MAX));
            room.min(tasks * size)
        };
        let filled: i128 = fitting.iter().map(fill).sum();
        let one = match wanted {
            1 => filled,
            _ => filled / devices * (devices / wanted * wanted),
        };
        let first = node.devices.iter().find(|it| fits(it, None)).unwrap();
        let mut many = one;
        for (need, free) in amounts(kind).into_iter().zip(free(node, &guests)) {
            if let Some(free) = free
                && need > 0
            {
                many = many.min(free * size(first) * wanted / i128::from(need));
            }
        }
        one + many
    }

    /// The emptier the node is then, the more it costs.
    fn emptiness(&self, node: &NodeSpec, taking: &Taking, all: i128, room: i128) -> i128 {
        let mut guests = self.guests(node);
        guests.push(Tenant {
            share: 0,
            memory: 0,
            whole: false,
            amounts: amounts(taking.request),
            end: None,
        });
        let [cores, cpu, _] = free(node, &guests);
        let nodes = &self.pool.nodes;
        let most_cpu = nodes.iter().filter_map(|node| Some(node.cpu?.0)).max();
        let most_cores = nodes.iter().map(|node| node.cores.len()).max().unwrap();
        let most_devices = nodes.iter().map(|node| node.devices.len()).max().unwrap();
        let mut cost = 0;
        match most_cpu.filter(|&most| most > 0) {
            Some(most) => cost += cpu.map_or(all * 16, |cpu| all * 16 * cpu / i128::from(most)),
            None if most_cores > 0 => {
                cost += all * 16 * cores.unwrap() / i128::try_from(most_cores).unwrap();
            }
            None => {}
        }
        if most_devices > 0 {
            cost += all * 16 * room / i128::try_from(1000 * most_devices).unwrap();
        }
        cost
    }
}

/// What of cores, busy cores and main memory is left beside these, where it is
/// counted.
fn free(node: &NodeSpec, guests: &[Tenant]) -> [Option<i128>; 3] {
    let sizes = [
        Some(node.cores.len() as u64),
        node.cpu.map(|cpu| cpu.0.into()),
        node.ram.map(|ram| ram.0),
    ];
    [0, 1, 2].map(|kind| {
        let taken: u64 = guests.iter().map(|guest| guest.amounts[kind]).sum();
        Some((i128::from(sizes[kind]?) - i128::from(taken)).max(0))
    })
}
