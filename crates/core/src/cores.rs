//! Which cores of a machine an attempt gets.
//!
//! What the kernel numbers as a CPU, and we call a core, may be one of several threads
//! of a physical core, which slow each other down. So, in this order:
//!
//! 1. whole physical cores, of which nobody has a thread: one thread of each, as long as
//!    every attempt that may run at the same time could have as many of them;
//! 2. more threads of the same ones, and then more whole ones;
//! 3. threads beside those of others, only where nothing else is left.
//!
//! Where there is a choice, cores near the attempt's devices go first, then those of one
//! NUMA node, next to each other, where the least is left over.

use std::cmp::Reverse;

use packhorse_model::{MemoryRequest, Request};

use crate::CoreSpec;
use crate::device::{DeviceLedger, is_whole, memory_of};
use crate::ledger::{Ledger, NodeLedger};

/// How the cores of a machine belong together. Cores are known by their place in the
/// machine's list.
#[derive(Clone, Debug)]
pub(crate) struct CoreLayout {
    /// NUMA node by NUMA node, and there in the order of the list.
    physical: Vec<PhysicalCore>,
    /// The most threads of one of them.
    threads: usize,
}

#[derive(Clone, Debug)]
struct PhysicalCore {
    numa: u32,
    /// Its threads, in the order of the list.
    first: usize,
    others: Vec<usize>,
}

impl PhysicalCore {
    fn threads(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    fn thread(&self, number: usize) -> Option<usize> {
        match number {
            0 => Some(self.first),
            number => self.others.get(number - 1).copied(),
        }
    }

    fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// Whether nobody has any of it.
    fn is_whole(&self, free: &[bool]) -> bool {
        free[self.first] && self.others.iter().all(|&thread| free[thread])
    }
}

/// Whole physical cores that an attempt is to have.
#[derive(Default)]
struct ChosenCores {
    numbers: Vec<usize>,
    /// How many threads they have.
    threads: usize,
}

impl ChosenCores {
    fn suffice(&self, most: usize, wanted: usize) -> bool {
        self.numbers.len() >= most && self.threads >= wanted
    }
}

impl CoreLayout {
    pub(crate) fn new(cores: &[CoreSpec]) -> Self {
        let mut places: Vec<usize> = (0..cores.len()).collect();
        let physical = |place: &usize| cores[*place].physical;
        places.sort_by_key(|place| (physical(place), *place));
        let same = places.chunk_by(|one, other| physical(one) == physical(other));
        let mut physical: Vec<PhysicalCore> = same
            .map(|threads| PhysicalCore {
                numa: cores[threads[0]].numa,
                first: threads[0],
                others: threads[1..].to_vec(),
            })
            .collect();
        physical.sort_by_key(|core| (core.numa, core.first));
        let threads = physical.iter().map(PhysicalCore::count);
        Self { threads: threads.max().unwrap_or(1), physical }
    }

    /// Whether each has a physical core to itself.
    fn is_plain(&self) -> bool {
        self.threads == 1
    }

    /// The physical cores that have one of these, in ascending order.
    pub(crate) fn with(&self, has: impl Fn(usize) -> bool) -> Vec<usize> {
        let numbers = 0..self.physical.len();
        let with = numbers.filter(|&number| self.physical[number].threads().any(&has));
        with.collect()
    }

    /// Up to `wanted` cores of those that are `free`, in ascending order. `whole_part` is
    /// how many whole physical cores each of those can have that may run at the same time.
    /// `near` are lists of physical cores that are better than others.
    pub(crate) fn pick<'a>(
        &self,
        free: &[bool],
        wanted: usize,
        whole_part: usize,
        near: &(impl Iterator<Item = &'a [usize]> + Clone),
    ) -> Vec<usize> {
        let is_whole = |number: usize| self.physical[number].is_whole(free);
        let is_near = |number: usize| near.clone().any(|near| near.binary_search(&number).is_ok());
        let most = wanted.div_ceil(self.threads).max(wanted.min(whole_part));
        let mut chosen = ChosenCores::default();
        let mut whole: Vec<usize> = Vec::with_capacity(self.physical.len());
        for near in near.clone() {
            whole.extend(near.iter().filter(|&&number| is_whole(number)));
        }
        // Two devices may be near the same ones.
        if !whole.is_sorted_by(|one, other| one < other) {
            whole.sort_unstable();
            whole.dedup();
        }
        self.choose(&whole, most, wanted, &mut chosen);
        if !chosen.suffice(most, wanted) {
            let numbers = 0..self.physical.len();
            whole.clear();
            whole.extend(numbers.filter(|&number| is_whole(number) && !is_near(number)));
            self.choose(&whole, most, wanted, &mut chosen);
        }
        let layers = (0..self.threads).flat_map(|layer| {
            let cores = chosen.numbers.iter();
            cores.filter_map(move |&number| self.physical[number].thread(layer))
        });
        let mut picked: Vec<usize> = Vec::with_capacity(wanted.min(free.len()));
        picked.extend(layers.take(wanted));
        if picked.len() < wanted {
            let numbers = 0..self.physical.len();
            let mut beside: Vec<usize> = numbers.filter(|&number| !is_whole(number)).collect();
            beside.sort_by_key(|&number| Reverse(is_near(number)));
            let beside = beside.iter().map(|&number| &self.physical[number]);
            let beside = beside.flat_map(PhysicalCore::threads);
            let beside = beside.filter(|&thread| free[thread]);
            picked.extend(beside.take(wanted - picked.len()));
        }
        picked.sort_unstable();
        picked
    }

