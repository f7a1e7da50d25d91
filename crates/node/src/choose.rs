//! Which GPUs a job gets: by the scheduler's own ledger and policies.
//!
//! A GPU is a device whose memory is its `mps`, so that amounts are whole numbers and add up
//! exactly, whatever a GPU's count is. What runs is adopted, the job is submitted, and the
//! scheduler says where it starts.
//!
//! A job with more than one GPU's `mps` is submitted in as many equal parts as it needs
//! GPUs: equal, since MPS has one percentage of threads for all GPUs of a program. Any two
//! of its parts are more than one GPU has, so no two are on the same.

use packhorse_core::{
    DeviceSpec, Effect, NodeSpec, Now, Pool, SchedulerEvent, SchedulerSettings, SchedulerState,
    Submission, step,
};
use packhorse_model::{
    Bytes, DeviceId, GpuRequest, Granted, MemoryRequest, Milli, NodeId, Placement, Placing,
    Request, RunId, TaskId,
};
use packhorse_orders::GpuPart;

/// The machine: there is only one.
const NODE: NodeId = NodeId(0);

/// What runs, what is being placed, and what is only there to be seen.
const RUNNING: RunId = RunId(1);
const NEW: RunId = RunId(2);
const IMAGINED: RunId = RunId(3);

/// No GPU has enough left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no GPU has mps:{part} left{}", several(*.parts))]
pub struct NoRoom {
    /// How much is needed of each GPU.
    pub part: u64,
    /// Of how many GPUs.
    pub parts: u64,
}

fn several(parts: u64) -> String {
    match parts {
        0 | 1 => String::new(),
        parts => format!(" on {parts} GPUs"),
    }
}

/// Chooses among `gpus` GPUs with `per_gpu` each, of which others hold `taken`.
pub fn choose(
    gpus: u32,
    per_gpu: u64,
    placing: Placing,
    taken: impl IntoIterator<Item = GpuPart>,
    share: u64,
) -> Result<Vec<GpuPart>, NoRoom> {
    let parts = share.div_ceil(per_gpu.max(1)).max(1);
    let no_room = NoRoom { part: share.div_ceil(parts), parts };
    if parts > u64::from(gpus) {
        return Err(no_room);
    }
    let device = |id| DeviceSpec {
        id: DeviceId(id),
        near_cores: Vec::new(),
        memory: Bytes(per_gpu),
        model: 0,
        one_process: false,
    };
    let node = NodeSpec {
        id: NODE,
        devices: (0..gpus).map(device).collect(),
        cores: Vec::new(),
        cpu: None,
        ram: None,
    };
    let pool = Pool { nodes: vec![node], slots: None };
    let settings = SchedulerSettings { policy: placing, ..SchedulerSettings::default() };
    let mut state = SchedulerState::new(&pool, settings).map_err(|_| no_room)?;
    let mut effects = Vec::new();
    let mut tell = |event| step(&mut state, event, Now::default(), &mut effects);
    if placing == Placing::Pack {
        // Packing leaves room for tasks like those it knows of. What there is room to be
        // left for here are jobs with a whole GPU.
        tell(SchedulerEvent::HoldRun(IMAGINED));
        tell(SchedulerEvent::Submit(Submission::new(TaskId::new(IMAGINED, 1), amount(per_gpu))));
    }
    for (number, part) in (1..).zip(taken) {
        tell(SchedulerEvent::Adopt {
            submission: Submission::new(TaskId::new(RUNNING, number), amount(part.units)),
            attempt: 1,
            placement: Placement {
                node: NODE,
                devices: vec![Granted {
                    device: DeviceId(part.gpu),
                    share: Milli(0),
                    memory: Bytes(part.units),
                }],
                cores: Vec::new(),
            },
            since: Now::default(),
        });
    }
    for number in 0..parts {
        let units = share / parts + u64::from(number < share % parts);
        let task = TaskId::new(NEW, u32::try_from(number + 1).unwrap_or(u32::MAX));
        tell(SchedulerEvent::Submit(Submission::new(task, amount(units))));
    }
    let mut chosen: Vec<GpuPart> = effects.iter().filter_map(started).collect();
    chosen.sort_unstable_by_key(|part| part.gpu);
    if chosen.len() as u64 == parts { Ok(chosen) } else { Err(no_room) }
}

/// So much of one device.
fn amount(units: u64) -> Request {
    Request {
        gpus: GpuRequest::Share(Milli(0)),
        memory: MemoryRequest::Bytes(Bytes(units)),
        ..Request::default()
    }
}

