//! Tasks that arrive: written down, and handed to the scheduler when their turn may come
//! soon and all is known that has to be looked up for them.

use std::sync::Arc;

use packhorse_core::{Now, SchedulerEvent, Submission};
use packhorse_intake::signature::SignatureDraft;
use packhorse_model::{Command, NewTask, Outcome, Record, RunId, StoredTask, TaskId, TaskSpec};
use rustc_hash::FxHashMap;

use crate::action::Action;
use crate::backlog::{ArrivalPlace, FETCHED};
use crate::engine::{ClockReading, Engine};
use crate::memory::{Kind, VramUse, draft_of};
use crate::task::{Task, submission};

/// A task on its way to the scheduler.
pub(crate) struct Arrival {
    pub(crate) id: TaskId,
    task: Task,
    after: Vec<u32>,
    place: ArrivalPlace,
    kind: ArrivalKind,
}

/// What a task is remembered by.
enum ArrivalKind {
    /// Nothing: its memory does not count.
    None,
    /// That depends on what is in files, which is being looked up.
    Draft(SignatureDraft),
    Known(Kind),
}

impl Arrival {
    /// What it asks for, laid over what the run says.
    pub(crate) fn spec(&self) -> &TaskSpec {
        &self.task.spec
    }

    /// The numbers of the tasks that it comes after.
    pub(crate) fn after(&self) -> &[u32] {
        &self.after
    }
}

