//! Sharing the devices with other runs on this machine.

use std::time::{Duration, Instant};

use packhorse_engine::{Input, OtherRun};
use packhorse_leases::{Lease, Leases, LeasesGuard};

use super::{LEASES, Session, unwatch, watch};
use crate::SessionError;
use crate::sampling::Attributor;
use crate::user_names::UserNames;

/// How often others are looked at while it cannot be heard what they do.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How other runs are watched.
#[derive(Default)]
pub(super) struct OtherRunsWatch {
    /// Whether they are listened to, or are to be.
    listening: bool,
    /// When they are looked at again because nobody would tell that they have changed.
    pub(super) look_again: Option<Instant>,
    /// Whether our own lease is watched: somebody may remove it.
    guarded: bool,
    /// The id of our state folder.
    home: String,
    /// Whether what they hold has to be looked at, whatever comes next.
    look_due: bool,
    /// What was seen of them last.
    revision: u64,
    /// Whose they are, where they do not say it.
    users: UserNames,
}

impl OtherRunsWatch {
    pub(super) fn new(home: String) -> Self {
        Self {
            home,
            ..Self::default()
        }
    }
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
            let again = self.engine.is_kept_room_stale(now.monotonic);
            let others = look(guard, &mut self.others, &mut self.parts.attributor, again);
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
    pub(super) fn watch_other_runs(&mut self, now: Instant) -> Result<(), SessionError> {
        let wanted = self.engine.has_waiting() && self.engine.has_other_runs();
        let Some(leases) = &mut self.parts.leases else {
            return Ok(());
        };
        let is_as_wanted = wanted == self.others.listening;
        if !wanted {
            self.others.look_again = None;
            if is_as_wanted {
                return Ok(());
            }
            self.others.listening = false;
            leases.unlisten();
            if self.others.guarded {
                return Ok(());
            }
            return unwatch(&self.epoll, leases);
        }
        let is_early = self.others.look_again.is_some_and(|at| at > now);
        if is_as_wanted && (leases.is_listening() || is_early) {
            return Ok(());
        }
        let listening = leases.listen();
        if !is_as_wanted && !self.others.guarded {
            watch(&self.epoll, leases, LEASES)?;
        }
        self.others.listening = true;
        // Whoever cannot be told has to ask.
        self.others.look_again = listening.is_err().then(|| now + LOOK_AGAIN);
        if let Err(error) = listening {
            self.feed(Input::OtherRunsTrouble(error.to_string()));
        }
        // Somebody may have left before.
        self.refresh_other_runs_now();
        Ok(())
    }

    /// Something has changed: that others took more, or wait for more, need not be known
    /// before we want something.
    pub(super) fn hear_other_runs(&mut self) {
        let leases = self.parts.leases.as_mut();
        match leases.map_or(Ok(false), Leases::has_freed) {
            Ok(false) => {}
            Ok(true) => self.refresh_other_runs_now(),
            Err(error) => self.feed(Input::OtherRunsTrouble(error.to_string())),
        }
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

    /// Tells others who leads our attempts, and writes it down, if that is due.
    pub(super) fn record_leaders(&mut self, now: Instant) -> Result<(), SessionError> {
        let Some(leaders) = self.parts.leaders.update(&*self.parts.executor, now) else {
            return Ok(());
        };
        // The lease first: once there is a record, whoever finds our run dead finds its
        // processes, too.
        let leases = self.parts.leases.as_mut();
        let guarded = leases.map(|leases| leases.guard(leaders.clone()));
        self.parts.leaders.write(leaders);
        let (Some(guarded), Some(leases)) = (guarded, &mut self.parts.leases) else {
            return Ok(());
        };
        let is_watched = self.others.listening || self.others.guarded;
        if !std::mem::replace(&mut self.others.guarded, true) && !is_watched {
            watch(&self.epoll, leases, LEASES)?;
        }
        if let Err(error) = guarded {
            self.feed(Input::OtherRunsTrouble(error.to_string()));
        }
        // What others gave up meanwhile was seen with it.
        if self.others.listening {
            self.hear_other_runs();
        }
        Ok(())
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
        if self.others.listening {
            // What happened meanwhile was heard there.
            self.hear_other_runs();
        }
    }
}

/// What other runs hold, if that has changed since it was seen last, or is wanted `again`.
fn look(
    guard: &mut LeasesGuard<'_>,
    seen: &mut OtherRunsWatch,
    attributor: &mut Attributor,
    again: bool,
) -> Option<Input> {
    guard.set_seen();
    let before = std::mem::replace(&mut seen.revision, guard.revision());
    let again = again || seen.users.take_news();
    if before == guard.revision() && !again {
        return None;
    }
    attributor.other_runs = guard.others().flat_map(Lease::processes).collect();
    let user = |lease: &Lease| lease.user(|uid| seen.users.get(uid));
    let other = |lease: &Lease| OtherRun {
        pid: lease.pid,
        name: lease.describe(&seen.home, &user(lease)),
        is_dead: lease.left.is_some(),
        devices: lease.held.clone(),
        claim: lease.claim.clone(),
    };
    Some(Input::OtherRuns(guard.others().map(other).collect()))
}
