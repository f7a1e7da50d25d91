//! Staying with a run on the cluster until it is over, and showing it as if it were here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Instant;

use packhorse_engine::StopSignal;
use packhorse_model::{Event, EventKind, Exit, Phase, RunSummary, Timestamp};
use packhorse_session::{Observer, ProgramSignal, QueueView, Signals};
use packhorse_store::{Home, RunLock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::SlurmError;
use crate::commands::scancel;
use crate::folder::SubmittedJob;
use crate::followed_run::{FollowedRun, SETTLING};
use crate::lost_elements::LostTrouble;
use crate::outcome_reader::Looking;
use crate::queue::{QueuedElement, pending_reasons, reason_in_words};
use crate::queue_watch::QueueWatch;
use crate::sbatch::adopt_unrecorded;
use crate::stop_file::StopOrder;

/// So often it is tried to submit lost elements while something is in the way.
const TRIES: u32 = 10;

/// So many jobs that are held are named.
const NAMED: usize = 5;

/// How following a run came to its end.
#[derive(Debug)]
pub enum Followed {
    Over(RunSummary),
    /// We were asked to leave; the run goes on without us.
    Left(Exit),
}

/// Whether a run was just submitted, or has been on the cluster for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// Just now.
    Submitted,
    /// Before, by whomever.
    Later,
}

/// Follows a run until it is over. The first Ctrl-C takes what is pending out of the queue
/// and lets what runs come to its end, the second cancels everything, the third leaves. Any
/// other signal leaves at once: the run goes on. Everything is cancelled, too, when `owner` is
/// readable: the handle of a process that the run is to end with.
pub fn follow(
    home: &Home,
    lock: RunLock,
    attached: Attached,
    owner: Option<OwnedFd>,
    observer: &mut dyn Observer,
) -> Result<Followed, SlurmError> {
    // Before other threads start, which inherit the signal mask.
    let signals = Signals::block()?;
    let run = FollowedRun::open(home, lock)?;
    adopt_unrecorded(&run.folder)?;
    let mut follower = Follower {
        signals,
        queue: QueueWatch::start()?,
        run,
        owner,
        observer,
        last_queue: Vec::new(),
        answers: 0,
        idle: None,
        stopping: Phase::Running,
        over: None,
        told_trouble: BTreeMap::new(),
        unheard: Vec::new(),
        in_vain: 0,
    };
    follower.begin(attached);
    let end = follower.turn_until_over();
    let Follower { run, observer, .. } = follower;
    let end = match end {
        Ok(end) => end,
        Err(error) => {
            observer.suspended();
            run.leave()?;
            return Err(error);
        }
    };
    match end {
        End::Left(signal) => {
            observer.suspended();
            run.leave()?;
            Ok(Followed::Left(Exit::Signal(signal)))
        }
        End::Over(signal) => {
            let (summary, events, _lock) = run.close(signal)?;
            for event in &events {
                observer.event(event);
            }
            observer.event(&Event {
                time: Timestamp::now(),
                kind: EventKind::RunEnded(summary.clone()),
            });
            observer.show(Instant::now(), &WaitingJobs(&[]));
            Ok(Followed::Over(summary))
        }
    }
}

/// With what something may be wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FollowTrouble {
    /// Reading files.
    Files,
    /// Asking for the queue.
    Queue,
    /// Looking for jobs that nobody has written down.
    Unrecorded,
    /// Submitting lost elements.
    Lost,
    /// Telling jobs to end.
    Cancelling,
}

/// Why following ends, and the signal that has brought it about.
#[derive(Clone, Copy)]
enum End {
    Over(Option<u8>),
    Left(u8),
}

struct Follower<'o> {
    signals: Signals,
    queue: QueueWatch,
    run: FollowedRun,
    owner: Option<OwnedFd>,
    observer: &'o mut dyn Observer,
    last_queue: Vec<QueuedElement>,
    /// How often Slurm has answered.
    answers: u64,
    /// Since when nothing of it is in the queue, and how many answers there were then.
    idle: Option<(Instant, u64)>,
    stopping: Phase,
    over: Option<End>,
    /// What is wrong, and was said.
    told_trouble: BTreeMap<FollowTrouble, String>,
    /// What jobs are still to be told by scancel.
    unheard: Vec<&'static [&'static str]>,
    /// How often in a row something was in the way of submitting lost elements.
    in_vain: u32,
}

