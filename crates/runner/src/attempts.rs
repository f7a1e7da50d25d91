//! Attempts: started as the core says, and written down and told when they end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_core::{self as core, Effect, EndCause, RefusalReason, RetryReason};
use packhorse_hands::{self as hands, Ended, Job, Stop};
use packhorse_model::{Outcome, Placement, TaskId};
use packhorse_store::{End, Record, Start, UnixMicros, Verdict};

use crate::memory::Judgement;
use crate::run::{Nobody, Run};
use crate::{Event, Finished, Parameters};

impl Run<'_> {
    /// Which attempt the core takes one for: it counts those of this session.
    pub(crate) fn core_attempt(&self, task: TaskId, attempt: u32) -> u32 {
        let before = self.tasks.get(&task.number).map_or(0, |task| task.before);
        attempt.saturating_sub(before)
    }

    pub(crate) fn attempt_ended(&mut self, ended: &Ended, judgement: &Judgement) {
        let event = core::SchedulerEvent::Ended {
            task: ended.task,
            attempt: self.core_attempt(ended.task, ended.attempt),
            outcome: ended.outcome,
            cause: judgement.cause.unwrap_or(EndCause::Own),
        };
        self.step_with(event, Some((ended, judgement)));
    }

    pub(crate) fn carry_out(&mut self, effect: Effect, ended: Option<(&Ended, &Judgement)>) {
        // The end that caused the step, if the effect is about the same task.
        let of = |task: TaskId| ended.filter(|(ended, _)| ended.task == task);
        match effect {
            Effect::Start {
                task,
                attempt,
                placement,
                time_limit,
            } => self.start_attempt(task, attempt, &placement, time_limit),
            Effect::Stop { task, .. } => self.hands.stop(task, Stop::Terminate),
            Effect::Retrying {
                task,
                outcome,
                next_attempt,
                why,
                left,
            } => {
                if !matches!(
                    why,
                    RetryReason::Retry | RetryReason::Collateral | RetryReason::Probed
                ) {
                    // Whatever it asked for before, from now on it asks for memory.
                    self.count_memory();
                }
                let note = of(task).and_then(|(ended, judgement)| again(why, ended, judgement));
                let place = of(task).map_or(0, |(ended, judgement)| {
                    self.record_end(ended, judgement, note.as_deref(), Verdict::Again)
                });
                let attempt =
                    of(task).map_or(next_attempt.saturating_sub(1), |(ended, _)| ended.attempt);
                self.told.tell_after(
                    place,
                    Event::Retrying {
                        task,
                        attempt,
                        outcome,
                        note,
                        left,
                    },
                );
            }
            Effect::Finished { task, outcome, .. } => {
                let place = match of(task) {
                    Some((ended, judgement)) => {
                        let note = judgement.note.as_deref();
                        self.record_end(ended, judgement, note, Verdict::Final)
                    }
                    None => self.store.send(Record::TaskFinished {
                        task: task.number,
                        outcome,
                    }),
                };
                let of = of(task);
                let note = of.and_then(|(_, judgement)| judgement.note.clone());
                self.finished(task, outcome, of.map(|(ended, _)| ended), note, place);
            }
            Effect::Refused { task, reason } => self.refuse(task, &reason),
        }
    }

    fn start_attempt(
        &mut self,
        task: TaskId,
        attempt: u32,
        placement: &Placement,
        time_limit: Option<Duration>,
    ) {
        let Some(known) = self.tasks.get_mut(&task.number) else {
            return;
        };
        if let Some(bytes) = known.queued.take() {
            self.backlog.exit(bytes);
        }
        // A probe is attempt 0 in every session.
        let attempt = match attempt {
            0 => 0,
            attempt => attempt + known.before,
        };
        let probe = known.wants.as_ref().and_then(|wants| wants.probe());
        let command = match probe.filter(|_| attempt == 0) {
            Some(probe) => Arc::clone(probe),
            None => Arc::clone(&known.command),
        };
        let folder = known.folder.clone();
        known.devices = placement
            .devices
            .iter()
            .map(|granted| granted.device)
            .collect();
        self.track(task, attempt, placement);
        let given = self.devices.given(placement);
        let told = Event::Started {
            task,
            attempt,
            command: Arc::clone(&command),
            devices: Arc::clone(&given.labels),
            at: Instant::now(),
        };
        if self.settings.output == hands::Output::Inherit {
            // What it writes goes where we write: we say first what it is, and before
            // that what there was to say.
            self.told.release(u64::MAX, self.reporter);
            self.reporter.event(&told);
            self.reporter.show(Instant::now(), &Nobody);
        }
        let mut environment = Vec::with_capacity(8);
        self.devices.variables(&given, placement, &mut environment);
        if let Some(Parameters(tell)) = &self.settings.parameters {
            environment.push(("PACKHORSE_PARAMS", tell(task.number)));
        }
        self.serve(placement, &mut environment);
        let started = self.hands.start(Job {
            task,
            attempt,
            command: &command,
            folder: folder.as_deref(),
            environment: &environment,
            cores: &placement.cores,
            time_limit,
        });
        let record = Start {
            task: task.number,
            attempt,
            at: UnixMicros::now(),
            device: given.joined.clone(),
        };
        match started {
            hands::Start::Running => {
                self.attempt_started(record, told);
                self.mind_drained(task);
            }
            hands::Start::Later => {
                if let Some(known) = self.tasks.get_mut(&task.number) {
                    known.later = Some((record, told));
                }
            }
            hands::Start::Failed => {}
        }
    }

    pub(crate) fn attempt_started(&mut self, record: Start, told: Event) {
        let place = self.store.send(Record::Started(record));
        if self.settings.output != hands::Output::Inherit {
            self.told.tell_after(place, told);
        }
    }

    fn record_end(
        &mut self,
        ended: &Ended,
        judgement: &Judgement,
        note: Option<&str>,
        verdict: Verdict,
    ) -> u64 {
        self.store.send(Record::AttemptEnded(End {
            task: ended.task.number,
            attempt: ended.attempt,
            at: UnixMicros::now(),
            outcome: ended.outcome,
            message: ended.message.as_deref().map(Into::into),
            peak: judgement.peak,
            note: note.map(Into::into),
            verdict,
        }))
    }

    fn refuse(&mut self, task: TaskId, reason: &RefusalReason) {
        let before = self.tasks.get(&task.number).map_or(0, |known| known.before);
        self.feed.decided.insert(task.number, Outcome::NotStarted);
        let ended = Ended {
            task,
            attempt: before + 1,
            outcome: Outcome::NotStarted,
            message: Some(reason.to_string()),
            took: Duration::ZERO,
        };
        let place = self.record_end(&ended, &Judgement::default(), None, Verdict::Final);
        self.finished(task, Outcome::NotStarted, Some(&ended), None, place);
    }

    pub(crate) fn finished(
        &mut self,
        task: TaskId,
        outcome: Outcome,
        ended: Option<&Ended>,
        note: Option<String>,
        place: u64,
    ) {
        self.forget_wish(task.number);
        self.probe_over(task.number);
        match outcome {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Interrupted => self.interrupted += 1,
            _ => self.failed += 1,
        }
        let Some(known) = self.tasks.remove(&task.number) else {
            return;
        };
        if let Some(bytes) = known.queued {
            self.backlog.exit(bytes);
        }
        let started = ended.is_some_and(|ended| ended.outcome != Outcome::NotStarted);
        let logged = started && self.settings.output != hands::Output::Inherit;
        self.told.tell_after(
            place,
            Event::Finished(Finished {
                task,
                attempts: ended.map_or(0, |ended| ended.attempt),
                outcome,
                command: known.command,
                message: note.or_else(|| ended.and_then(|ended| ended.message.clone())),
                took: ended.map_or(Duration::ZERO, |ended| ended.took),
                logs: logged.then(|| Arc::clone(&self.logs)),
            }),
        );
    }
}

