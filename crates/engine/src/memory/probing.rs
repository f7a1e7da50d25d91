//! Who is measured: of tasks of one shape one is enough, and those like it wait for that.
//!
//! ```text
//!  the first, or a more urgent one ──▶ probe ──▶ measured: all know what they need
//!  those behind it: awaited              │
//!           ▲                            └─────▶ not: the next of them is the one
//!           └──────────────────────────────────────────┘
//! ```
//!
//! One that comes after other tasks is measured by itself: it might keep those like it
//! waiting for long. And so is one that needs something else of the machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use packhorse_core::{ProbePlan, SchedulerEvent, Submission};
use packhorse_model::{Priority, Request, RunId, TaskId};

use crate::engine::Engine;

/// A task's place among those of its shape: by batch, priority and id.
type Turn = (u32, Priority, TaskId);

/// Who of a shape is measured, and who waits for that.
#[derive(Debug, Default)]
pub(super) struct Probing {
    /// Whose probe is to come, or runs, and what it needs.
    one: Option<(Turn, Request)>,
    awaiting: BTreeSet<Turn>,
}

impl Probing {
    pub(super) fn is_idle(&self) -> bool {
        self.one.is_none() && self.awaiting.is_empty()
    }

    /// A task is gone. If its probe was the one, who comes next.
    fn leave(&mut self, turn: Turn) -> Option<(TaskId, Request)> {
        self.awaiting.remove(&turn);
        self.one.as_ref().filter(|(one, _)| *one == turn)?;
        self.next()
    }

    /// Appoints the next of those who wait.
    fn next(&mut self) -> Option<(TaskId, Request)> {
        let (_, request) = self.one.take()?;
        let next = self.awaiting.pop_first()?;
        self.one = Some((next, request.clone()));
        Some((next.2, request))
    }
}

impl Engine {
    /// Whether a task of an unknown shape is to be measured, or waits for another one's
    /// probe.
    pub(super) fn appoint(&mut self, signature: &Arc<str>, task: &Submission) -> ProbePlan {
        let turn = (task.batch, task.priority, task.id);
        let probing = &mut self.needs.shape(&self.devices, signature).probing;
        match &probing.one {
            _ if !task.after.is_empty() => ProbePlan::First,
            None => {
                probing.one = Some((turn, task.request.clone()));
                ProbePlan::First
            }
            Some((_, request)) if *request != task.request => ProbePlan::First,
            Some((one, request)) => {
                let (one, request) = (*one, request.clone());
                let runs = self.tasks.get(&one.2);
                let runs = runs.is_some_and(|task| task.attempt.is_some());
                if runs || one < turn {
                    probing.awaiting.insert(turn);
                    return ProbePlan::Awaited;
                }
                probing.awaiting.insert(one);
                probing.one = Some((turn, request.clone()));
                self.revise(one.2, request, None, ProbePlan::Awaited);
                ProbePlan::First
            }
        }
    }

    /// A probe is over, or its task is: unless that told what those like it need, the next
    /// of them is measured.
    pub(crate) fn probe_over(&mut self, task: TaskId) {
        let (Some(known), Some(run)) = (self.tasks.get(&task), self.runs.get(&task.run)) else {
            return;
        };
        let priority = known.spec.priority.unwrap_or_default();
        let turn = (run.batch_of(task), priority, task);
        let need = known.need.as_ref();
        let shape = need.and_then(|need| self.needs.shapes.get_mut(&need.kind.signature));
        if let Some((next, request)) = shape.and_then(|shape| shape.probing.leave(turn)) {
            self.revise(next, request, None, ProbePlan::First);
        }
    }

    /// Nothing more of a run will start: tasks of other runs do not wait for its probes.
    pub(crate) fn hand_over_probes(&mut self, run: RunId) {
        let mut appointed = Vec::new();
        for shape in self.needs.shapes.values_mut() {
            let probing = &mut shape.probing;
            probing.awaiting.retain(|(.., task)| task.run != run);
            let one = probing.one.as_ref().map(|((.., one), _)| *one);
            let never_starts = one.filter(|one| one.run == run).is_some_and(|one| {
                let task = self.tasks.get(&one);
                task.is_none_or(|task| task.attempt.is_none())
            });
            if never_starts {
                appointed.extend(probing.next());
            }
        }
        appointed.sort_unstable_by_key(|(task, _)| *task);
        for (task, request) in appointed {
            self.revise(task, request, None, ProbePlan::First);
        }
    }

    pub(super) fn revise(
        &mut self,
        task: TaskId,
        request: Request,
        expected: Option<Duration>,
        probe: ProbePlan,
    ) {
        self.step(SchedulerEvent::Revise { task, request, expected, probe });
    }
}
