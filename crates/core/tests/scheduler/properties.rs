//! Random pools, requests and events: the scheduler and the model must do the
//! same, and every promise must hold after every step. `PROPTEST_CASES` says
//! how many.

use std::collections::BTreeMap;
use std::time::Duration;

use packhorse_core::{
    DeviceSpec, Effect, Event, NodeSpec, Now, Policy, Pool, Settings, State, Submission, explain,
    step,
};
use packhorse_model::{
    CoreId, DeviceId, GpuRequest, Milli, NodeId, Outcome, Priority, Request, RunId, TaskId,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::model::Model;

/// An event before it is known which tasks there will be.
#[derive(Clone, Debug)]
enum Plan {
    Submit {
        request: Request,
        priority: i32,
        retries: u32,
        limit: Option<u8>,
        after: Vec<Index>,
        twist: Twist,
    },
    End(Index, Outcome),
    EndWrongly(Index, u32),
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
    let device = vec(0..12_u32, 0..4);
    let node = (vec(device, 0..5), 0..9_u32);
    let nodes = vec(node, 1..4);
    let slots = prop::option::weighted(0.3, 1..6_u32);
    (nodes, slots, any::<u32>()).prop_map(|(nodes, slots, seed)| {
        // An odd factor makes all of these different, and neither small nor sorted.
        let mut count = 0_u32;
        let mut fresh = || {
            count += 1;
            count.wrapping_mul(2_654_435_761).wrapping_add(seed)
        };
        let node = |(devices, cores): (Vec<Vec<u32>>, u32)| {
            let mut names: Vec<CoreId> = (0..cores).map(|_| CoreId(fresh())).collect();
            names.reverse();
            let device = |near: Vec<u32>| DeviceSpec {
                id: DeviceId(fresh()),
                // Some are not cores of this node.
                near_cores: near
                    .iter()
                    .map(|&core| names.get(core as usize).copied().unwrap_or(CoreId(core)))
                    .collect(),
            };
            NodeSpec {
                devices: devices.into_iter().map(device).collect(),
                id: NodeId(fresh()),
                cores: names,
            }
        };
        Pool {
            nodes: nodes.into_iter().map(node).collect(),
            slots,
        }
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop_oneof![Just(Policy::Pack), Just(Policy::Spread)];
    let most = prop::option::weighted(0.4, 1..4_u32);
    (policy, most).prop_map(|(policy, max_per_device)| Settings {
        policy,
        max_per_device,
    })
}

fn requests() -> impl Strategy<Value = Request> {
    let gpus = prop_oneof![
        2 => Just(GpuRequest::None),
        6 => (1..10_u32).prop_map(|tenths| GpuRequest::Share(Milli(tenths * 100))),
        6 => (1..4_u32).prop_map(GpuRequest::Whole),
        1 => prop_oneof![
            Just(GpuRequest::Whole(0)),
            Just(GpuRequest::Share(Milli(0))),
            Just(GpuRequest::Share(Milli::ONE)),
            Just(GpuRequest::Whole(u32::MAX)),
        ],
    ];
    let cores = prop_oneof![3 => Just(0), 2 => 1..4_u32, 1 => 0..10_u32];
    (gpus, cores).prop_map(|(gpus, cores)| Request { gpus, cores })
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
    let limit = prop::option::of(any::<u8>());
    let submit = (requests(), -1..2_i32, 0..3_u32, limit, after, twist).prop_map(
        |(request, priority, retries, limit, after, twist)| Plan::Submit {
            request,
            priority,
            retries,
            limit,
            after,
            twist,
        },
    );
    prop_oneof![
        12 => submit,
        10 => (any::<Index>(), outcomes()).prop_map(|(index, outcome)| Plan::End(index, outcome)),
        1 => (any::<Index>(), 0..4_u32).prop_map(|(index, attempt)| Plan::EndWrongly(index, attempt)),
        2 => any::<Index>().prop_map(Plan::Cancel),
        1 => Just(Plan::CancelUnknown),
        1 => Just(Plan::Hold),
        2 => Just(Plan::Unhold),
    ]
}

const UNKNOWN: TaskId = TaskId::new(RunId(9), 9);

/// Makes an event of a plan, or nothing if there is no task it could be about.
fn event(plan: &Plan, model: &Model, number: u32) -> Option<Event> {
    let known = model.known();
    let running = model.running();
    let pick = |index: &Index| (!known.is_empty()).then(|| *index.get(&known));
    Some(match plan {
        Plan::Submit {
            request,
            priority,
            retries,
            limit,
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
            Event::Submit(Submission {
                id,
                request: request.clone(),
                priority: Priority(*priority),
                retries: *retries,
                time_limit: limit.map(|seconds| Duration::from_secs(seconds.into())),
                after,
            })
        }
        Plan::End(index, outcome) => {
            if running.is_empty() {
                return None;
            }
            let &(task, attempt) = index.get(&running);
            Event::Ended {
                task,
                attempt,
                outcome: *outcome,
            }
        }
        Plan::EndWrongly(index, attempt) => Event::Ended {
            task: pick(index).unwrap_or(UNKNOWN),
            attempt: *attempt,
            outcome: Outcome::Succeeded,
        },
        Plan::Cancel(index) => Event::Cancel(pick(index)?),
        Plan::CancelUnknown => Event::Cancel(UNKNOWN),
        Plan::Hold => Event::Hold,
        Plan::Unhold => Event::Unhold,
    })
}

/// The scheduler and the model side by side, and what they said.
struct Pair {
    state: State,
    model: Model,
    steps: u64,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl Pair {
    fn new(pool: &Pool, settings: Settings) -> Self {
        Self {
            state: State::new(pool, settings).unwrap(),
            model: Model::new(pool.clone(), settings),
            steps: 0,
            events: vec![],
            effects: vec![],
        }
    }

    fn step(&mut self, event: Event) {
        self.steps += 1;
        let now = Now(Duration::from_secs(self.steps));
        let before = self.effects.len();
        step(&mut self.state, event.clone(), now, &mut self.effects);
        self.state.check();
        let wanted = self.model.step(event.clone());
        assert_eq!(self.effects[before..], wanted[..], "after {event:?}");
        self.events.push(event);
        for task in self.model.known() {
            let explanation = explain(&self.state, task, now).expect("it is known");
            assert!(explanation.to_string().starts_with(&task.to_string()));
        }
    }

    /// Lets everything come to its end.
    fn drain(&mut self) {
        self.step(Event::Unhold);
        while let Some(&(task, attempt)) = self.model.running().first() {
            self.step(Event::Ended {
                task,
                attempt,
                outcome: Outcome::Succeeded,
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
    #![proptest_config(cases(400))]

    #[test]
    fn the_scheduler_does_what_the_model_does(
        pool in pools(),
        settings in settings(),
        plans in vec(plans(), 0..100),
    ) {
        let mut pair = Pair::new(&pool, settings);
        for (plan, number) in plans.iter().zip(1..) {
            if let Some(event) = event(plan, &pair.model, number) {
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

        let mut again = State::new(&pool, settings).unwrap();
        let mut effects = vec![];
        for (event, seconds) in pair.events.into_iter().zip(1..) {
            step(&mut again, event, Now(Duration::from_secs(seconds)), &mut effects);
        }
        prop_assert_eq!(effects, pair.effects, "the same events give the same effects");
    }
}
