//! Random pools, and plans for events.

use std::time::Duration;

use crate::{
    CoreSpec, DeviceSpec, EndCause, KeptRoom, NodeSpec, Now, Outside, Pool, ProbePlan,
    SchedulerSettings, Submission,
};
use packhorse_model::{
    Bytes, CoreId, DeviceId, GpuRequest, Granted, MemoryRequest, Milli, Models, NodeId, Outcome,
    Placing, Priority, Request, RunId, TaskId,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// What memory comes in: the ladder rounds to it.
const UNIT: u64 = 64 << 20;

/// A task that nobody submits.
pub const UNKNOWN: TaskId = TaskId::new(RunId(9), 9);

/// An event before it is known which tasks there will be.
#[derive(Clone, Debug)]
pub enum Plan {
    Submit {
        /// As it will be, but for its id and what it comes after.
        submission: Submission,
        after: Vec<Index>,
        twist: Twist,
    },
    Adopt {
        submission: Submission,
        attempt: u32,
        /// So many seconds ago.
        since: u64,
        node: Index,
        devices: Vec<(Index, Granted)>,
        cores: Vec<Index>,
        twist: Twist,
    },
    End(Index, Outcome, EndCause),
    EndWrongly(Index, u32),
    Observe(Index, Index, Bytes),
    Promise(Index, Bytes),
    Outside(Index, Outside),
    Drain(Index),
    Restore(Index),
    Revise {
        task: Index,
        request: Request,
        expected: Option<Duration>,
        probe: ProbePlan,
    },
    Cancel(Index),
    CancelUnknown,
    Hold,
    Unhold,
    MoreToCome(bool),
    HoldRun(RunId),
    UnholdRun(RunId),
    AddNode(NodeSpec),
    AddKnownNode(Index),
    RemoveNode(Index),
    AddDevice(Index, DeviceSpec),
    AddKnownDevice(Index, Index),
    RemoveDevice(Index),
}

/// What makes a submission wrong.
#[derive(Clone, Copy, Debug)]
pub enum Twist {
    None,
    KnownId(u32),
    UnknownDependency,
    AfterItself,
}

pub fn pools() -> impl Strategy<Value = Pool> {
    let memory = prop_oneof![1 => Just(0), 4 => 1..17_u64, 4 => Just(16_u64)];
    let one_process = prop::bool::weighted(0.1);
    let device = (vec(0..12_u32, 0..4), memory, 0..3_u8, one_process);
    let cpu = prop::option::weighted(0.3, (0..9_u32).prop_map(|cores| Milli(cores * 1000)));
    let ram = prop::option::weighted(0.3, (0..9_u64).prop_map(|ram| Bytes(ram * 1000)));
    // How many cores, how many threads a physical one has, and in how many parts they are.
    // Some cores are left out, as in a job that may not use all of them.
    let core = (0..9_u32, 1..4_u32, 1..4_u32, vec(any::<bool>(), 27));
    let node = (vec(device, 0..5), core, cpu, ram);
    let nodes = vec(node, 1..4);
    let slots = prop::option::weighted(0.2, 1..6_u32);
    (nodes, slots, any::<u32>()).prop_map(|(nodes, slots, seed)| {
        // An odd factor makes all of these different, and neither small nor sorted.
        let mut count = 0_u32;
        let mut fresh = || {
            count += 1;
            count.wrapping_mul(2_654_435_761).wrapping_add(seed)
        };
        let mut made = vec![];
        for (devices, (cores, threads, parts, left_out), cpu, ram) in nodes {
            let mut names: Vec<CoreId> = (0..cores).map(|_| CoreId(fresh())).collect();
            names.reverse();
            let physical = cores.div_ceil(threads).max(1);
            let specs = names.iter().zip(0..).map(|(&id, number)| CoreSpec {
                id,
                physical: number % physical,
                numa: number % physical * parts / physical,
            });
            let some_left_out = threads > 1 && parts > 1;
            let kept = specs.zip(&left_out);
            let kept = kept.filter(|(_, left_out)| !(some_left_out && **left_out));
            let specs: Vec<CoreSpec> = kept.map(|(core, _)| core).collect();
            let devices =
                devices.into_iter().map(|(near, memory, model, one_process)| DeviceSpec {
                    id: DeviceId(fresh()),
                    // Some are not cores of this node.
                    near_cores: near
                        .iter()
                        .map(|&core| names.get(core as usize).copied().unwrap_or(CoreId(core)))
                        .collect(),
                    memory: Bytes(memory * UNIT),
                    model,
                    one_process,
                });
            made.push(NodeSpec {
                devices: devices.collect(),
                id: NodeId(fresh()),
                cores: specs,
                cpu,
                ram,
            });
        }
        Pool { nodes: made, slots }
    })
}

pub fn settings() -> impl Strategy<Value = SchedulerSettings> {
    let policy = prop_oneof![Just(Placing::Pack), Just(Placing::Spread)];
    let most = prop::option::weighted(0.3, 1..4_u32);
    let ageing = prop::option::weighted(0.3, (0..20_u64).prop_map(Duration::from_secs));
    (policy, most, ageing).prop_map(|(policy, max_per_device, ageing)| SchedulerSettings {
        policy,
        max_per_device,
        look_lasts: None,
        ageing,
    })
}

fn requests() -> impl Strategy<Value = Request> {
    let gpus = prop_oneof![
        2 => Just(GpuRequest::None),
        4 => (1..10_u32).prop_map(|tenths| GpuRequest::Share(Milli(tenths * 100))),
        1 => (1..1000_u32).prop_map(|milli| GpuRequest::Share(Milli(milli))),
        6 => Just(GpuRequest::Share(Milli(0))),
        5 => (1..4_u32).prop_map(GpuRequest::Whole),
        1 => prop_oneof![
            Just(GpuRequest::Whole(0)),
            Just(GpuRequest::Share(Milli::ONE)),
            Just(GpuRequest::Whole(u32::MAX)),
        ],
    ];
    let units = |units: u64| MemoryRequest::Bytes(Bytes(units * UNIT / 4));
    let memory = prop_oneof![
        3 => Just(MemoryRequest::Uncounted),
        5 => (1..6_u64).prop_map(move |number| units(number * 4)),
        3 => (0..18_u64).prop_map(move |number| units(number * 4)),
        1 => (0..40_u64).prop_map(units),
        3 => (0..4096_u64).prop_map(|odd| MemoryRequest::Bytes(Bytes(odd * UNIT / 256))),
        2 => (0..12_u64).prop_map(|number| MemoryRequest::AtLeast(Bytes(number * UNIT))),
        2 => Just(MemoryRequest::Whole),
    ];
    let models = prop_oneof![9 => Just(Models::ANY), 1 => (0..8_u64).prop_map(Models)];
    let device_memory = prop_oneof![19 => Just(0), 1 => 0..18_u64];
    let cores = prop_oneof![6 => Just(0), 2 => 1..4_u32, 1 => 0..10_u32];
    let cpu = prop_oneof![4 => Just(0), 1 => 0..5000_u32];
    let ram = prop_oneof![4 => Just(0), 1 => 0..6000_u64];
    (gpus, memory, models, device_memory, cores, cpu, ram).prop_map(
        |(gpus, memory, models, device_memory, cores, cpu, ram)| Request {
            gpus,
            memory,
            models,
            device_memory: Bytes(device_memory * UNIT),
            cores,
            cpu: Milli(cpu),
            ram: Bytes(ram),
        },
    )
}

fn causes() -> impl Strategy<Value = EndCause> {
    prop_oneof![
        6 => Just(EndCause::Own),
        2 => (0..18_u64, 0..18_u64).prop_map(|(peak, at_least)| EndCause::OutOfMemory {
            peak: Bytes(peak * UNIT),
            at_least: Bytes(at_least / 6 * 6 * UNIT),
        }),
        1 => Just(EndCause::Collateral),
        1 => Just(EndCause::Crowded),
    ]
}

fn outsides() -> impl Strategy<Value = Outside> {
    let memory = prop_oneof![2 => Just(0), 2 => 0..8_u64, 1 => 0..20_u64];
    let share = prop_oneof![3 => Just(0), 1 => 0..11_u32];
    let whole = prop::bool::weighted(0.1);
    let kept = prop_oneof![
        4 => Just(KeptRoom::default()),
        1 => (0..11_u32, 0..8_u64, prop::bool::weighted(0.3)).prop_map(|(tenths, memory, whole)| {
            let (share, memory) = (Milli(tenths * 100), Bytes(memory * UNIT / 2));
            KeptRoom { share, memory, whole }
        }),
    ];
    // Which part of what is theirs strangers' desktops hold, and whether programs are there.
    let strangers = (0..4_u64, any::<bool>());
    let all = (memory, 0..4_u64, strangers, share, 0..3_u32, whole, any::<bool>(), kept);
    all.prop_map(|(memory, runs, strangers, tenths, attempts, whole, yields, kept)| Outside {
        memory: Bytes(memory * UNIT / 2),
        runs: Bytes(memory * UNIT / 2 * runs / 3),
        drawn: Bytes(memory * UNIT / 2 * (3 - runs) / 3 * strangers.0 / 3),
        has_strangers: strangers.1,
        share: Milli(tenths * 100),
        attempts: if tenths > 0 { attempts } else { 0 },
        whole,
        unseen: false,
        yields,
        kept: if yields { kept } else { KeptRoom::default() },
    })
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Succeeded),
        3 => (1..4).prop_map(|code| Outcome::Failed { code }),
        1 => Just(Outcome::Killed { signal: 9 }),
        1 => Just(Outcome::TimedOut),
        1 => Just(Outcome::NotStarted),
        1 => Just(Outcome::Skipped),
        1 => Just(Outcome::Interrupted),
    ]
}