fn started(effect: &Effect) -> Option<GpuPart> {
    match effect {
        Effect::Start { task, placement, .. } if task.run == NEW => {
            let granted = placement.devices.first()?;
            Some(GpuPart { gpu: granted.device.0, units: granted.memory.0 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(placing: Placing, shares: &[u64]) -> Vec<Vec<GpuPart>> {
        let mut taken: Vec<GpuPart> = Vec::new();
        let mut placed = Vec::new();
        for &share in shares {
            let Ok(parts) = choose(4, 320, placing, taken.iter().copied(), share) else {
                break;
            };
            taken.extend(&parts);
            placed.push(parts);
        }
        placed
    }

    fn on(placed: &[Vec<GpuPart>]) -> Vec<u32> {
        placed.iter().flatten().map(|part| part.gpu).collect()
    }

    #[test]
    fn twenty_jobs_with_a_fifth_land_five_on_each_gpu() {
        let placed = fill(Placing::Spread, &[64; 25]);
        assert_eq!(placed.len(), 20, "the next has no room");
        for gpu in 0..4 {
            let here = on(&placed).iter().filter(|on| **on == gpu).count();
            assert_eq!(here, 5, "GPU {gpu}");
        }
    }

    #[test]
    fn the_table_of_the_seed_holds_on_every_gpu() {
        for (share, jobs) in [(80, 4), (40, 8), (32, 10), (20, 16), (16, 20), (1, 320)] {
            for placing in [Placing::Spread, Placing::Pack] {
                let placed = fill(placing, &vec![share; 1300]);
                assert_eq!(placed.len(), jobs * 4, "mps:{share}");
                for gpu in 0..4 {
                    let here = on(&placed).iter().filter(|on| **on == gpu).count();
                    assert_eq!(here, jobs, "mps:{share} on GPU {gpu}");
                }
            }
        }
    }

    #[test]
    fn spreading_takes_the_gpu_with_the_most_left_then_the_fewest_jobs() {
        let placed = fill(Placing::Spread, &[80, 80, 80, 80, 20, 20, 40, 40]);
        assert_eq!(on(&placed), [0, 1, 2, 3, 0, 1, 2, 3]);
        // As much left on both, but one job instead of two.
        let taken = [(0, 40), (0, 40), (1, 80), (2, 320), (3, 320)];
        let taken = taken.map(|(gpu, units)| GpuPart { gpu, units });
        let parts = choose(4, 320, Placing::Spread, taken, 80).unwrap();
        assert_eq!(parts[0].gpu, 1);
    }

    #[test]
    fn packing_takes_the_fullest_gpu_that_has_room() {
        assert_eq!(on(&fill(Placing::Pack, &[64; 7])), [0, 0, 0, 0, 0, 1, 1]);
        let taken = [(0, 100), (1, 280), (2, 200)].map(|(gpu, units)| GpuPart { gpu, units });
        let choose = |share| choose(4, 320, Placing::Pack, taken, share).unwrap()[0].gpu;
        assert_eq!(choose(40), 1);
        assert_eq!(choose(80), 2);
        assert_eq!(choose(200), 0);
        assert_eq!(choose(300), 3);
    }

    #[test]
    fn more_than_one_gpus_share_gives_several() {
        let part = |gpu, units| GpuPart { gpu, units };
        let choose = |share| choose(4, 320, Placing::Spread, [part(1, 200)], share);
        assert_eq!(choose(320).unwrap(), [part(0, 320)]);
        assert_eq!(choose(401).unwrap(), [part(0, 201), part(2, 200)]);
        assert_eq!(choose(960).unwrap().len(), 3);
        assert!(choose(961).is_err(), "three are left");
        assert!(choose(2000).is_err());
    }

    proptest! {
        #[test]
        fn no_gpu_is_ever_given_more_than_it_has(
            shares in prop::collection::vec(1_u64..1500, 1..40),
            per_gpu in 1_u64..700,
            gpus in 1_u32..9,
            packs in any::<bool>(),
        ) {
            let placing = if packs { Placing::Pack } else { Placing::Spread };
            let mut left = vec![per_gpu; gpus as usize];
            let mut taken: Vec<GpuPart> = Vec::new();
            for share in shares {
                let chosen = choose(gpus, per_gpu, placing, taken.iter().copied(), share);
                let parts = share.div_ceil(per_gpu);
                let part = share.div_ceil(parts);
                let Ok(chosen) = chosen else {
                    // It is refused only if there is really no room.
                    let roomy = left.iter().filter(|left| **left >= part).count() as u64;
                    prop_assert!(roomy < parts);
                    continue;
                };
                prop_assert_eq!(chosen.iter().map(|part| part.units).sum::<u64>(), share);
                prop_assert_eq!(chosen.len() as u64, parts);
                for part in &chosen {
                    let left = &mut left[part.gpu as usize];
                    prop_assert!(*left >= part.units);
                    *left -= part.units;
                }
                let mut on: Vec<u32> = chosen.iter().map(|part| part.gpu).collect();
                on.dedup();
                prop_assert_eq!(on.len(), chosen.len(), "no GPU twice");
                taken.extend(chosen);
            }
        }
    }
}
