//! Attempts: started as the scheduler says, and written down and told when they end.

use std::sync::Arc;
use std::time::Duration;

use packhorse_core::{Effect, EndCause, RefusalReason, RetryReason, SchedulerEvent};
use packhorse_model::{
    AttemptEnd, EndedAttempt, EventKind, Outcome, OutputMode, Placement, ProcessEvent, Record,
    StartedAttempt, StopMode, TaskId, TaskResult,
};

use crate::action::{Action, MpsAction, StartAttempt};
use crate::engine::Engine;
use crate::memory::Judgement;
use crate::outbox::ReleaseLevel;
use crate::task::{AttemptState, own_log, run_log};

impl Engine {
    pub(crate) fn process_event(&mut self, event: ProcessEvent) {
        match event {
            ProcessEvent::Started { task, attempt } => self.attempt_started(task, attempt),
            ProcessEvent::Ended(end) => self.attempt_over(end),
            ProcessEvent::Output { task, stream, bytes } => {
                for line in self.output.push(task, stream, &bytes) {
                    self.tell(line);
                }
            }
            ProcessEvent::Metrics { task, attempt, lines } => {
                self.metrics_printed(task, attempt, lines);
            }
            ProcessEvent::WrongMetrics { task, message } => self.wrong_metrics(task, message),
            ProcessEvent::Trouble { task, message } => self.warn(Some(task), message),
            // A client that is killed while it computes would take its MPS server with it.
            ProcessEvent::Ending { task, leader } => {
                self.act(Action::Mps(MpsAction::Release { task, leader }));
            }
        }
    }

    /// Which attempt the scheduler takes one for: it counts those of this session.
    pub(crate) fn scheduler_attempt(&self, task: TaskId, attempt: u32) -> u32 {
        let before = self.tasks.get(&task).map_or(0, |task| task.before);
        attempt.saturating_sub(before)
    }

    /// Tells the scheduler of an end that has been judged.
    pub(crate) fn attempt_ended(&mut self, judgement: Judgement) {
        let end = &judgement.end;
        for line in self.output.finish(end.task) {
            self.tell(line);
        }
        let event = SchedulerEvent::Ended {
            task: end.task,
            attempt: self.scheduler_attempt(end.task, end.attempt),
            outcome: end.outcome,
            cause: judgement.cause,
        };
        self.step_ended(event, judgement);
    }

    pub(crate) fn carry_out(&mut self, effect: Effect, ended: Option<&Judgement>) {
        // The end that caused the step, if the effect is about the same task.
        let of = |task: TaskId| ended.filter(|ended| ended.end.task == task);
        match effect {
            Effect::Start { task, attempt, placement, time_limit } => {
                self.start_attempt(task, attempt, placement, time_limit);
            }
            Effect::Stop { task, .. } => self.stop_attempt(task, StopMode::Terminate),
            Effect::Retrying { task, outcome, why, left, .. } => {
                let Some(ended) = of(task).filter(|_| self.tasks.contains_key(&task)) else {
                    return;
                };
                if !matches!(
                    why,
                    RetryReason::Retry | RetryReason::Collateral | RetryReason::Probed
                ) {
                    // Whatever it asked for before, from now on it asks for memory.
                    self.count_memory();
                }
                match why {
                    RetryReason::MoreMemory { memory } => self.needs_at_least(task, memory),
                    RetryReason::Alone | RetryReason::LargerDevice { .. } => {
                        self.keep_request(task);
                    }
                    // Before it starts again.
                    RetryReason::Retry | RetryReason::Collateral => {
                        if let Some(revision) = self.revision(task) {
                            self.step_next(revision);
                        }
                    }
                    RetryReason::Probed => {}
                }
                let note = again(why, ended);
                let place = self.record_end(ended, note.as_deref(), Some(why));
                let retrying =
                    EventKind::Retrying { task, attempt: ended.end.attempt, outcome, note, left };
                self.tell_after(place, retrying);
            }
            Effect::Finished { task, outcome, .. } => {
                if !self.tasks.contains_key(&task) {
                    return;
                }
                let ended = of(task);
                let note = ended.and_then(|ended| ended.note.as_deref());
                let place = match ended {
                    Some(ended) => self.record_end(ended, note, None),
                    None => self.record(Record::TaskFinished { task, outcome }),
                };
                self.finished(task, outcome, ended.map(|ended| &ended.end), note, place);
            }
            Effect::Refused { task, reason } => self.refuse(task, &reason),
            Effect::Look => self.look_before_choice(),
            Effect::NotAdded(reason) => self.warn(None, reason.to_string()),
        }
    }