impl Follower<'_> {
    fn begin(&mut self, attached: Attached) {
        let run = self.run.id();
        let (_, _, left) = self.run.progress.counts();
        let jobs = self.run.jobs().iter().map(|job| job.job).collect();
        self.tell(EventKind::RunStarted {
            run,
            gpus: Vec::new(),
            slots: None,
            resumed: attached == Attached::Later,
            jobs,
            strangers: Vec::new(),
        });
        self.tell(EventKind::Known { run, tasks: left, complete: true });
        let events = std::mem::take(&mut self.run.progress.events);
        self.show(&events);
    }

    fn tell(&mut self, kind: EventKind) {
        let time = Timestamp::now();
        self.observer.event(&Event { time, kind });
    }

    fn warn(&mut self, message: String) {
        self.tell(EventKind::Warning { task: None, message });
    }

    fn show(&mut self, events: &[Event]) {
        for event in events {
            self.observer.event(event);
        }
    }

    fn turn_until_over(&mut self) -> Result<End, SlurmError> {
        loop {
            let now = Instant::now();
            let looked = self.run.look(now, Looking::Due);
            let events = self.or_trouble(looked)?.unwrap_or_default();
            if !events.is_empty() {
                self.show(&events);
                self.idle = None;
            }
            // Its job ends now, and another may begin.
            if self.run.take_ended() {
                self.queue.hurry(now);
            }
            let signal = (self.stopping > Phase::Running).then_some(2);
            if self.run.progress.is_done() || self.has_settled(now)? {
                return Ok(End::Over(signal));
            }
            let run = &mut self.run;
            self.queue.ask(now, || run.jobs());
            let again = self.observer.show(now, &WaitingJobs(&self.last_queue));
            self.wait(now, again);
            self.read_signals();
            if let Some(end) = self.over {
                return Ok(end);
            }
            if let Some(answer) = self.queue.answer(Instant::now()) {
                self.answered(answer)?;
            }
        }
    }

    /// Whether nothing of the run is in the queue any more, and everything was read that it
    /// has written.
    fn has_settled(&mut self, now: Instant) -> Result<bool, SlurmError> {
        let Some((since, answers)) = self.idle else {
            return Ok(false);
        };
        let is_lost = self.stopping == Phase::Running && self.run.has_unjudged();
        let is_open = self.answers == answers || self.run.has_gone() || is_lost;
        if is_open || now < since + SETTLING {
            return Ok(false);
        }
        let looked = self.run.look(now, Looking::Everything);
        let Some(events) = self.or_trouble(looked)? else {
            // It is tried again when Slurm has answered, not all the time.
            self.idle = None;
            return Ok(false);
        };
        if !events.is_empty() {
            self.show(&events);
            self.idle = None;
            return Ok(false);
        }
        let adopted = self.run.adopt();
        // Slurm has to answer once more if it did not now.
        if self.or_trouble(adopted)? != Some(false) {
            self.idle = None;
            self.go_on_if_adopted();
            return Ok(false);
        }
        Ok(true)
    }

    /// Goes on following if jobs were found that nobody had written down.
    fn go_on_if_adopted(&mut self) {
        let adopted = self.run.take_adopted();
        if adopted.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.run.progress.events);
        self.show(&events);
        self.idle = None;
        self.queue.hurry(Instant::now());
        // What the others were told, they were not.
        self.signal(orders(self.stopping), &adopted);
    }

    /// Submits again what was lost through no fault of its own.
    fn submit_lost(&mut self) {
        if self.stopping > Phase::Running || !self.run.has_unjudged() {
            return;
        }
        let jobs = |count: usize, one: &str, many: &str| match count {
            1 => one.to_owned(),
            count => format!("{count} jobs {many}"),
        };
        match self.run.submit_lost() {
            Ok(lost) => {
                if lost.submitted > 0 {
                    self.idle = None;
                    self.queue.hurry(Instant::now());
                    let one = "a job that ended with tasks left was";
                    let jobs = jobs(lost.submitted, one, "that ended with tasks left were");
                    self.warn(format!("{jobs} submitted again"));
                }
                if lost.given_up > 0 {
                    let one = "a job that was cut off again and again has";
                    let many = "that were cut off again and again have";
                    let jobs = jobs(lost.given_up, one, many);
                    let run = self.run.id();
                    self.warn(format!(
                        "{jobs} tasks left\nhint: `packhorse slurm resume {run}` submits them"
                    ));
                }
                if let Some(error) = lost.trouble {
                    return self.not_submitted_now(&error);
                }
            }
            Err(LostTrouble::NotNow(error)) => return self.not_submitted_now(&error),
            Err(LostTrouble::Left(error)) => self.tell_left(&error),
        }
        self.in_vain = 0;
        self.told_trouble.remove(&FollowTrouble::Lost);
    }

    /// Something is in the way of submitting lost elements. They are looked at again with the
    /// next answer, but not for ever.
    fn not_submitted_now(&mut self, error: &SlurmError) {
        if self.in_vain < TRIES {
            self.in_vain += 1;
            self.trouble(FollowTrouble::Lost, error.to_string());
            return;
        }
        self.run.leave_lost();
        self.tell_left(error);
        self.in_vain = 0;
        self.told_trouble.remove(&FollowTrouble::Lost);
    }

    fn tell_left(&mut self, error: &SlurmError) {
        let run = self.run.id();
        self.warn(format!(
            "jobs that ended with tasks left could not be submitted again: {error}\n\
             hint: `packhorse slurm resume {run}` does, when the run is over"
        ));
    }

    fn answered(&mut self, answer: crate::queue_watch::QueueAnswer) -> Result<(), SlurmError> {
        self.answers += 1;
        let queue = match answer {
            Ok(queue) => queue,
            // It is asked again.
            Err(error) => {
                self.idle = None;
                self.trouble(FollowTrouble::Queue, error.to_string());
                return Ok(());
            }
        };
        self.told_trouble.remove(&FollowTrouble::Queue);
        let noted = self.run.note_queue(&queue);
        let events = self.or_trouble(noted)?.unwrap_or_default();
        self.show(&events);
        self.submit_lost();
        // Why a job waits may change all the time.
        let states = |queue: &[QueuedElement]| {
            let rows = queue.iter();
            rows.map(|row| (row.job, row.index, row.state.clone())).collect::<BTreeSet<_>>()
        };
        if states(&queue) != states(&self.last_queue) || self.run.has_gone() {
            self.queue.hurry(Instant::now());
        }
        self.last_queue = queue;
        if !self.run.is_idle() {
            self.idle = None;
        } else if self.idle.is_none() {
            self.idle = Some((Instant::now(), self.answers));
        }
        self.go_on_if_adopted();
        // What Slurm has put back meanwhile is not to start again.
        let is_pending = !pending_reasons(&self.last_queue).is_empty();
        let is_told = self.unheard.contains(&PENDING_ONLY);
        if self.stopping > Phase::Running && is_pending && !is_told {
            self.unheard.push(PENDING_ONLY);
        }
        self.cancel();
        Ok(())
    }

    /// Says what is wrong, once.
    fn trouble(&mut self, with: FollowTrouble, message: String) {
        if self.told_trouble.get(&with) != Some(&message) {
            self.warn(format!("{message}; it is tried again"));
            self.told_trouble.insert(with, message);
        }
    }

    /// What was found, unless a file cannot be read at the moment: network file systems have
    /// such moments.
    fn or_trouble<T>(&mut self, found: Result<T, SlurmError>) -> Result<Option<T>, SlurmError> {
        match found {
            Ok(found) => {
                if !self.run.files.has_unreadable() {
                    self.told_trouble.remove(&FollowTrouble::Files);
                }
                Ok(Some(found))
            }
            Err(SlurmError::Io(error)) if error.kind() != ErrorKind::NotFound => {
                self.trouble(FollowTrouble::Files, error.to_string());
                Ok(None)
            }
            // Slurm has such moments, too.
            Err(error @ SlurmError::Refused { .. }) => {
                self.trouble(FollowTrouble::Unrecorded, error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn wait(&mut self, now: Instant, again: Option<Instant>) {
        let settled = self.idle.map(|(since, _)| since + SETTLING);
        let settled = settled.filter(|settled| *settled > now);
        let due = [Some(self.run.due()), self.queue.due(), again, settled];
        let due = due.into_iter().flatten().min().unwrap_or(now);
        let timeout = due.saturating_duration_since(now);
        let mut sources = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.queue, PollFlags::IN),
        ];
        let owner = self.owner.iter();
        sources.extend(owner.map(|owner| PollFd::new(owner, PollFlags::IN)));
        // Whatever happened is met when it is looked at.
        let _ = poll(&mut sources, Timespec::try_from(timeout).ok().as_ref());
        let owner = sources.get(2);
        if owner.is_some_and(|owner| !owner.revents().is_empty()) {
            self.owner = None;
            self.stop_at(Phase::Terminating);
        }
    }

    fn read_signals(&mut self) {
        for signal in self.signals.read() {
            match signal {
                ProgramSignal::Stop(StopSignal::Interrupt) => self.stop(),
                ProgramSignal::Stop(signal) => {
                    self.over = Some(End::Left(match signal {
                        StopSignal::Hangup => 1,
                        StopSignal::Quit => 3,
                        _ => 15,
                    }));
                }
                ProgramSignal::Resize => self.observer.resized(),
                ProgramSignal::Suspend => {
                    self.observer.suspended();
                    Signals::suspend();
                }
                ProgramSignal::Continue => self.observer.continued(),
                ProgramSignal::Child => {}
            }
        }
    }

    /// Ctrl-C.
    fn stop(&mut self) {
        self.stop_at(match self.stopping {
            Phase::Running => Phase::Draining,
            Phase::Draining => Phase::Terminating,
            Phase::Terminating | Phase::Killing => Phase::Killing,
        });
    }

    fn stop_at(&mut self, phase: Phase) {
        self.stopping = phase;
        self.unheard = orders(phase);
        match phase {
            Phase::Running => {}
            Phase::Draining => self.order(StopOrder::Draining),
            Phase::Terminating => {
                self.order(StopOrder::Cancelled);
                // If nobody tells, it is seen before the run is taken for over.
                let _ = adopt_unrecorded(&self.run.folder);
            }
            Phase::Killing => self.over = Some(End::Left(2)),
        }
        if self.stopping < Phase::Killing {
            self.cancel();
            self.tell(EventKind::Stopping {
                run: self.run.id(),
                phase: self.stopping,
                running: self.run.progress.running().len() as u64,
            });
        }
        self.queue.hurry(Instant::now());
    }

    /// Has nothing more start.
    fn order(&mut self, order: StopOrder) {
        if let Err(error) = order.write(&self.run.folder) {
            self.warn(error.to_string());
        }
    }

    /// Tells jobs what they are still to be told.
    fn cancel(&mut self) {
        if self.unheard.is_empty() {
            return;
        }
        let (orders, jobs) = (std::mem::take(&mut self.unheard), self.run.jobs());
        self.signal(orders, &jobs);
        if self.unheard.is_empty() {
            self.told_trouble.remove(&FollowTrouble::Cancelling);
        }
    }

    /// Tells jobs to end. What fails is tried again with the next answer of Slurm.
    fn signal(&mut self, orders: Vec<&'static [&'static str]>, jobs: &[SubmittedJob]) {
        for options in orders {
            match scancel(options, jobs) {
                Ok(()) => {}
                // Some may have heard it. Told twice, they would end their tasks.
                Err(error) if options == INTERRUPT => self.warn(error.to_string()),
                Err(error) => {
                    self.unheard.push(options);
                    self.trouble(FollowTrouble::Cancelling, error.to_string());
                    self.queue.hurry(Instant::now());
                }
            }
        }
    }
}