/// Why a task is in line again, in words; nothing if that is a plain retry.
fn again(why: RetryReason, ended: &Ended, judgement: &Judgement) -> Option<String> {
    let what = judgement.note.as_deref().unwrap_or("it did not succeed");
    Some(match why {
        RetryReason::Retry => return judgement.note.clone(),
        RetryReason::Collateral => format!("{what}; it runs again, and no retry is used up"),
        RetryReason::MoreMemory { memory } => format!("{what}; it runs again with {memory}"),
        RetryReason::Alone => format!("{what}; it runs again with a GPU to itself"),
        RetryReason::LargerDevice { above } => {
            format!("{what}; it runs again on a GPU with more than {above}")
        }
        RetryReason::Probed => probed(ended, judgement),
    })
}

/// What came of a probe. One that did not succeed may have ended before it held most.
fn probed(ended: &Ended, judgement: &Judgement) -> String {
    let why = judgement.note.as_ref().or(ended.message.as_ref());
    let why = why.map_or_else(|| ended.outcome.to_string(), Clone::clone);
    match (ended.outcome, judgement.peak) {
        (Outcome::Succeeded, Some(peak)) => format!("measured: {peak} of GPU memory"),
        (Outcome::Succeeded, None) => "it ended before its memory could be measured".to_owned(),
        (Outcome::NotStarted, _) => format!("not started, so nothing was measured: {why}"),
        _ if matches!(judgement.cause, Some(EndCause::OutOfMemory { .. })) => why,
        _ => format!("failed, so it does not tell how much memory is needed: {why}"),
    }
}