    fn start_attempt(
        &mut self,
        id: TaskId,
        attempt: u32,
        placement: Placement,
        time_limit: Option<Duration>,
    ) {
        if attempt > 0 && self.is_too_long(id) {
            return self.set_aside(id, attempt);
        }
        let labels = self.labels(&placement);
        let (Some(task), Some(run)) = (self.tasks.get_mut(&id), self.runs.get_mut(&id.run)) else {
            return;
        };
        if let Some(bytes) = task.queued.take() {
            run.backlog.exit(bytes);
        }
        run.alive += 1;
        // A probe is attempt 0 in every session.
        let number = match attempt {
            0 => 0,
            attempt => attempt.saturating_add(task.before),
        };
        let probe = task.need.as_ref().and_then(|need| need.probe.as_ref());
        let command = probe.filter(|_| number == 0).unwrap_or(&task.command);
        let command = Arc::clone(command);
        let spec = Arc::clone(&task.spec);
        let output = run.setup.output;
        let log = run_log(&run.setup.logs, id, number);
        let own_log = own_log(&run.setup.folder, &spec, number);
        let asks_itself = task.need.is_some() || !Arc::ptr_eq(&spec, &run.setup.defaults);
        let request = asks_itself.then(|| self.state.running_request(id));
        let at_a_time = request.flatten().map(|request| {
            let fits = self.state.at_a_time(request);
            fits.min(run.held.at_a_time(&spec))
        });
        let devices = placement.devices.iter();
        task.started = None;
        task.attempt = Some(AttemptState {
            number,
            command: Arc::clone(&command),
            devices: devices.map(|granted| granted.device).collect(),
            labels: Arc::clone(&labels),
            evicted: None,
            ended: false,
        });
        self.track(id, number, &placement);
        if output == OutputMode::Inherit {
            // What it writes goes where we write: what it is comes first, and before that
            // all that there was to say, but for what a crash could lose.
            self.outbox.expect_kept(self.records);
            self.release(ReleaseLevel::Recoverable);
            let event = self.event(EventKind::Started {
                task: id,
                attempt: number,
                command: Arc::clone(&command),
                gpus: labels,
                node: None,
            });
            self.act(Action::Tell(event));
        }
        self.start_with_mps(StartAttempt {
            task: id,
            attempt: number,
            command,
            spec,
            placement,
            time_limit,
            output,
            log,
            own_log,
            mps: None,
            at_a_time,
        });
    }

    /// The devices of a placement as people call them.
    fn labels(&self, placement: &Placement) -> Arc<[String]> {
        let devices = placement.devices.iter();
        devices
            .filter_map(|granted| self.devices.get(granted.device.0 as usize))
            .map(|info| info.label.clone())
            .collect()
    }

