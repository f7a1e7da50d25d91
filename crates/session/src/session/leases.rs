//! Sharing the devices with other runs on this machine.

use std::time::{Duration, Instant};

use packhorse_engine::{Input, OtherRun};
use packhorse_leases::{Lease, LeaseError, Leases, LeasesGuard};

use super::{LEASES, Session, unwatch, watch};
use crate::SessionError;
use crate::sampling::Attributor;
use crate::user_names::UserNames;

/// How often others are looked at while it cannot be heard what they do.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How other runs are watched.
#[derive(Default)]
pub(super) struct OtherRunsWatch {
    /// Why the loop watches the leases.
    reasons: WatchReasons,
    /// Whether it does.
    watched: bool,
    /// When they are looked at again because nobody would tell that they have changed.
    pub(super) look_again: Option<Instant>,
    /// The id of our state folder.
    home: String,
    /// Whether what they hold has to be looked at, whatever comes next.
    look_due: bool,
    /// What was seen of them last.
    revision: u64,
    /// Whose they are, where they do not say it.
    users: UserNames,
}

/// What there may be to hear of the leases.
#[derive(Default)]
struct WatchReasons {
    /// Others are listened to, or are to be.
    listening: bool,
    /// Somebody may remove our own.
    guarded: bool,
    /// Nothing is started until it is our turn to decide.
    awaits_turn: bool,
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
    /// others could take as well. If somebody else has the lock, it takes nothing, and all
    /// else goes on; it is told when it is our turn.
    pub(super) fn handle(&mut self, input: Input) {
        let now = self.now();
        let mut trouble = Vec::new();
        let wanted = std::mem::take(&mut self.others.look_due) || self.engine.may_take(&input, now);
        let leases = self.parts.leases.as_mut().filter(|_| wanted);
        let locked = leases.map(Leases::try_lock);
        let is_our_turn = match &locked {
            Some(Ok(guard)) => guard.is_some(),
            // It is tried again before long.
            Some(Err(error)) => !matches!(error, LeaseError::Shortage { .. }),
            None => !self.others.reasons.awaits_turn,
        };
        let mut guard = match locked {
            Some(Ok(guard)) => guard,
            Some(Err(error)) => {
                trouble.push(error);
                None
            }
            None => None,
        };
        if let Some(guard) = &mut guard {
            trouble.extend(guard.warning());
            let again = self.engine.is_kept_room_stale(now.monotonic);
            let others = look(guard, &mut self.others, &mut self.parts.attributor, again);
            if let Some(others) = others {
                self.engine.handle(others, now, &mut self.actions);
            }
        }
        let awaited = std::mem::replace(&mut self.others.reasons.awaits_turn, !is_our_turn);
        match (awaited, is_our_turn) {
            (true, true) => self.engine.handle(Input::OurTurn, now, &mut self.actions),
            (false, false) => self.engine.handle(Input::AwaitTurn, now, &mut self.actions),
            _ => {}
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
    pub(super) fn listen_to_other_runs(&mut self, now: Instant) {
        let wanted = self.engine.has_waiting() && self.engine.has_other_runs();
        let Some(leases) = &mut self.parts.leases else {
            return;
        };
        let is_as_wanted = wanted == self.others.reasons.listening;
        self.others.reasons.listening = wanted;
        if !wanted {
            self.others.look_again = None;
            if !is_as_wanted {
                leases.unlisten();
            }
            return;
        }
        let is_early = self.others.look_again.is_some_and(|at| at > now);
        if is_as_wanted && (leases.is_listening() || is_early) {
            return;
        }
        let listening = leases.listen();
        // Whoever cannot be told has to ask.
        self.others.look_again = listening.is_err().then(|| now + LOOK_AGAIN);
        if let Err(error) = listening {
            self.feed(Input::OtherRunsTrouble(error.to_string()));
        }
        // Somebody may have left before.
        self.refresh_other_runs_now();
    }

    /// Watches the leases while there is anything to hear of them.
    pub(super) fn watch_leases(&mut self) -> Result<(), SessionError> {
        let reasons = &self.others.reasons;
        let wanted = reasons.listening || reasons.guarded || reasons.awaits_turn;
        let before = std::mem::replace(&mut self.others.watched, wanted);
        match &self.parts.leases {
            Some(leases) if wanted && !before => watch(&self.epoll, leases, LEASES),
            Some(leases) if before && !wanted => unwatch(&self.epoll, leases),
            _ => Ok(()),
        }
    }

    /// Something has changed: that others took more, or wait for more, need not be known
    /// before we want something.
    pub(super) fn hear_other_runs(&mut self) {
        if self.others.reasons.awaits_turn {
            // It may be our turn.
            return self.refresh_other_runs_now();
        }
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
    pub(super) fn record_leaders(&mut self, now: Instant) {
        let Some(leaders) = self.parts.leaders.update(&*self.parts.executor, now) else {
            return;
        };
        // The lease first: once there is a record, whoever finds our run dead finds its
        // processes, too.
        let leases = self.parts.leases.as_mut();
        let guarded = leases.map(|leases| leases.guard(leaders.clone()));
        self.parts.leaders.write(leaders);
        let Some(guarded) = guarded else {
            return;
        };
        self.others.reasons.guarded = true;
        if let Err(error) = guarded {
            self.feed(Input::OtherRunsTrouble(error.to_string()));
        }
        // What others gave up meanwhile was seen with it.
        if self.others.reasons.listening {
            self.hear_other_runs();
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
        let told = leases.lower(&lease);
        self.engine.lease_told(told.is_ok());
        if let Err(error) = told {
            self.feed(Input::OtherRunsTrouble(error.to_string()));
        }
        if self.others.reasons.listening {
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
