//! Sharing the devices with other runs on this machine.

use packhorse_engine::{Input, OtherRun};
use packhorse_leases::LeasesGuard;

use super::{LEASES, Session, unwatch, watch};
use crate::SessionError;
use crate::sampling::Attributor;

/// How other runs are watched.
#[derive(Default)]
pub(super) struct OtherRunsWatch {
    /// Whether they are listened to.
    listening: bool,
    /// Whether what they hold has to be looked at, whatever comes next.
    look_due: bool,
    /// What was seen of them last.
    revision: u64,
}

impl Session<'_> {
    /// Lets the engine decide: under the lock of all runs, if it may take something that
    /// others could take as well.
    pub(super) fn handle(&mut self, input: Input) {
        let now = self.now();
        let mut trouble = Vec::new();
        let wanted = std::mem::take(&mut self.others.look_due) || self.engine.may_take(&input, now);
        let leases = self.parts.leases.as_mut().filter(|_| wanted);
        let mut guard = leases.and_then(|leases| {
            let locked = leases.lock();
            locked.map_err(|error| trouble.push(error)).ok()
        });
        if let Some(guard) = &mut guard {
            trouble.extend(guard.warning());
            let others = look(guard, &mut self.others.revision, &mut self.parts.attributor);
            if let Some(others) = others {
                self.engine.handle(others, now, &mut self.actions);
            }
        }
        self.engine.handle(input, now, &mut self.actions);
        if let Some(guard) = &mut guard
            && let Some(lease) = self.engine.lease_to_raise()
        {
            let told = guard.publish(&lease);
            self.engine.lease_told(told.is_ok());
            trouble.extend(told.err());
        }
        drop(guard);
        let trouble = trouble.into_iter().map(|error| error.to_string());
        self.answers.extend(trouble.map(Input::OtherRunsTrouble));
    }

    /// Listens to other runs while anybody waits for what they may give up; what they do
    /// meanwhile is none of our business, nor who comes to take something.
    pub(super) fn watch_other_runs(&mut self) -> Result<(), SessionError> {
        let wanted = self.engine.has_waiting() && self.engine.has_other_runs();
        if wanted == self.others.listening {
            return Ok(());
        }
        let Some(leases) = &mut self.parts.leases else {
            return Ok(());
        };
        self.others.listening = wanted;
        if !wanted {
            return unwatch(&self.epoll, leases);
        }
        let listening = leases.listen();
        watch(&self.epoll, leases, LEASES)?;
        match listening {
            // Somebody may have left before.
            Ok(()) => self.refresh_other_runs_now(),
            Err(error) => self.feed(Input::OtherRunsTrouble(error.to_string())),
        }
        Ok(())
    }

    pub(super) fn refresh_other_runs_now(&mut self) {
        self.refresh_other_runs();
        self.feed_answers();
    }

    /// Has the engine look what other runs hold, next. What is seen is acted on under the
    /// same lock: a moment later it may be somebody else's.
    pub(super) fn refresh_other_runs(&mut self) {
        if self.parts.leases.is_some() {
            self.others.look_due = true;
            self.answers.push_back(Input::Wake);
        }
    }

    /// Gives up what others were told that we hold, and do not hold any more.
    pub(super) fn lower_lease(&mut self) {
        let Some(lease) = self.engine.lease_to_lower() else {
            return;
        };
        let Some(leases) = &mut self.parts.leases else {
            return;
        };
        let told = leases.lock().and_then(|mut guard| guard.publish(&lease));
        self.engine.lease_told(told.is_ok());
        if let Err(error) = told {
            self.feed(Input::OtherRunsTrouble(error.to_string()));
        }
    }
}

/// What other runs hold, if that has changed since it was seen last.
fn look(guard: &LeasesGuard<'_>, seen: &mut u64, attributor: &mut Attributor) -> Option<Input> {
    if std::mem::replace(seen, guard.revision()) == guard.revision() {
        return None;
    }
    let others = guard.others().map(|lease| OtherRun {
        pid: lease.pid,
        devices: lease.held.clone(),
    });
    let others: Vec<OtherRun> = others.collect();
    attributor.other_runs = others.iter().map(|other| other.pid).collect();
    Some(Input::OtherRuns(others))
}
