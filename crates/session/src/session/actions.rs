//! Carrying out what the engine decides.

use std::time::{Duration, Instant};

use packhorse_engine::{Action, Input, LogTail, OutputMode};
use packhorse_gpu::mps::reports_server_failure;
use packhorse_model::RunId;
use rustix::event::{PollFd, PollFlags, poll};

use super::{Session, unwatch};
use crate::SessionError;
use crate::log_tail::read_tail;
use crate::observer::EmptyQueue;
use crate::signals::{ProgramSignal, Signals};

/// How long somebody who wants to end waits for the rest of the input to be kept. Whoever
/// writes faster than we read would have us read for ever.
const KEEPING: Duration = Duration::from_secs(1);

impl Session<'_> {
    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Tell(event) => self.observer.event(&event),
            Action::Record(entry) => {
                // The marker first: what is told of the task waits for the record.
                if let Some(trouble) =
                    self.parts.markers.as_mut().and_then(|markers| markers.note(&entry))
                {
                    self.answers.push_back(trouble);
                }
                self.parts.journal.send(entry);
            }
            Action::Start(start) => {
                if let Some(failure) =
                    self.parts.markers.as_mut().and_then(|markers| markers.begin(&start))
                {
                    self.answers.push_back(failure);
                    return;
                }
                if start.output == OutputMode::Inherit {
                    // What it writes goes where we write.
                    self.observer.show(Instant::now(), &self.engine);
                }
                let share = start.mps.map(|share| share.device);
                let daemon = share.and_then(|device| self.parts.mps.as_ref()?.daemon(device));
                let known = self.parts.executor.start(*start, daemon);
                self.parts.leaders.changed(Instant::now());
                self.answers.extend(known.map(Input::Process));
            }
            Action::Stop { task, mode } => self.parts.executor.stop(task, mode),
            Action::Proceed(task) => self.parts.executor.proceed(task),
            Action::Abandon(task) => self.parts.executor.abandon(task),
            Action::Sample => {
                if let Some(sampler) = &self.parts.sampler {
                    sampler.request_all();
                }
            }
            Action::Fetch { run, after, limit } => self.fetch(run, after, limit),
            Action::LookUpFiles { task, files } => {
                let found = (task, self.parts.file_contents.hashes(&files));
                // What arrived together is decided together.
                match self.answers.back_mut() {
                    Some(Input::Files(all)) => all.push(found),
                    _ => self.answers.push_back(Input::Files(vec![found])),
                }
            }
            Action::LookUpPeaks(signature) => {
                let peaks = self.parts.journal.peaks(&signature);
                let peaks = self.or_fail(peaks);
                self.answers.push_back(Input::Peaks { signature, peaks });
            }
            Action::LookUpOutcome(task) => {
                let outcome = self.parts.journal.outcome(task);
                let outcome = self.or_fail(outcome);
                self.answers.push_back(Input::Outcome { task, outcome });
            }
            Action::ReadLog(LogTail { task, attempt, path }) => {
                let tail = read_tail(&path);
                let text = tail.as_deref().map(String::from_utf8_lossy);
                let mps = self.parts.mps.is_some();
                let mps_failed = mps && text.is_some_and(|text| reports_server_failure(&text));
                self.answers.push_back(Input::Log { task, attempt, tail, mps_failed });
            }
            Action::RefreshOtherRuns => self.refresh_other_runs(),
            Action::Mps(action) => {
                if let Some(mps) = &mut self.parts.mps {
                    mps.ask(action);
                }
            }
            Action::Reply { to, text } => {
                if let Some(control) = &mut self.parts.control {
                    control.answer(to, &text);
                }
            }
            Action::RunIdle { run, keep_input } => {
                let keep_until = keep_input.then(|| Instant::now() + KEEPING);
                self.closing = Some((run, keep_until));
            }
            Action::Closed(run) => self.finish_journal(run),
            Action::RunOver(summary) => self.over = Some(*summary),
        }
    }

    /// The answer, or what stands for it after an error that nothing works without.
    fn or_fail<T: Default>(&mut self, answer: Result<T, SessionError>) -> T {
        answer.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            T::default()
        })
    }

    pub(super) fn fetch(&mut self, run: RunId, after: u32, limit: u32) {
        match self.parts.journal.fetch(run, after, limit) {
            Ok(Some(tasks)) => self.answers.push_back(Input::Fetched { run, tasks }),
            // They will be there with the next commit.
            Ok(None) => self.fetches.push((run, after, limit)),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    /// Goes on with a run of which nothing is alive any more: keeps what is left of its
    /// input, and closes it. Whether there was one.
    pub(super) fn go_on_closing(&mut self) -> bool {
        let Some((run, keep_until)) = self.closing else {
            return false;
        };
        if keep_until.is_some_and(|end| self.keep_some_input(end)) {
            return true;
        }
        if let Some(mps) = &mut self.parts.mps {
            // It goes on when that has answered, with no more of the input.
            self.closing = Some((run, None));
            mps.finish();
            return false;
        }
        self.closing = None;
        self.parts.executor.finish();
        let unread = if self.source_over { 0 } else { self.parts.source.unread() };
        self.answers.push_back(Input::Close { run, unread });
        true
    }

    /// Waits until the journal has come to its end. Whether it has, before somebody has
    /// asked three times to stop.
    fn outlasts_signals(&self) -> bool {
        let (journal, signals) = (&self.parts.journal, &self.parts.signals);
        let mut asked = 0;
        while !journal.ends_within(Duration::ZERO) {
            let mut events = [
                PollFd::from_borrowed_fd(journal.as_fd(), PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
            ];
            let _ = poll(&mut events, None);
            journal.heard();
            for signal in signals.read() {
                match signal {
                    ProgramSignal::Stop(_) => asked += 1,
                    ProgramSignal::Suspend => Signals::suspend(),
                    _ => {}
                }
            }
            if asked >= 3 {
                return false;
            }
        }
        true
    }

    /// Waits until the last record is written, or cannot be.
    fn finish_journal(&mut self, run: RunId) {
        if std::mem::take(&mut self.bell) {
            let _ = unwatch(&self.epoll, &self.parts.journal);
        }
        // Nothing of ours runs any more, however long the rest takes.
        self.leave_other_runs();
        if !self.parts.journal.ends_within(self.patience) {
            let why = self.parts.journal.trouble();
            let why = why.map_or_else(String::new, |trouble| format!(": {trouble}"));
            let message = format!("the last results are not written yet{why}; waiting for that");
            let (now, mut actions) = (self.now(), Vec::new());
            // The last ends were kept since it was told of that.
            self.committed.1 = self.parts.journal.kept();
            for input in [self.committed_input(), Input::Stalled(message)] {
                self.engine.handle(input, now, &mut actions);
            }
            for action in actions {
                if let Action::Tell(event) = action {
                    self.observer.event(&event);
                }
            }
            self.observer.show(Instant::now(), &EmptyQueue);
        }
        let lost = if self.outlasts_signals() {
            self.parts.journal.finish().err()
        } else {
            Some(self.parts.journal.give_up())
        };
        self.answers.push_back(Input::Stored { run, lost });
    }
}
