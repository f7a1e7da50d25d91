use std::time::{Duration, Instant};

use packhorse_model::{Event, EventKind, Outcome, TaskResult};

/// What the events so far add up to.
pub struct Tally {
    pub started: Instant,
    pub known: u64,
    pub complete: bool,
    pub running: u64,
    pub succeeded: u64,
    /// Those that failed, the first of them at least.
    pub failures: Vec<TaskResult>,
    pub failed: u64,
    /// Whether another process can run what is left or failed.
    pub can_go_on: bool,
}

/// How many failures are kept to be listed.
const LISTED: usize = 100;

impl Tally {
    pub fn new(now: Instant) -> Self {
        Self {
            started: now,
            known: 0,
            complete: false,
            running: 0,
            succeeded: 0,
            failures: Vec::new(),
            failed: 0,
            can_go_on: true,
        }
    }

    pub fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Known { tasks, complete, .. } => {
                self.known = *tasks;
                self.complete = *complete;
            }
            EventKind::Started { .. } => self.running += 1,
            EventKind::Retrying { .. } => self.running = self.running.saturating_sub(1),
            EventKind::Finished(finished) => {
                if finished.attempts > 0 && finished.outcome != Outcome::NotStarted {
                    self.running = self.running.saturating_sub(1);
                }
                match finished.outcome {
                    Outcome::Succeeded => self.succeeded += 1,
                    Outcome::Interrupted => {}
                    _ => {
                        self.failed += 1;
                        if self.failures.len() < LISTED {
                            self.failures.push(finished.clone());
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Tasks that are settled.
    pub fn done(&self) -> u64 {
        self.succeeded + self.failed
    }

    /// Tasks that have been read and are neither settled nor running.
    pub fn waiting(&self) -> u64 {
        self.known.saturating_sub(self.done()).saturating_sub(self.running)
    }

    /// Settled tasks a second, once there is something to go by.
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let elapsed = now.duration_since(self.started).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        (self.done() > 0 && elapsed > 0.0).then(|| self.done() as f64 / elapsed)
    }

    /// When the rest will be done at this rate.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        if !self.complete {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let left = self.known.saturating_sub(self.done()) as f64;
        Duration::try_from_secs_f64(left / self.rate(now)?).ok()
    }
}
