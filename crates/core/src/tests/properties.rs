//! Random pools, requests and events: the scheduler and the model must do the
//! same, and every promise must hold after every step. `PROPTEST_CASES` says
//! how many.

mod events;
mod plans;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{
    Effect, EndCause, NodeSpec, Now, Outside, Pool, ProbePlan, SchedulerEvent, SchedulerSettings,
    SchedulerState, explain, step,
};
use packhorse_model::{DeviceId, Outcome, RunId, TaskId};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::tests::model::Model;
use events::event;
use plans::{plans, pools, settings};

/// The scheduler and the model side by side, and what they said.
struct Pair {
    state: SchedulerState,
    model: Model,
    nodes: Vec<NodeSpec>,
    steps: u64,
    events: Vec<SchedulerEvent>,
    effects: Vec<Effect>,
}

impl Pair {
    fn new(pool: &Pool, settings: SchedulerSettings) -> Self {
        Self {
            state: SchedulerState::new(pool, settings).unwrap(),
            nodes: pool.nodes.clone(),
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
        self.events.push(event);
        for effect in &self.effects[before..] {
            if let Effect::Start { placement, .. } = effect {
                let mut granted = placement.devices.iter();
                let drained = granted.any(|granted| self.model.is_closed(granted.device));
                assert!(!drained, "a drained device was given out");
            }
        }
        for task in self.model.known() {
            let name = |device: DeviceId| device.0.to_string();
            let explanation =
                explain(&self.state, task, Now(now), &name, &|_| Vec::new()).expect("it is known");
            assert!(explanation.starts_with(&task.to_string()));
        }
    }

    /// Lets everything come to its end.
    fn drain(&mut self) {
        self.step(SchedulerEvent::Unhold);
        for run in 1..4 {
            self.step(SchedulerEvent::UnholdRun(RunId(run)));
        }
        self.end_all();
        // What was to go has gone, and comes back.
        for node in self.nodes.clone() {
            let nodes = &self.model.pool().nodes;
            if nodes.iter().all(|other| other.id != node.id) {
                let devices = vec![];
                self.step(SchedulerEvent::AddNode(NodeSpec { devices, ..node.clone() }));
            }
            for device in node.devices {
                if !self.model.devices().contains(&device.id) {
                    let node = node.id;
                    self.step(SchedulerEvent::AddDevice { node, device });
                }
            }
        }
        for device in self.model.devices() {
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
        self.end_all();
        // What only a node could run that is gone, or was adopted, waits for ever.
        for task in self.model.hopeless() {
            self.step(SchedulerEvent::Cancel(task));
        }
        self.end_all();
    }

    fn end_all(&mut self) {
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
        cases: asked.and_then(|cases| cases.parse().ok()).unwrap_or(default),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(600))]

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

        let mut again = SchedulerState::new(&pool, settings).unwrap();
        let mut effects = vec![];
        for (event, seconds) in pair.events.into_iter().zip(1..) {
            step(&mut again, event, Now(Duration::from_secs(seconds)), &mut effects);
        }
        prop_assert_eq!(effects, pair.effects, "the same events give the same effects");
    }
}
