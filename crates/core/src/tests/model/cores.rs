//! Which cores a task gets.

use crate::{DeviceSpec, NodeSpec, Outside};
use packhorse_model::{CoreId, MemoryRequest, Request};

use super::rooms::{amounts, is_whole, memory};
use super::{Model, Place};

/// A physical core of which nobody has a thread.
#[derive(Clone)]
struct Whole {
    /// Its place among all physical cores of the node.
    place: usize,
    numa: u32,
    threads: Vec<CoreId>,
}

/// The threads of each physical core, part by part.
fn physical(node: &NodeSpec) -> Vec<(u32, Vec<CoreId>)> {
    let mut all: Vec<(u32, usize, Vec<CoreId>)> = vec![];
    for (place, core) in node.cores.iter().enumerate() {
        let same = |other: &&crate::CoreSpec| other.physical == core.physical;
        let first = node.cores.iter().position(|other| same(&other)).unwrap();
        if first == place {
            let threads = node.cores.iter().filter(same).map(|thread| thread.id);
            all.push((core.numa, place, threads.collect()));
        }
    }
    all.sort();
    let all = all.into_iter();
    all.map(|(numa, _, threads)| (numa, threads)).collect()
}

/// Puts those first that serve best whoever wants so many: the fewest in a row that are
/// enough, else the fewest in one part of the machine.
fn best_first(from: &[Whole], wanted: usize) -> Vec<Whole> {
    let mut best: Option<(u32, usize, usize)> = None;
    for start in 0..from.len() {
        for (kind, in_a_row) in [(0, true), (1, false)] {
            let belongs = |end: usize| {
                let (last, next) = (&from[end - 1], &from[end]);
                last.numa == next.numa && (!in_a_row || last.place + 1 == next.place)
            };
            if start > 0 && belongs(start) {
                continue;
            }
            let mut end = start + 1;
            while end < from.len() && belongs(end) {
                end += 1;
            }
            if end - start >= wanted {
                let found = (kind, end - start, start);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
    }
    let mut sorted = from.to_vec();
    if wanted > 0 {
        sorted.rotate_left(best.map_or(0, |(_, _, start)| start));
    }
    sorted
}

impl Model {
    /// How many tasks like it fit on an empty node.
    fn fitting(&self, node: &NodeSpec, request: &Request) -> u64 {
        let sizes = [
            Some(node.cores.len() as u64),
            node.cpu.map(|cpu| cpu.0.into()),
            node.ram.map(|ram| ram.0),
        ];
        let mut most = self.pool.slots.map_or(u64::MAX, u64::from);
        for (size, need) in sizes.into_iter().zip(amounts(request)) {
            if let (Some(size), 1..) = (size, need) {
                most = most.min(size / need);
            }
        }
        let wanted = u64::from(request.gpus.devices());
        if wanted == 0 {
            return most;
        }
        let mut places = 0_u64;
        for device in &node.devices {
            let room = self.room(device, &[], Outside::default(), request);
            if room.is_none_or(|room| room < memory(request)) {
                continue;
            }
            let mut on_it = u64::MAX;
            if is_whole(request) || matches!(request.memory, MemoryRequest::AtLeast(_)) {
                on_it = 1;
            }
            if request.gpus.share().0 > 0 {
                on_it = on_it.min(1000 / u64::from(request.gpus.share().0));
            }
            if memory(request) > 0 && on_it > 1 {
                on_it = on_it.min(device.memory.0 / memory(request));
            }
            if let Some(limit) = self.settings.max_per_device {
                on_it = on_it.min(limit.into());
            }
            places = places.saturating_add(on_it);
        }
        most.min(places / wanted)
    }

    pub(super) fn cores(
        &self,
        request: &Request,
        node: &NodeSpec,
        devices: &[&DeviceSpec],
    ) -> Vec<CoreId> {
        let wanted = request.cores as usize;
        if wanted == 0 {
            return vec![];
        }
        let is_near = |threads: &[CoreId]| {
            let mut near = devices.iter().flat_map(|device| &device.near_cores);
            near.any(|core| threads.contains(core))
        };
        let free = self.free_cores(node);
        let all = physical(node);
        let most_threads = all.iter().map(|(_, threads)| threads.len()).max();
        let open = |place: &Place| matches!(place, Place::Waiting | Place::Running(_));
        let known = self.tasks.iter().filter(|task| open(&task.place)).count() as u64;
        let sharing = self.fitting(node, request).min(known).max(1);
        let part = (all.len() as u64 / sharing).max(1);
        let cores = usize::try_from(part).unwrap().min(wanted);
        let cores = cores.max(wanted.div_ceil(most_threads.unwrap_or(1)));

        let (mut near, mut far) = (vec![], vec![]);
        for (place, (numa, threads)) in all.iter().enumerate() {
            if threads.iter().all(|thread| free.contains(thread)) {
                let to = if is_near(threads) { &mut near } else { &mut far };
                to.push(Whole { place, numa: *numa, threads: threads.clone() });
            }
        }
        let mut whole = best_first(&near, cores);
        whole.extend(best_first(&far, cores.saturating_sub(near.len())));
        let mut taken = vec![];
        for core in whole {
            let threads: usize = taken.iter().map(|core: &Whole| core.threads.len()).sum();
            if taken.len() < cores || threads < wanted {
                taken.push(core);
            }
        }
        // One thread of each, then the second ones.
        let mut given: Vec<CoreId> = vec![];
        for layer in 0..most_threads.unwrap_or(0) {
            given.extend(taken.iter().filter_map(|core| core.threads.get(layer)));
        }
        given.truncate(wanted);
        // What is left of cores that others have a part of.
        for wants_near in [true, false] {
            for (_, threads) in &all {
                let is_whole = threads.iter().all(|thread| free.contains(thread));
                if !is_whole && is_near(threads) == wants_near {
                    given.extend(threads.iter().filter(|thread| free.contains(thread)));
                }
            }
        }
        given.truncate(wanted);
        given.sort_by_key(|core| node.cores.iter().position(|other| other.id == *core));
        given
    }
}
