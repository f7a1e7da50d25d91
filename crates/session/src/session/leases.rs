//! Sharing the devices with other runs on this machine.

use std::os::fd::AsFd as _;

use packhorse_engine::{Input, OtherRun};
use packhorse_leases::Lease;

use super::{Session, Watched};
use crate::SessionError;

impl Session<'_> {
    /// Lets the engine decide: under the lock of all runs, if it may take something that
    /// others could take as well.
    pub(super) fn handle(&mut self, input: Input) {
        let now = self.now();
        if !self.engine.may_take(&input, now) {
            return self.engine.handle(input, now, &mut self.actions);
        }
        let Some(leases) = &mut self.parts.leases else {
            return self.engine.handle(input, now, &mut self.actions);
        };
        let mut trouble = Vec::new();
        match leases.lock() {
            Ok(mut guard) => {
                trouble.extend(guard.warning().map(|error| error.to_string()));
                if guard.revision() != self.revision {
                    self.revision = guard.revision();
                    let others: Vec<OtherRun> = guard.others().map(other_run).collect();
                    self.parts.attributor.other_runs = pids(&others);
                    let others = Input::OtherRuns(others);
                    self.engine.handle(others, now, &mut self.actions);
                }
                self.engine.handle(input, now, &mut self.actions);
                if let Some(lease) = self.engine.lease_to_raise() {
                    let told = guard.publish(&lease);
                    self.engine.lease_told(told.is_ok());
                    trouble.extend(told.err().map(|error| error.to_string()));
                }
            }
            Err(error) => {
                trouble.push(error.to_string());
                self.engine.handle(input, now, &mut self.actions);
            }
        }
        for message in trouble {
            self.answers.push_back(Input::OtherRunsTrouble(message));
        }
    }

    /// Listens to other runs while anybody waits for what they may give up; what they do
    /// meanwhile is none of our business, nor who comes to take something.
    pub(super) fn watch_other_runs(&mut self) -> Result<(), SessionError> {
        let wanted = self.engine.has_waiting() && self.engine.has_other_runs();
        if wanted == self.listening {
            return Ok(());
        }
        let Some(leases) = &mut self.parts.leases else {
            return Ok(());
        };
        self.listening = wanted;
        if !wanted {
            let Some(leases) = &self.parts.leases else {
                return Ok(());
            };
            return self.unwatch(leases.as_fd());
        }
        let listening = leases.listen();
        if let Some(leases) = &self.parts.leases {
            self.watch(leases.as_fd(), Watched::Leases)?;
        }
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

    /// Looks what other runs hold; the answer comes next.
    pub(super) fn refresh_other_runs(&mut self) {
        let Some(leases) = &mut self.parts.leases else {
            return;
        };
        let others = leases.lock().map(|guard| {
            let changed = guard.revision() != self.revision;
            self.revision = guard.revision();
            changed.then(|| guard.others().map(other_run).collect::<Vec<_>>())
        });
        match others {
            Ok(None) => {}
            Ok(Some(others)) => {
                self.parts.attributor.other_runs = pids(&others);
                self.answers.push_back(Input::OtherRuns(others));
            }
            Err(error) => {
                let message = error.to_string();
                self.answers.push_back(Input::OtherRunsTrouble(message));
            }
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

/// What another run holds, as the engine sees it.
fn other_run(lease: &Lease) -> OtherRun {
    OtherRun {
        pid: lease.pid,
        devices: lease.held.clone(),
    }
}

fn pids(others: &[OtherRun]) -> Vec<u32> {
    others.iter().map(|other| other.pid).collect()
}
