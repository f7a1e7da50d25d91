//! Sharing the devices with other runs on this machine.

use std::time::{Duration, Instant};

use packhorse_engine::{Engine, Input, OtherRun};
use packhorse_leases::{FolderTurn, Lease, Leases, LeasesGuard};

use super::nesting::{Nesting, leave_out};
use super::{LEASES, NAMES, Session, TURN, unwatch, watch};
use crate::SessionError;
use crate::executor::Executor;
use crate::sampling::Attributor;
use crate::user_names::UserNames;

/// How often others are looked at while it cannot be heard what they do.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How other runs are watched.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each of them is about something else")]
pub(super) struct OtherRunsWatch {
    /// Whether they are listened to, or are to be.
    listening: bool,
    /// Whether our own lease is watched: somebody may remove it.
    guarded: bool,
    /// Whether the loop watches the leases, for one of these reasons.
    watched: bool,
    /// When they are looked at again because nobody would tell that they have changed.
    pub(super) look_again: Option<Instant>,
    /// The id of our state folder.
    home: String,
    /// Whether what they hold has to be looked at, whatever comes next.
    look_due: bool,
    /// Nothing is started until it is our turn to decide: when to ask for that again.
    pub(super) awaits_turn: Option<Instant>,
    /// Whether the bell is listened to that tells so.
    hears_bell: bool,
    /// What was seen of them last.
    revision: u64,
    /// Whose they are, where they do not say it.
    users: UserNames,
    /// Whether it is listened to when that is found out.
    hears_names: bool,
    /// Who of them is around us, and who inside our tasks.
    nesting: Nesting,
}