/// Takes jobs out of the queue that have not begun.
const PENDING_ONLY: &[&str] = &["--state=PENDING"];
/// As Ctrl-C would: what runs may come to its end.
const INTERRUPT: &[&str] = &["--batch", "--signal=INT"];
/// Ends everything.
const ALL: &[&str] = &[];

/// What jobs are told by scancel when the run is stopped.
fn orders(phase: Phase) -> Vec<&'static [&'static str]> {
    match phase {
        Phase::Running | Phase::Killing => Vec::new(),
        Phase::Draining => vec![PENDING_ONLY, INTERRUPT],
        Phase::Terminating => vec![ALL],
    }
}

/// What Slurm says of the jobs that wait.
struct WaitingJobs<'a>(&'a [QueuedElement]);

impl QueueView for WaitingJobs<'_> {
    fn why_first_waits(&self) -> Option<String> {
        waiting_in_words(self.0)
    }
}

/// Why jobs wait in Slurm's queue, in words.
pub(crate) fn waiting_in_words(queue: &[QueuedElement]) -> Option<String> {
    let reasons = pending_reasons(queue).into_iter();
    let reasons = reasons.map(|(reason, rows)| {
        let jobs = match rows.len() {
            1 => "1 job waits".to_owned(),
            count => format!("{count} jobs wait"),
        };
        let words = reason_in_words(&reason);
        let names = rows.iter().take(NAMED).map(|row| row.name());
        let names = names.collect::<Vec<_>>().join(" ");
        let more = if rows.len() > NAMED { " …" } else { "" };
        let words = words.map(|words| words.replace("JOB", &format!("{names}{more}")));
        let words = words.map_or_else(String::new, |words| format!(": {words}"));
        format!("{jobs} in Slurm's queue ({reason}){words}")
    });
    let reasons: Vec<String> = reasons.collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::read_queue;

    #[test]
    fn it_is_told_why_jobs_wait_and_how_held_ones_are_let_go() {
        let told = |text: &str| waiting_in_words(&read_queue(text)).unwrap_or_default();
        assert_eq!(told("2|1|RUNNING|None|n1"), "");
        let words = told("2|1|PENDING|launch failed requeued held|\n2|2|PENDING|Priority|");
        assert!(words.starts_with("1 job waits in Slurm's queue (Priority): others"), "{words}");
        assert!(words.contains("`scontrol release 2_1` lets them go"), "{words}");
        assert!(words.contains("the node could not start them"), "{words}");
        let held: Vec<String> = (0..7).map(|at| format!("2|{at}|PENDING|JobHeldUser|")).collect();
        let words = told(&held.join("\n"));
        assert!(words.contains("`scontrol release 2_0 2_1 2_2 2_3 2_4 …`"), "{words}");
    }
}