    fn attempt_started(&mut self, id: TaskId, number: u32) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let attempt = task.attempt.as_ref();
        let Some(attempt) = attempt.filter(|it| it.number == number) else {
            return;
        };
        task.started = Some(self.now.wall);
        let (command, gpus) = (Arc::clone(&attempt.command), Arc::clone(&attempt.labels));
        let place = self.record(Record::Started(StartedAttempt {
            task: id,
            attempt: number,
            at: self.now.wall,
            device: (!gpus.is_empty()).then(|| gpus.join(",").into()),
        }));
        let run = self.runs.get(&id.run);
        if run.is_some_and(|run| run.setup.output != OutputMode::Inherit) {
            let started =
                EventKind::Started { task: id, attempt: number, command, gpus, node: None };
            self.tell_after(place, started);
        }
        self.evict_if_drained(id);
    }

    /// Ends the attempt of a task, if one is alive.
    pub(crate) fn stop_attempt(&mut self, task: TaskId, mode: StopMode) {
        if self.stop_before_start(task) {
            return;
        }
        self.act(Action::Stop { task, mode });
    }

    /// Writes down an end, after which the task may be in line `again`.
    fn record_end(
        &mut self,
        judgement: &Judgement,
        note: Option<&str>,
        again: Option<RetryReason>,
    ) -> u64 {
        let end = &judgement.end;
        self.record_metrics_of(end.task);
        let started = self.tasks.get(&end.task).and_then(|task| task.started);
        self.record(Record::AttemptEnded(EndedAttempt {
            task: end.task,
            attempt: end.attempt,
            // The time of day may have been set meanwhile.
            at: started.map_or(self.now.wall, |started| started + end.took),
            outcome: end.outcome,
            message: end.message.as_deref().map(Into::into),
            peak: judgement.peak,
            note: note.or(judgement.remark).map(Into::into),
            is_final: again.is_none(),
        }))
    }

    fn refuse(&mut self, id: TaskId, reason: &RefusalReason) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let attempt = task.before.saturating_add(1);
        let outcome = Outcome::NotStarted;
        if let Some(run) = self.runs.get_mut(&id.run) {
            run.decided.insert(id.number, Some(outcome));
        }
        let judgement = Judgement {
            end: AttemptEnd {
                task: id,
                attempt,
                outcome,
                message: Some(reason.to_string()),
                took: Duration::ZERO,
            },
            cause: EndCause::Own,
            note: None,
            remark: None,
            peak: None,
        };
        let place = self.record_end(&judgement, None, None);
        self.finished(id, outcome, Some(&judgement.end), None, place);
    }

    pub(crate) fn finished(
        &mut self,
        id: TaskId,
        outcome: Outcome,
        end: Option<&AttemptEnd>,
        note: Option<&str>,
        place: u64,
    ) {
        if let Some(end) = end {
            self.note_time(id, end);
        }
        self.forget_need(id);
        self.probe_over(id);
        self.mps.suspects.remove(&id);
        let metrics = end.map(|end| self.metrics.of(id, end.attempt));
        self.metrics.forget(id);
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        self.make_room_in_group(id, &task.spec);
        let Some(run) = self.runs.get_mut(&id.run) else {
            return;
        };
        run.live = run.live.saturating_sub(1);
        match outcome {
            Outcome::Succeeded => run.succeeded += 1,
            Outcome::Interrupted => run.interrupted += 1,
            _ => run.failed += 1,
        }
        if let Some(bytes) = task.queued {
            run.backlog.exit(bytes);
        }
        let ran = end.filter(|end| end.outcome != Outcome::NotStarted);
        let message = note.or(end.and_then(|end| end.message.as_deref()));
        let result = TaskResult {
            task: id,
            attempts: end.map_or(0, |end| end.attempt),
            outcome,
            message: message.map(str::to_owned),
            took: end.map_or(Duration::ZERO, |end| end.took),
            log: ran.and_then(|end| run.log_path(&task.spec, id, end.attempt)),
            command: task.command,
            metrics: metrics.unwrap_or_default(),
        };
        self.tell_after(place, EventKind::Finished(result));
    }
}

impl StartAttempt {
    /// How long it has between SIGTERM and SIGKILL.
    pub fn grace(&self) -> Duration {
        self.spec.grace.unwrap_or_default().0
    }
}

/// Why a task is in line again, in words; nothing if that is a plain retry.
fn again(why: RetryReason, ended: &Judgement) -> Option<String> {
    let note = ended.note.as_deref();
    let what = note.unwrap_or("it did not succeed");
    Some(match why {
        RetryReason::Retry => format!("{}; it runs again, and a retry is used up", note?),
        RetryReason::Collateral => format!("{what}; it runs again, and no retry is used up"),
        RetryReason::MoreMemory { memory } => format!("{what}; it runs again with {memory}"),
        RetryReason::Alone => format!("{what}; it runs again with a GPU to itself"),
        RetryReason::LargerDevice { above } => {
            format!("{what}; it runs again on a GPU with more than {above}")
        }
        RetryReason::Probed => probed(ended),
    })
}

/// What came of a probe. One that did not succeed may have ended before it held most.
fn probed(ended: &Judgement) -> String {
    let end = &ended.end;
    let why = ended.note.as_ref().or(end.message.as_ref());
    let why = why.map_or_else(|| end.outcome.to_string(), Clone::clone);
    match (end.outcome, ended.peak) {
        (Outcome::Succeeded, Some(peak)) => format!("measured: {peak} of GPU memory"),
        (Outcome::Succeeded, None) => "it ended before its memory could be measured".to_owned(),
        (Outcome::NotStarted, _) => format!("not started, so nothing was measured: {why}"),
        _ if matches!(ended.cause, EndCause::OutOfMemory { .. }) => why,
        _ => format!("failed, so it does not tell how much memory is needed: {why}"),
    }
}
