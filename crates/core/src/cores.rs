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
    /// In the order of the list.
    threads: Vec<usize>,
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
                threads: threads.to_vec(),
            })
            .collect();
        physical.sort_by_key(|core| (core.numa, core.threads[0]));
        let threads = physical.iter().map(|core| core.threads.len());
        Self {
            threads: threads.max().unwrap_or(1),
            physical,
        }
    }

    /// Whether each has a physical core to itself.
    fn is_plain(&self) -> bool {
        self.threads == 1
    }

    /// Up to `wanted` cores of those that are `free`, in ascending order. `whole_part` is
    /// how many whole physical cores each of those can have that may run at the same time.
    pub(crate) fn pick(
        &self,
        free: &[bool],
        wanted: usize,
        whole_part: usize,
        is_near: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let is_near = |core: &PhysicalCore| core.threads.iter().any(|&thread| is_near(thread));
        let is_whole = |core: &PhysicalCore| core.threads.iter().all(|&thread| free[thread]);
        let numbers = 0..self.physical.len();
        let whole = numbers.filter(|&number| is_whole(&self.physical[number]));
        let (near, far): (Vec<usize>, Vec<usize>) =
            whole.partition(|&number| is_near(&self.physical[number]));
        let most = wanted.div_ceil(self.threads).max(wanted.min(whole_part));
        let mut chosen = Vec::with_capacity(most.min(self.physical.len()));
        self.choose(&near, most, &mut chosen);
        self.choose(&far, most.saturating_sub(near.len()), &mut chosen);
        // As many of these as it takes, if some have fewer threads than others.
        let mut count = most.min(chosen.len());
        let mut threads: usize = self.threads_of(&chosen[..count]);
        while threads < wanted && count < chosen.len() {
            threads += self.threads_of(&chosen[count..=count]);
            count += 1;
        }
        let layers = (0..self.threads).flat_map(|layer| {
            let cores = chosen[..count].iter();
            cores.filter_map(move |&number| self.physical[number].threads.get(layer).copied())
        });
        let mut picked: Vec<usize> = layers.take(wanted).collect();
        if picked.len() < wanted {
            let mut beside: Vec<&PhysicalCore> = self.physical.iter().collect();
            beside.retain(|core| !is_whole(core));
            beside.sort_by_key(|core| Reverse(is_near(core)));
            let beside = beside.iter().flat_map(|core| &core.threads);
            let beside = beside.copied().filter(|&thread| free[thread]);
            picked.extend(beside.take(wanted - picked.len()));
        }
        picked.sort_unstable();
        picked
    }

    fn threads_of(&self, numbers: &[usize]) -> usize {
        let threads = numbers.iter().map(|&number| &self.physical[number].threads);
        threads.map(Vec::len).sum()
    }

    /// Adds the physical cores of `from` to `chosen`, first those that are best for
    /// whoever wants so many.
    fn choose(&self, from: &[usize], wanted: usize, chosen: &mut Vec<usize>) {
        if wanted == 0 {
            return chosen.extend(from);
        }
        let numa = |number: usize| self.physical[number].numa;
        let fitting = |parts: &mut dyn Iterator<Item = &[usize]>| {
            let enough = parts.filter(|part| part.len() >= wanted);
            let best = enough.min_by_key(|part| part.len())?;
            from.iter().position(|number| *number == best[0])
        };
        let in_a_row = |one: &usize, other: &usize| *other == one + 1 && numa(*one) == numa(*other);
        let in_a_node = |one: &usize, other: &usize| numa(*one) == numa(*other);
        let start = fitting(&mut from.chunk_by(in_a_row))
            .or_else(|| fitting(&mut from.chunk_by(in_a_node)))
            .unwrap_or(0);
        chosen.extend(from[start..].iter().chain(&from[..start]));
    }
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