impl Engine {
    /// Takes tasks that have arrived: all go to the journal, and those whose turn may
    /// come soon go to the scheduler.
    pub(crate) fn tasks_arrived(
        &mut self,
        id: RunId,
        tasks: Vec<(TaskSpec, Vec<u32>)>,
        more: bool,
    ) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        run.backlog.arrive(
            run.known.saturating_add(1),
            arrival_place(&mut self.arrivals, self.now, tasks.len() as u64),
        );
        let mut batch = Vec::with_capacity(tasks.len());
        let mut soon = Vec::new();
        for (spec, after) in tasks {
            if run.known == u32::MAX {
                run.rejected += 1;
                continue;
            }
            run.known += 1;
            let task = TaskId::new(id, run.known);
            let plain = after.is_empty() && spec.is_plain();
            if plain && !run.backlog.has_room() {
                run.backlog.stored += 1;
            } else {
                let stored = StoredTask {
                    id: task,
                    spec: spec.clone(),
                    after: after.clone(),
                    outcome: None,
                    attempts: 0,
                };
                // It takes its room now, so that the next one knows.
                soon.push((run.backlog.enter(&stored, plain), stored));
            }
            batch.push(NewTask::new(task, spec, after.into()));
        }
        if !batch.is_empty() {
            let place = self.record(Record::Tasks(batch));
            if let Some(run) = self.runs.get_mut(&id) {
                run.tasks_recorded = place;
            }
        }
        self.arrive_together(id, more || soon.len() > 1, more, |engine| {
            for (queued, task) in soon {
                engine.admit(task, queued);
            }
        });
    }

    /// What arrives together is in line together: the most urgent goes first, wherever it
    /// stood.
    fn arrive_together(
        &mut self,
        id: RunId,
        several: bool,
        more: bool,
        arrive: impl FnOnce(&mut Self),
    ) {
        let run = self.runs.get_mut(&id).filter(|run| run.takes_tasks());
        if let Some(run) = run {
            run.more_follow = more;
            if several && !std::mem::replace(&mut run.holding, true) {
                self.hold();
            }
        }
        arrive(self);
        self.end_arrival_if_all_here(id);
    }

    /// Hands out again when all that arrived together is in line: what is looked up for
    /// one of them may be found later than for the others.
    pub(crate) fn end_arrival_if_all_here(&mut self, id: RunId) {
        let run = self.runs.get(&id);
        if run.is_some_and(|run| run.arriving.is_empty() && !run.more_follow) {
            self.end_arrival(id);
        }
    }

    /// All that arrived together is in line, or will never be.
    pub(crate) fn end_arrival(&mut self, id: RunId) {
        let run = self.runs.get_mut(&id);
        if run.is_some_and(|run| std::mem::take(&mut run.holding)) {
            self.unhold();
        }
    }

    /// Takes over what an earlier session left: all tasks that ask for something
    /// themselves, and the first of the plain ones.
    pub(crate) fn resumed(&mut self, id: RunId, tasks: Vec<StoredTask>, more: bool) {
        if let [first, ..] = &tasks[..]
            && let Some(last) = tasks.last()
            && let Some(run) = self.runs.get_mut(&id)
        {
            let (first, last) = (first.id.number, last.id.number);
            let numbers = u64::from(last.saturating_sub(first)) + 1;
            let place = arrival_place(&mut self.arrivals, self.now, numbers);
            run.backlog.arrive(first, place);
        }
        self.arrive_together(id, true, more, |engine| {
            for stored in tasks {
                let plain = stored.after.is_empty() && stored.spec.is_plain();
                let Some(run) = engine.runs.get_mut(&id) else {
                    return;
                };
                run.settled = run.settled.saturating_sub(1);
                if plain && !run.backlog.has_room() {
                    run.backlog.stored += 1;
                } else {
                    engine.admit_stored(stored, plain);
                }
            }
        });
    }

    fn admit_stored(&mut self, stored: StoredTask, plain: bool) {
        let run = self.runs.get_mut(&stored.id.run);
        let queued = run.and_then(|run| run.backlog.enter(&stored, plain));
        self.admit(stored, queued);
    }

    /// Asks for plain tasks that wait in the store when their turn comes near.
    pub(crate) fn fetch_due(&mut self) {
        for (&id, run) in &mut self.runs {
            if run.takes_tasks() && run.backlog.is_due() {
                run.backlog.fetching = true;
                self.actions.push(Action::Fetch {
                    run: id,
                    after: run.backlog.fed,
                    limit: FETCHED,
                });
            }
        }
    }

    pub(crate) fn fetched(&mut self, id: RunId, tasks: Vec<StoredTask>) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        run.backlog.fetching = false;
        if tasks.is_empty() {
            let lost = std::mem::take(&mut run.backlog.stored);
            run.rejected += lost;
            let lost = match lost {
                1 => "a task is".to_owned(),
                many => format!("{many} tasks are"),
            };
            return self.warn(None, format!("{lost} gone from the store"));
        }
        run.backlog.stored = run.backlog.stored.saturating_sub(tasks.len() as u64);
        for stored in tasks {
            self.admit_stored(stored, true);
        }
    }

    /// Takes a task in. It is submitted at once, unless something has to be looked up for
    /// it or for one before it.
    fn admit(&mut self, stored: StoredTask, queued: Option<usize>) {
        let id = stored.id;
        let Some(run) = self.runs.get_mut(&id.run) else {
            return;
        };
        run.live += 1;
        let mut own = stored.spec;
        let command = Arc::new(std::mem::take(&mut own.command));
        let spec = if queued.is_some() {
            Arc::clone(&run.setup.defaults)
        } else {
            Arc::new(own.over(&run.setup.defaults))
        };
        let waits = !run.arriving.is_empty();
        let place = run.backlog.place_of(id.number);
        let arrival = Arrival {
            place,
            kind: self.kind_of(id.run, &command, &spec),
            id,
            task: Task {
                command,
                spec,
                before: stored.attempts,
                queued,
                need: None,
                attempt: None,
                started: None,
            },
            after: stored.after,
        };
        let ready = self.is_ready(&arrival);
        if ready && !waits {
            return self.submit(arrival);
        }
        if !ready {
            self.look_up(&arrival);
        }
        if let Some(run) = self.runs.get_mut(&id.run) {
            run.arriving.push_back(arrival);
        }
    }

    /// What a task is remembered by, if its memory counts.
    fn kind_of(&self, run: RunId, command: &Command, spec: &TaskSpec) -> ArrivalKind {
        if VramUse::of(spec) == VramUse::Uncounted || self.request(spec).gpus.devices() == 0 {
            return ArrivalKind::None;
        }
        let Some(run) = self.runs.get(&run) else {
            return ArrivalKind::None;
        };
        let draft = draft_of(command, spec, &run.setup.folder);
        if draft.files().is_empty() {
            ArrivalKind::Known(draft.finish(&[]).into())
        } else {
            ArrivalKind::Draft(draft)
        }
    }

    /// Asks for what is not known of a task.
    fn look_up(&mut self, arrival: &Arrival) {
        match &arrival.kind {
            ArrivalKind::None => {}
            ArrivalKind::Draft(draft) => {
                let files = draft.files().to_vec();
                let task = arrival.id;
                self.act(Action::LookUpFiles { task, files });
            }
            ArrivalKind::Known(kind) => {
                if let Some(key) = self.needs.ask(kind) {
                    self.act(Action::LookUpPeaks(key));
                }
            }
        }
        for &number in &arrival.after {
            let task = TaskId::new(arrival.id.run, number);
            if self.has_to_look_up(task) {
                self.act(Action::LookUpOutcome(task));
            }
        }
    }

    /// Whether nobody here knows how a task came out, since it may have been settled in an
    /// earlier session.
    fn has_to_look_up(&self, task: TaskId) -> bool {
        let run = self.runs.get(&task.run);
        let resumed = run.filter(|run| run.setup.resumed.is_some());
        resumed.is_some_and(|run| {
            !run.decided.contains_key(&task.number) && !run.held.contains(task.number)
        }) && !self.tasks.contains_key(&task)
            && !self.state.knows(task)
    }

    pub(crate) fn files_found(&mut self, found: Vec<(TaskId, Vec<Option<u64>>)>) {
        let found: FxHashMap<TaskId, Vec<Option<u64>>> = found.into_iter().collect();
        let mut keys = Vec::new();
        for arrival in self.runs.values_mut().flat_map(|run| &mut run.arriving) {
            if let ArrivalKind::Draft(draft) = &arrival.kind
                && let Some(contents) = found.get(&arrival.id)
            {
                let kind = Kind::from(draft.clone().finish(contents));
                keys.extend(self.needs.ask(&kind));
                arrival.kind = ArrivalKind::Known(kind);
            }
        }
        for key in keys {
            self.act(Action::LookUpPeaks(key));
        }
        self.submit_ready();
    }

    pub(crate) fn outcome_found(&mut self, task: TaskId, outcome: Option<Outcome>) {
        if let Some(run) = self.runs.get_mut(&task.run) {
            run.decided.insert(task.number, outcome);
        }
        self.submit_ready();
    }

    /// Submits those of which all is known, in order.
    pub(crate) fn submit_ready(&mut self) {
        let ids: Vec<RunId> = self.runs.keys().copied().collect();
        self.hold();
        for id in ids {
            while let Some(run) = self.runs.get(&id)
                && let Some(first) = run.arriving.front()
                && self.is_ready(first)
            {
                let run = self.runs.get_mut(&id);
                if let Some(arrival) = run.and_then(|run| run.arriving.pop_front()) {
                    self.submit(arrival);
                }
            }
            self.end_arrival_if_all_here(id);
        }
        self.unhold();
    }

    fn is_ready(&self, arrival: &Arrival) -> bool {
        let run = arrival.id.run;
        let knows_kind = match &arrival.kind {
            ArrivalKind::None => true,
            ArrivalKind::Draft(_) => false,
            ArrivalKind::Known(kind) => self.needs.knows(kind),
        };
        let mut after = arrival.after.iter();
        knows_kind && after.all(|&number| !self.has_to_look_up(TaskId::new(run, number)))
    }

    /// Hands a task to the scheduler, unless it is known already that one it comes after
    /// did not succeed.
    pub(crate) fn submit(&mut self, arrival: Arrival) {
        let Some(arrival) = self.hold_back(arrival) else {
            return;
        };
        let Arrival { id, mut task, after, place, kind } = arrival;
        let Some(run) = self.runs.get(&id.run) else {
            return;
        };
        let mut comes_after = Vec::with_capacity(after.len());
        let mut skipped = false;
        for number in after {
            match run.decided.get(&number).copied().flatten() {
                Some(Outcome::Succeeded) => {}
                Some(outcome) if outcome.is_final() => skipped = true,
                _ => comes_after.push(TaskId::new(id.run, number)),
            }
        }
        if skipped {
            return self.skip(id, task);
        }
        let mut submission = Submission {
            batch: run.batch_of(id),
            arrived: Some(Now(place.at)),
            arrival_number: Some(place.number),
            after: comes_after,
            ..submission(id, &task.spec, &self.devices, self.slots)
        };
        if let ArrivalKind::Known(kind) = kind {
            self.settle_need(&mut submission, &mut task, kind);
        }
        self.tasks.insert(id, task);
        self.step(SchedulerEvent::Submit(submission));
    }

    /// Settles a task that cannot run because of another.
    fn skip(&mut self, id: TaskId, task: Task) {
        let outcome = Outcome::Skipped;
        if let Some(run) = self.runs.get_mut(&id.run) {
            run.decided.insert(id.number, Some(outcome));
        }
        self.tasks.insert(id, task);
        let place = self.record(Record::TaskFinished { task: id, outcome });
        self.finished(id, outcome, None, None, place);
    }
}

/// The place of the first of tasks that arrive now and take so many numbers.
fn arrival_place(arrivals: &mut u64, now: ClockReading, numbers: u64) -> ArrivalPlace {
    let number = *arrivals;
    *arrivals += numbers;
    ArrivalPlace { at: now.monotonic, number }
}