    /// Adds whole physical cores of `from` until there are `most`, and so many threads as
    /// are `wanted`: some may have fewer than others.
    fn choose(&self, from: &[usize], most: usize, wanted: usize, chosen: &mut ChosenCores) {
        let missing = most.saturating_sub(chosen.numbers.len());
        for number in self.best_first(from, missing) {
            if chosen.suffice(most, wanted) {
                return;
            }
            chosen.threads += self.physical[number].count();
            chosen.numbers.push(number);
        }
    }

    /// These physical cores, first those that are best for whoever wants so many.
    fn best_first<'a>(&self, from: &'a [usize], wanted: usize) -> impl Iterator<Item = usize> + 'a {
        let numa = |number: usize| self.physical[number].numa;
        let in_a_row = |one: &usize, other: &usize| *other == one + 1 && numa(*one) == numa(*other);
        let in_a_node = |one: &usize, other: &usize| numa(*one) == numa(*other);
        let start = if wanted == 0 || wanted >= from.len() {
            None
        } else {
            fewest(from.chunk_by(in_a_row), wanted)
                .or_else(|| fewest(from.chunk_by(in_a_node), wanted))
        };
        let (before, behind) = from.split_at(start.unwrap_or(0));
        behind.iter().chain(before).copied()
    }
}

/// Where the shortest of these parts starts that are long enough; of equals the first.
fn fewest<'a>(parts: impl Iterator<Item = &'a [usize]>, wanted: usize) -> Option<usize> {
    let mut start = 0;
    let mut best: Option<(usize, usize)> = None;
    for part in parts {
        if part.len() >= wanted && best.is_none_or(|(fewest, _)| part.len() < fewest) {
            best = Some((part.len(), start));
        }
        start += part.len();
    }
    best.map(|(_, start)| start)
}

impl Ledger {
    /// How many whole physical cores of `node` each attempt like `request` can have of
    /// those that may run at the same time; `known` is how many there are, whether they
    /// run or wait.
    pub(crate) fn whole_part(&self, node: usize, request: &Request, known: usize) -> usize {
        let own = &self.nodes[node];
        if own.layout.is_plain() {
            return usize::MAX;
        }
        let attempts = self.fitting(node, request).min(known as u64);
        let attempts = usize::try_from(attempts).unwrap_or(usize::MAX);
        (own.layout.physical.len() / attempts.max(1)).max(1)
    }

    /// How many attempts like `request` fit at a time if nothing else were there.
    /// `u64::MAX`: any number.
    pub(crate) fn at_a_time(&self, request: &Request) -> u64 {
        let nodes = 0..self.nodes.len();
        let fits = nodes.map(|node| self.fitting(node, request));
        let slots = self.slots.map_or(u64::MAX, u64::from);
        fits.fold(0, u64::saturating_add).min(slots)
    }

    /// The same on `node`.
    fn fitting(&self, node: usize, request: &Request) -> u64 {
        let own = &self.nodes[node];
        let slots = self.slots.map_or(u64::MAX, u64::from);
        let amounts = slots.min(fitting_amounts(own, request));
        let wanted = u64::from(request.gpus.devices());
        if wanted == 0 {
            return amounts;
        }
        let devices = self.devices_of(node);
        let suiting = devices.filter(|(_, device)| device.suits(request));
        let fits = suiting.map(|(_, device)| fitting_device(device, request));
        amounts.min(fits.fold(0, u64::saturating_add) / wanted)
    }
}

/// How many fit by what they need of the machine itself.
fn fitting_amounts(node: &NodeLedger, request: &Request) -> u64 {
    let needs = node.needs(request);
    let fits = |size: u64, need: u64| size.checked_div(need).unwrap_or(u64::MAX);
    fits(node.size.cores, needs.cores)
        .min(fits(node.size.cpu, needs.cpu))
        .min(fits(node.size.ram, needs.ram))
}

/// How many fit on a device that suits.
fn fitting_device(device: &DeviceLedger, request: &Request) -> u64 {
    if is_whole(request) || matches!(request.memory, MemoryRequest::AtLeast(_)) {
        return 1;
    }
    let part = |all: u64, one: u64| all.checked_div(one).unwrap_or(u64::MAX);
    let all = u64::from(packhorse_model::Milli::ONE.0);
    part(all, request.gpus.share().0.into())
        .min(part(device.capacity.0, memory_of(request).0))
        .min(device.max_attempts.map_or(u64::MAX, u64::from))
}