fn seconds() -> impl Strategy<Value = Option<Duration>> {
    prop::option::of((0..90_u64).prop_map(Duration::from_secs))
}

fn probes() -> impl Strategy<Value = ProbePlan> {
    prop_oneof![
        8 => Just(ProbePlan::None),
        1 => Just(ProbePlan::First),
        1 => Just(ProbePlan::Awaited),
    ]
}

fn submissions() -> impl Strategy<Value = Submission> {
    let order = (prop_oneof![3 => Just(0), 1 => 0..3_u32], -1..2_i32);
    let times = (seconds(), seconds(), seconds());
    (requests(), order, 0..3_u32, times, probes()).prop_map(
        |(request, (batch, priority), retries, (arrived, time_limit, expected), probe)| {
            Submission {
                batch,
                priority: Priority(priority),
                arrived: arrived.map(Now),
                retries,
                time_limit,
                expected,
                probe,
                ..Submission::new(UNKNOWN, request)
            }
        },
    )
}

fn twists() -> impl Strategy<Value = Twist> {
    prop_oneof![
        20 => Just(Twist::None),
        1 => any::<u32>().prop_map(Twist::KnownId),
        1 => Just(Twist::UnknownDependency),
        1 => Just(Twist::AfterItself),
    ]
}

fn adoptions() -> impl Strategy<Value = Plan> {
    let granted = (0..11_u32, 0..10_u64).prop_map(|(tenths, units)| Granted {
        device: DeviceId(0),
        share: Milli(tenths * 100),
        memory: Bytes(units * UNIT),
    });
    let devices = vec((any::<Index>(), granted), 0..3);
    let place = (any::<Index>(), devices, vec(any::<Index>(), 0..4));
    (submissions(), 0..3_u32, 0..90_u64, place, twists()).prop_map(
        |(submission, attempt, since, (node, devices, cores), twist)| Plan::Adopt {
            submission,
            attempt,
            since,
            node,
            devices,
            cores,
            twist,
        },
    )
}

