//! Random pools, requests and events: the scheduler and the model must do the
//! same, and every promise must hold after every step. `PROPTEST_CASES` says
//! how many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use packhorse_core::{
    DeviceSpec, Effect, EndCause, NodeSpec, Now, Outside, Policy, Pool, ProbePlan, SchedulerEvent,
    SchedulerSettings, SchedulerState, Submission, explain, step,
};
use packhorse_model::{
    Bytes, CoreId, DeviceId, GpuRequest, MemoryRequest, Milli, Models, NodeId, Outcome, Priority,
    Request, RunId, TaskId,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::model::Model;

/// What memory comes in: the ladder rounds to it.
const UNIT: u64 = 64 << 20;

/// An event before it is known which tasks there will be.
#[derive(Clone, Debug)]
enum Plan {
    Submit {
        request: Request,
        batch: u32,
        priority: i32,
        retries: u32,
        limit: Option<u8>,
        expected: Option<u8>,
        probe: ProbePlan,
        after: Vec<Index>,
        twist: Twist,
    },
    End(Index, Outcome, EndCause),
    EndWrongly(Index, u32),
    Observe(Index, Index, Bytes),
    Outside(Index, Outside),
    Drain(Index),
    Restore(Index),
    Revise {
        task: Index,
        request: Request,
        expected: Option<u8>,
        probe: ProbePlan,
    },
    Cancel(Index),
    CancelUnknown,
    Hold,
    Unhold,
}

/// What makes a submission wrong.
#[derive(Clone, Copy, Debug)]
enum Twist {
    None,
    KnownId(u32),
    UnknownDependency,
    AfterItself,
}

fn pools() -> impl Strategy<Value = Pool> {
    let memory = prop_oneof![1 => Just(0), 4 => 1..17_u64, 4 => Just(16_u64)];
    let device = (vec(0..12_u32, 0..4), memory, 0..3_u8);
    let cpu = prop::option::weighted(0.3, (0..9_u32).prop_map(|cores| Milli(cores * 1000)));
    let ram = prop::option::weighted(0.3, (0..9_u64).prop_map(Bytes));
    let node = (vec(device, 0..5), 0..9_u32, cpu, ram);
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
        for (devices, cores, cpu, ram) in nodes {
            let mut names: Vec<CoreId> = (0..cores).map(|_| CoreId(fresh())).collect();
            names.reverse();
            let devices = devices.into_iter().map(|(near, memory, model)| DeviceSpec {
                id: DeviceId(fresh()),
                // Some are not cores of this node.
                near_cores: near
                    .iter()
                    .map(|&core| names.get(core as usize).copied().unwrap_or(CoreId(core)))
                    .collect(),
                memory: Bytes(memory * UNIT),
                model,
            });
            made.push(NodeSpec {
                devices: devices.collect(),
                id: NodeId(fresh()),
                cores: names,
                cpu,
                ram,
            });
        }
        Pool { nodes: made, slots }
    })
}

fn settings() -> impl Strategy<Value = SchedulerSettings> {
    let policy = prop_oneof![Just(Policy::Pack), Just(Policy::Spread)];
    let most = prop::option::weighted(0.3, 1..4_u32);
    let ageing = prop::option::weighted(0.3, (0..20_u64).prop_map(Duration::from_secs));
    (policy, most, ageing).prop_map(|(policy, max_per_device, ageing)| SchedulerSettings {
        policy,
        max_per_device,
        ageing,
    })
}

fn requests() -> impl Strategy<Value = Request> {
    let gpus = prop_oneof![
        2 => Just(GpuRequest::None),
        4 => (1..10_u32).prop_map(|tenths| GpuRequest::Share(Milli(tenths * 100))),
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
        2 => Just(MemoryRequest::Whole),
    ];
    let models = prop_oneof![9 => Just(Models::ANY), 1 => (0..8_u64).prop_map(Models)];
    let device_memory = prop_oneof![19 => Just(0), 1 => 0..18_u64];
    let cores = prop_oneof![6 => Just(0), 2 => 1..4_u32, 1 => 0..10_u32];
    let cpu = prop_oneof![9 => Just(0), 1 => 0..5000_u32];
    let ram = prop_oneof![9 => Just(0), 1 => 0..6_u64];
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
        2 => (0..18_u64).prop_map(|units| EndCause::OutOfMemory { peak: Bytes(units * UNIT) }),
        1 => Just(EndCause::Collateral),
    ]
}