impl OtherRunsWatch {
    pub(super) fn new(home: String, given: Vec<String>) -> Self {
        Self { home, nesting: Nesting::new(given), ..Self::default() }
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
        let mut awaits_turn = self.others.awaits_turn;
        let mut guard = None;
        if let Some(leases) = leases {
            awaits_turn = None;
            match leases.try_lock() {
                Ok(FolderTurn::Ours(ours)) => guard = Some(ours),
                Ok(FolderTurn::Awaited(due)) => awaits_turn = Some(due),
                Err(error) => {
                    if error.hides_others() {
                        awaits_turn = Some(Instant::now() + LOOK_AGAIN);
                    }
                    trouble.push(error);
                }
            }
        }
        if let Some(guard) = &mut guard {
            trouble.extend(guard.warning());
            let again = self.engine.is_kept_room_stale(now.monotonic);
            let others = look(
                guard,
                &mut self.others,
                &mut self.parts.attributor,
                (&self.engine, &*self.parts.executor),
                again,
            );
            if let Some(others) = others {
                self.engine.handle(others, now, &mut self.actions);
            }
        }
        let awaited = std::mem::replace(&mut self.others.awaits_turn, awaits_turn);
        match (awaited, awaits_turn) {
            (Some(_), None) => self.engine.handle(Input::OurTurn, now, &mut self.actions),
            (None, Some(_)) => self.engine.handle(Input::AwaitTurn, now, &mut self.actions),
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
        let is_as_wanted = wanted == self.others.listening;
        self.others.listening = wanted;
        if !wanted {
            self.others.look_again = None;
            if !is_as_wanted {
                leases.unlisten();
            }
            return;
        }
        if is_as_wanted && leases.is_listening() {
            // It may be so though not everything could be seen: that is told.
            self.others.look_again = None;
            return;
        }
        let is_early = self.others.look_again.is_some_and(|at| at > now);
        if is_as_wanted && is_early {
            return;
        }
        let listening = leases.listen();
        // Whoever cannot be told has to ask.
        self.others.look_again = listening.is_err().then(|| now + LOOK_AGAIN);
        if let Err(error) = listening {
            self.dispatch(Input::OtherRunsTrouble(error.to_string()));
        }
        // Somebody may have left before.
        self.refresh_other_runs_now();
    }

    /// Watches the leases while there is anything to hear of them. While it is somebody
    /// else's turn, what they do is none of our business.
    pub(super) fn watch_leases(&mut self) -> Result<(), SessionError> {
        let Some(leases) = &self.parts.leases else {
            return Ok(());
        };
        let others = &mut self.others;
        if !others.hears_names
            && let Some(bell) = others.users.bell()
        {
            watch(&self.epoll, bell, NAMES)?;
            others.hears_names = true;
        }
        let awaits_turn = others.awaits_turn.is_some();
        if awaits_turn && !std::mem::replace(&mut others.hears_bell, true) {
            watch(&self.epoll, leases.bell(), TURN)?;
        }
        let wanted = (others.listening || others.guarded) && !awaits_turn;
        let before = std::mem::replace(&mut others.watched, wanted);
        match (before, wanted) {
            (false, true) => watch(&self.epoll, leases, LEASES),
            (true, false) => unwatch(&self.epoll, leases),
            _ => Ok(()),
        }
    }

    /// The bell has rung: it is our turn, if we still want it.
    pub(super) fn hear_bell(&mut self) {
        if let Some(leases) = &self.parts.leases {
            leases.hear_bell();
        }
        if self.others.awaits_turn.is_some() {
            self.refresh_other_runs_now();
        }
    }

    /// It is known whose some of the other runs are.
    pub(super) fn hear_names(&mut self) {
        self.others.users.hear_bell();
        self.refresh_other_runs_now();
    }

    /// Something has changed: that others took more, or wait for more, need not be known
    /// before we want something.
    pub(super) fn hear_other_runs(&mut self) {
        let leases = self.parts.leases.as_mut();
        match leases.map_or(Ok(false), Leases::has_freed) {
            Ok(false) => {}
            Ok(true) => self.refresh_other_runs_now(),
            Err(error) => self.dispatch(Input::OtherRunsTrouble(error.to_string())),
        }
    }

    pub(super) fn refresh_other_runs_now(&mut self) {
        self.refresh_other_runs();
        self.dispatch_answers();
    }

    /// Has the engine look what other runs hold, next. What is seen is acted on under the
    /// same lock: a moment later it may be somebody else's.
    pub(super) fn refresh_other_runs(&mut self) {
        if self.parts.leases.is_some() {
            self.others.look_due = true;
            self.answers.push_back(Input::Wake);
        }
    }

    /// Gives up what others were told that we hold, and takes no more turns.
    pub(super) fn leave_other_runs(&mut self) {
        let Some(leases) = self.parts.leases.take() else {
            return;
        };
        let others = &mut self.others;
        if std::mem::take(&mut others.watched) {
            let _ = unwatch(&self.epoll, &leases);
        }
        if std::mem::take(&mut others.hears_bell) {
            let _ = unwatch(&self.epoll, leases.bell());
        }
        (others.awaits_turn, others.look_again) = (None, None);
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
        self.others.guarded = true;
        if let Err(error) = guarded {
            self.parts.leaders.not_told(now);
            self.dispatch(Input::OtherRunsTrouble(error.to_string()));
        }
        // What others gave up meanwhile was seen with it.
        if self.others.listening {
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
            self.dispatch(Input::OtherRunsTrouble(error.to_string()));
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
    (engine, executor): (&Engine, &dyn Executor),
    again: bool,
) -> Option<Input> {
    guard.set_seen();
    let before = std::mem::replace(&mut seen.revision, guard.revision());
    let again = again || seen.users.take_news();
    if before == guard.revision() && !again {
        return None;
    }
    attributor.other_runs = guard.others().flat_map(Lease::processes).collect();
    let nesting = &mut seen.nesting;
    nesting.look(guard.others(), |pid| executor.owner_of(pid));
    let lent = nesting.lent(guard.others());
    let user = |lease: &Lease| lease.user(|uid| seen.users.get(uid));
    let other = |lease: &Lease| {
        let mut run = OtherRun {
            pid: lease.pid,
            name: lease.describe(&seen.home, &user(lease)),
            is_dead: lease.left.is_some(),
            devices: lease.held.clone(),
            claim: lease.claim.clone(),
        };
        seen.nesting.leave_out_lent(lease, &lent, &mut run);
        if let Some(task) = seen.nesting.task_around(lease.pid) {
            // What the task has counts already.
            leave_out(&mut run, |device| engine.is_on(task, device));
        }
        run
    };
    Some(Input::OtherRuns(guard.others().map(other).collect()))
}