/// Runs that are held, and nodes and devices that come and go.
fn changes() -> impl Strategy<Value = Plan> {
    let index = any::<Index>;
    let run = || (1..4_u32).prop_map(RunId);
    let new_node = pools().prop_map(|mut pool| pool.nodes.swap_remove(0));
    let new_device = pools().prop_filter_map("no device", |mut pool| {
        pool.nodes.iter_mut().find_map(|node| node.devices.pop())
    });
    prop_oneof![
        1 => run().prop_map(Plan::HoldRun),
        2 => run().prop_map(Plan::UnholdRun),
        1 => new_node.prop_map(Plan::AddNode),
        1 => index().prop_map(Plan::AddKnownNode),
        1 => index().prop_map(Plan::RemoveNode),
        1 => (index(), new_device).prop_map(|(node, device)| Plan::AddDevice(node, device)),
        1 => (index(), index()).prop_map(|(node, device)| Plan::AddKnownDevice(node, device)),
        1 => index().prop_map(Plan::RemoveDevice),
    ]
}

pub fn plans() -> impl Strategy<Value = Plan> {
    let after = prop_oneof![3 => Just(vec![]), 1 => vec(any::<Index>(), 1..4)];
    let submit = (submissions(), after, twists())
        .prop_map(|(submission, after, twist)| Plan::Submit { submission, after, twist });
    let revise = (any::<Index>(), requests(), seconds(), probes()).prop_map(
        |(task, request, expected, probe)| Plan::Revise { task, request, expected, probe },
    );
    let index = any::<Index>;
    prop_oneof![
        16 => submit,
        2 => adoptions(),
        4 => changes(),
        12 => (index(), outcomes(), causes()).prop_map(|(index, outcome, cause)| {
            Plan::End(index, outcome, cause)
        }),
        1 => (index(), 0..4_u32).prop_map(|(index, attempt)| Plan::EndWrongly(index, attempt)),
        3 => (index(), index(), 0..36_u64).prop_map(|(task, device, halves)| {
            Plan::Observe(task, device, Bytes(halves * UNIT / 2))
        }),
        3 => (index(), 0..20_u64).prop_map(|(task, units)| Plan::Promise(task, Bytes(units * UNIT))),
        3 => (index(), outsides()).prop_map(|(device, outside)| Plan::Outside(device, outside)),
        1 => index().prop_map(Plan::Drain),
        2 => index().prop_map(Plan::Restore),
        2 => revise,
        2 => index().prop_map(Plan::Cancel),
        1 => Just(Plan::CancelUnknown),
        1 => Just(Plan::Hold),
        2 => Just(Plan::Unhold),
        1 => any::<bool>().prop_map(Plan::MoreToCome),
    ]
}