fn outsides() -> impl Strategy<Value = Outside> {
    let memory = prop_oneof![2 => Just(0), 2 => 0..8_u64, 1 => 0..20_u64];
    let share = prop_oneof![3 => Just(0), 1 => 0..11_u32];
    let whole = prop::bool::weighted(0.1);
    (memory, share, 0..3_u32, whole).prop_map(|(memory, tenths, attempts, whole)| Outside {
        memory: Bytes(memory * UNIT / 2),
        runs: Bytes(0),
        share: Milli(tenths * 100),
        attempts: if tenths > 0 { attempts } else { 0 },
        whole,
        unseen: false,
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

fn plans() -> impl Strategy<Value = Plan> {
    let twist = prop_oneof![
        20 => Just(Twist::None),
        1 => any::<u32>().prop_map(Twist::KnownId),
        1 => Just(Twist::UnknownDependency),
        1 => Just(Twist::AfterItself),
    ];
    let after = prop_oneof![3 => Just(vec![]), 1 => vec(any::<Index>(), 1..4)];
    let seconds = || prop::option::of(0..90_u8);
    let order = (prop_oneof![3 => Just(0), 1 => 0..3_u32], -1..2_i32);
    let probe = || {
        prop_oneof![
            8 => Just(ProbePlan::None),
            1 => Just(ProbePlan::First),
            1 => Just(ProbePlan::Awaited),
        ]
    };
    let lengths = (seconds(), seconds());
    let submit = (requests(), order, 0..3_u32, lengths, probe(), after, twist).prop_map(
        |(request, (batch, priority), retries, (limit, expected), probe, after, twist)| {
            Plan::Submit {
                request,
                batch,
                priority,
                retries,
                limit,
                expected,
                probe,
                after,
                twist,
            }
        },
    );
    let revise = (any::<Index>(), requests(), seconds(), probe()).prop_map(
        |(task, request, expected, probe)| Plan::Revise {
            task,
            request,
            expected,
            probe,
        },
    );
    let index = any::<Index>;
    prop_oneof![
        16 => submit,
        12 => (index(), outcomes(), causes()).prop_map(|(index, outcome, cause)| {
            Plan::End(index, outcome, cause)
        }),
        1 => (index(), 0..4_u32).prop_map(|(index, attempt)| Plan::EndWrongly(index, attempt)),
        3 => (index(), index(), 0..36_u64).prop_map(|(task, device, halves)| {
            Plan::Observe(task, device, Bytes(halves * UNIT / 2))
        }),
        3 => (index(), outsides()).prop_map(|(device, outside)| Plan::Outside(device, outside)),
        1 => index().prop_map(Plan::Drain),
        2 => index().prop_map(Plan::Restore),
        2 => revise,
        2 => index().prop_map(Plan::Cancel),
        1 => Just(Plan::CancelUnknown),
        1 => Just(Plan::Hold),
        2 => Just(Plan::Unhold),
    ]
}

const UNKNOWN: TaskId = TaskId::new(RunId(9), 9);

fn seconds(seconds: Option<u8>) -> Option<Duration> {
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

/// Makes an event of a plan, or nothing if there is no task it could be about.
fn event(plan: &Plan, model: &Model, devices: &[DeviceId], number: u32) -> Option<SchedulerEvent> {
    let known = model.known();
    let running = model.running();
    let pick = |index: &Index| (!known.is_empty()).then(|| *index.get(&known));
    let pick_device = |index: &Index| (!devices.is_empty()).then(|| *index.get(devices));
    let pick_running = |index: &Index| (!running.is_empty()).then(|| *index.get(&running));
    Some(match plan {
        Plan::Submit {
            request,
            batch,
            priority,
            retries,
            limit,
            expected,
            probe,
            after,
            twist,
        } => {
            let mut id = TaskId::new(RunId(1 + number % 2), number * 7);
            let mut after: Vec<TaskId> = after.iter().filter_map(pick).collect();
            match twist {
                Twist::None => {}
                Twist::KnownId(index) if !known.is_empty() => {
                    id = known[*index as usize % known.len()];
                }
                Twist::KnownId(_) | Twist::UnknownDependency => after.push(UNKNOWN),
                Twist::AfterItself => after.push(id),
            }
            SchedulerEvent::Submit(Submission {
                id,
                request: request.clone(),
                batch: *batch,
                priority: Priority(*priority),
                retries: *retries,
                time_limit: seconds(*limit),
                expected: seconds(*expected),
                probe: *probe,
                after,
            })
        }
        Plan::End(index, outcome, cause) => {
            let (task, attempt) = pick_running(index)?;
            SchedulerEvent::Ended {
                task,
                attempt,
                outcome: *outcome,
                cause: *cause,
            }
        }
        Plan::EndWrongly(index, attempt) => SchedulerEvent::Ended {
            task: pick(index).unwrap_or(UNKNOWN),
            attempt: *attempt,
            outcome: Outcome::Succeeded,
            cause: EndCause::Own,
        },
        Plan::Observe(index, device, memory) => {
            let (task, attempt) = pick_running(index)?;
            let its_own = model.devices_of(task);
            SchedulerEvent::Observed {
                task,
                attempt,
                // Now and then one that it is not on.
                device: if its_own.is_empty() {
                    pick_device(device)?
                } else {
                    *device.get(&its_own)
                },
                memory: *memory,
            }
        }
        Plan::Outside(device, outside) => SchedulerEvent::Outside {
            device: pick_device(device)?,
            held: *outside,
        },
        Plan::Drain(device) => SchedulerEvent::Drain(pick_device(device)?),
        Plan::Restore(device) => SchedulerEvent::Restore(pick_device(device)?),
        Plan::Revise {
            task,
            request,
            expected,
            probe,
        } => SchedulerEvent::Revise {
            task: pick(task)?,
            request: request.clone(),
            expected: seconds(*expected),
            probe: *probe,
        },
        Plan::Cancel(index) => SchedulerEvent::Cancel(pick(index)?),
        Plan::CancelUnknown => SchedulerEvent::Cancel(UNKNOWN),
        Plan::Hold => SchedulerEvent::Hold,
        Plan::Unhold => SchedulerEvent::Unhold,
    })
}

/// The scheduler and the model side by side, and what they said.
struct Pair {
    state: SchedulerState,
    model: Model,
    devices: Vec<DeviceId>,
    drained: BTreeSet<DeviceId>,
    steps: u64,
    events: Vec<SchedulerEvent>,
    effects: Vec<Effect>,
}

impl Pair {
    fn new(pool: &Pool, settings: SchedulerSettings) -> Self {
        let devices = pool.nodes.iter().flat_map(|node| &node.devices);
        Self {
            state: SchedulerState::new(pool, settings).unwrap(),
            devices: devices.map(|device| device.id).collect(),
            drained: BTreeSet::new(),
            model: Model::new(pool.clone(), settings),
            steps: 0,
            events: vec![],
            effects: vec![],
        }
    }

    fn step(&mut self, event: SchedulerEvent) {
        self.steps += 1;
        let now = Duration::from_secs(self.steps);
        let before = self.effects.len();
        step(&mut self.state, event.clone(), Now(now), &mut self.effects);
        self.state.check();
        let wanted = self.model.step(event.clone(), now);
        assert_eq!(self.effects[before..], wanted[..], "after {event:?}");
        assert_eq!(self.state.is_stuck(), self.model.is_stuck());
        match event {
            SchedulerEvent::Drain(device) => drop(self.drained.insert(device)),
            SchedulerEvent::Restore(device) => drop(self.drained.remove(&device)),
            _ => {}
        }
        self.events.push(event);
        for effect in &self.effects[before..] {
            if let Effect::Start { placement, .. } = effect {
                let mut granted = placement.devices.iter();
                let drained = granted.any(|granted| self.drained.contains(&granted.device));
                assert!(!drained, "a drained device was given out");
            }
        }
        for task in self.model.known() {
            let explanation = explain(&self.state, task, Now(now)).expect("it is known");
            assert!(explanation.to_string().starts_with(&task.to_string()));
        }
    }

    /// Lets everything come to its end.
    fn drain(&mut self) {
        self.step(SchedulerEvent::Unhold);
        for device in self.devices.clone() {
            self.step(SchedulerEvent::Restore(device));
            let held = Outside::default();
            self.step(SchedulerEvent::Outside { device, held });
        }
        for (task, request) in self.model.awaiting() {
            self.step(SchedulerEvent::Revise {
                task,
                request,
                expected: None,
                probe: ProbePlan::None,
            });
        }
        while let Some(&(task, attempt)) = self.model.running().first() {
            self.step(SchedulerEvent::Ended {
                task,
                attempt,
                outcome: Outcome::Succeeded,
                cause: EndCause::Own,
            });
        }
    }
}

fn cases(default: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked
            .and_then(|cases| cases.parse().ok())
            .unwrap_or(default),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn the_scheduler_does_what_the_model_does(
        pool in pools(),
        settings in settings(),
        plans in vec(plans(), 0..100),
    ) {
        let mut pair = Pair::new(&pool, settings);
        for (plan, number) in plans.iter().zip(1..) {
            if let Some(event) = event(plan, &pair.model, &pair.devices, number) {
                pair.step(event);
            }
        }
        pair.drain();

        prop_assert!(pair.state.is_idle(), "something waits for ever");
        let mut finished: BTreeMap<TaskId, u32> = BTreeMap::new();
        for effect in &pair.effects {
            if let Effect::Finished { task, .. } = effect {
                *finished.entry(*task).or_default() += 1;
            }
        }
        let known: BTreeMap<TaskId, u32> =
            pair.model.known().into_iter().map(|task| (task, 1)).collect();
        prop_assert_eq!(finished, known, "every task finishes exactly once");

        let mut again = SchedulerState::new(&pool, settings).unwrap();
        let mut effects = vec![];
        for (event, seconds) in pair.events.into_iter().zip(1..) {
            step(&mut again, event, Now(Duration::from_secs(seconds)), &mut effects);
        }
        prop_assert_eq!(effects, pair.effects, "the same events give the same effects");
    }
}
