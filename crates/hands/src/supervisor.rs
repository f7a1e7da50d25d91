//! The loop around everything that happens to processes.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use packhorse_model::{Outcome, TaskId};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::process::{Pid, Signal as UnixSignal, WaitOptions, WaitStatus};
use rustix::thread::CpuSet;

use crate::arguments::Environment;
use crate::attempt::{Attempt, Cause};
use crate::deferred::Deferred;
use crate::family::{self, Family, HOME_MARK, MARK_ATTEMPT, MARK_TASK};
use crate::files::Files;
use crate::pipes::Pipes;
use crate::prompt::be_prompt;
use crate::signals::{Arrived, Signals};
use crate::spawn::{Cradle, Stdio};
use crate::words::Programs;
use crate::{Stop, Stream};

/// What is the same for all attempts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where logs go.
    pub log_folder: PathBuf,
    /// What becomes of output.
    pub output: Output,
    /// How long an attempt has between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Variables for all children, on top of our own environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables of our own environment that children must not see.
    pub hidden: Vec<OsString>,
    /// Tells this user's state folder from others', in the mark of processes.
    pub home_mark: String,
}

/// What becomes of an attempt's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is written to the log.
    Log,
    /// It is written to the log, and handed on as [`Happening::Output`].
    LogAndShow,
    /// It goes where ours goes; there is no log.
    Inherit,
}

/// A signal sent to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`, a service manager, the end of a Slurm allocation.
    Terminate,
    /// The terminal is gone.
    Hangup,
    /// Ctrl-\.
    Quit,
    /// The terminal has another size.
    Resize,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// An attempt that could not be started before runs now.
    Started(TaskId),
    /// An attempt is over, and nothing of it is left.
    Ended(Ended),
    /// An attempt wrote something (with [`Output::LogAndShow`]).
    Output {
        /// The task.
        task: TaskId,
        /// Where it wrote.
        stream: Stream,
        /// What, in a piece of any size.
        bytes: Vec<u8>,
    },
    /// We got a signal.
    Signal(Signal),
    /// A watched descriptor can be read.
    Readable(u32),
    /// The time given to [`Hands::wake_at`] has come.
    Alarm,
    /// Something that concerns one attempt went wrong without ending it.
    Trouble {
        /// The task.
        task: TaskId,
        /// What it is, for people.
        message: String,
    },
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The task.
    pub task: TaskId,
    /// Which of its attempts.
    pub attempt: u32,
    /// How it came out.
    pub outcome: Outcome,
    /// Why it could not be started, or what else there is to say.
    pub message: Option<String>,
    /// From start to end.
    pub took: Duration,
}

/// Starts and watches processes.
pub struct Hands {
    pub(crate) settings: Settings,
    pub(crate) epoll: OwnedFd,
    events: Vec<epoll::Event>,
    pub(crate) signals: Signals,
    family: Family,
    /// What all children find in theirs.
    pub(crate) environment: Environment,
    pub(crate) programs: Programs,
    pub(crate) inherit: Stdio,
    pub(crate) dev_null: OwnedFd,
    pub(crate) slots: Vec<Slot>,
    pub(crate) free: BTreeSet<usize>,
    pub(crate) leaders: FxHashMap<Pid, usize>,
    pub(crate) by_task: FxHashMap<TaskId, usize>,
    /// Slots whose leader has ended and whose tree is not yet empty.
    ending: Vec<usize>,
    /// What could not be started yet.
    pub(crate) deferred: VecDeque<Deferred>,
    /// Ends that need no waiting, such as commands that do not exist.
    pub(crate) ready: Vec<Happening>,
    alarm: Option<Instant>,
    abandoned: bool,
    /// Watched descriptors that epoll does not take: files are always readable.
    always: Vec<u32>,
    pub(crate) affinity: CpuSet,
    pub(crate) files: Files,
    buffer: Vec<u8>,
    children: Vec<Pid>,
    /// Is told of an attempt's leader before the first signal that ends it.
    farewell: Option<Farewell>,
    /// Children that were there before us: whoever executed us in their place
    /// had them.
    before: Vec<Pid>,
}

/// Something to do before an attempt is ended.
struct Farewell(Box<dyn FnMut(u32)>);

fn say_farewell(farewell: &mut Option<Farewell>, attempt: &Attempt) {
    if let Some(Farewell(act)) = farewell
        && attempt.stopped.is_none()
        && attempt.status.is_none()
    {
        act(attempt.leader.as_raw_nonzero().get().unsigned_abs());
    }
}

/// What an attempt has while it runs, and leaves to the next one.
///
/// Its first process uses the cradle and the list of descriptors in `pipes` until
/// it executes its program. So they stay as they are while there is an attempt
/// whose leader has not been waited for.
pub(crate) struct Slot {
    pub(crate) attempt: Option<Attempt>,
    pub(crate) pipes: Option<Pipes>,
    pub(crate) cradle: Box<Cradle>,
}

/// How long stragglers have between SIGTERM and SIGKILL.
const STRAGGLER_GRACE: Duration = Duration::from_secs(2);
/// How much is read from one attempt before the others get their turn.
const TURN: usize = 4;
/// How much is read at an attempt's end: a pipe holds no more than this, whatever
/// a task made of it, unless somebody we do not know of still writes.
const LAST_TURNS: usize = 32;
/// How much is read at once: as much as a pipe holds.
const BUFFER: usize = 64 * 1024;

const TOKEN_SIGNALS: u64 = 0;
const TOKEN_WATCHED: u64 = 1 << 32;
pub(crate) const TOKEN_STDOUT: u64 = 2 << 32;
pub(crate) const TOKEN_STDERR: u64 = 3 << 32;

impl Hands {
    /// Takes over the process: its signals, and the orphans among its
    /// descendants. Call it from the main thread and before other threads
    /// start, for they inherit the signal mask.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signals = Signals::block()?;
        be_prompt();
        epoll::add(
            &epoll,
            &signals,
            epoll::EventData::new_u64(TOKEN_SIGNALS),
            epoll::EventFlags::IN,
        )?;
        let dev_null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        // We may run inside an attempt of another run. A variable must not be
        // there twice: some programs take the first, some the last.
        let marks = [MARK_TASK, MARK_ATTEMPT, HOME_MARK];
        let ours = std::env::vars_os().filter(|(name, _)| {
            !settings.hidden.contains(name)
                && !marks.iter().any(|mark| *mark == name)
                && !settings.environment.iter().any(|(other, _)| other == name)
        });
        let mark = (HOME_MARK.into(), settings.home_mark.clone().into());
        let environment = Environment::new(
            ours.chain(settings.environment.iter().cloned())
                .chain([mark]),
        );
        let mut family = Family::new()?;
        let mut before = Vec::new();
        family.children(&mut before);
        Ok(Self {
            before,
            inherit: Stdio::new(&[(dev_null.as_fd(), 0)]),
            family,
            affinity: rustix::thread::sched_getaffinity(None)?,
            files: Files::default(),
            epoll,
            events: Vec::with_capacity(64),
            signals,
            environment,
            programs: Programs::from_env(),
            dev_null,
            slots: Vec::new(),
            free: BTreeSet::new(),
            leaders: FxHashMap::default(),
            by_task: FxHashMap::default(),
            ending: Vec::new(),
            deferred: VecDeque::new(),
            ready: Vec::new(),
            alarm: None,
            abandoned: false,
            always: Vec::new(),
            buffer: vec![0; BUFFER],
            children: Vec::new(),
            farewell: None,
            settings,
        })
    }

    /// Whether no attempt is alive, and all ends have been told.
    pub fn is_idle(&self) -> bool {
        self.by_task.is_empty() && self.deferred.is_empty() && self.ready.is_empty()
    }

    /// How many attempts are alive.
    pub fn running(&self) -> usize {
        self.by_task.len()
    }

    /// Reports [`Happening::Readable`] with `token` whenever `source` can be read.
    pub fn watch(&mut self, source: BorrowedFd<'_>, token: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(TOKEN_WATCHED | u64::from(token));
        match epoll::add(&self.epoll, source, data, epoll::EventFlags::IN) {
            // A regular file, or /dev/null.
            Err(rustix::io::Errno::PERM) => {
                self.always.push(token);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Stops reporting on `source`.
    pub fn unwatch(&mut self, source: BorrowedFd<'_>, token: u32) -> io::Result<()> {
        if let Some(at) = self.always.iter().position(|&other| other == token) {
            self.always.remove(at);
            return Ok(());
        }
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Reports [`Happening::Alarm`] once, at that time. `None` takes it back.
    pub fn wake_at(&mut self, at: Option<Instant>) {
        self.alarm = at;
    }

    /// From now on, calls this before an attempt is sent the first signal that
    /// ends it, with the process id of its leader.
    pub fn before_ending(&mut self, act: Box<dyn FnMut(u32)>) {
        self.farewell = Some(Farewell(act));
    }

    /// Ends the running attempt of `task`, if there is one.
    pub fn stop(&mut self, task: TaskId, how: Stop) {
        self.stop_deferred(Some(task));
        let now = Instant::now();
        let attempt = self
            .by_task
            .get(&task)
            .and_then(|&slot| self.slots[slot].attempt.as_mut());
        if let Some(attempt) = attempt {
            say_farewell(&mut self.farewell, attempt);
            attempt.stop(how, Cause::Asked, self.settings.grace, now);
        }
    }

    /// Ends all running attempts.
    pub fn stop_all(&mut self, how: Stop) {
        self.stop_deferred(None);
        let tasks: Vec<TaskId> = self.by_task.keys().copied().collect();
        for task in tasks {
            self.stop(task, how);
        }
    }

    /// Gives up on attempts that outlive SIGKILL, as a process does that waits
    /// for a dead disk or driver.
    pub fn abandon_all(&mut self) {
        for (task, slot) in std::mem::take(&mut self.by_task) {
            let Some(attempt) = self.slots[slot].attempt.take() else {
                continue;
            };
            self.abandoned = true;
            self.leaders.remove(&attempt.leader);
            self.slots[slot].pipes = None;
            // It may hang on the way to its program: the cradle is its own from now on.
            let fresh = Cradle::new(self.environment.clone(), self.signals.original());
            std::mem::forget(std::mem::replace(&mut self.slots[slot].cradle, fresh));
            self.ready.push(Happening::Ended(Ended {
                task,
                attempt: attempt.number,
                outcome: Outcome::Interrupted,
                message: Some("it did not end when it was killed, and still runs".to_owned()),
                took: attempt.started.elapsed(),
            }));
        }
        self.ending.clear();
    }

    /// The task whose attempt a process belongs to, if it is one of ours.
    pub fn owner_of(&self, pid: u32) -> Option<TaskId> {
        let me = rustix::process::getpid();
        // The last one below us: a leader, or an orphan that we inherited.
        let mut outermost = None;
        let mut descends = false;
        for pid in family::ancestry(pid) {
            let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
            descends = pid == me;
            if descends {
                break;
            }
            if let Some(&slot) = self.leaders.get(&pid) {
                return self.slots[slot].attempt.as_ref().map(|of| of.task);
            }
            outermost = Some(pid);
        }
        let orphan = outermost.filter(|_| descends)?;
        let attempts = self.by_task.values();
        let mut attempts = attempts.filter_map(|&slot| self.slots[slot].attempt.as_ref());
        attempts
            .find(|attempt| family::belongs(orphan, attempt.leader, &attempt.marks()))
            .map(|attempt| attempt.task)
    }

    /// Whether the process that leads a task's attempt is still there, as far as we
    /// know.
    pub fn is_led(&self, task: TaskId) -> bool {
        let slot = self.by_task.get(&task);
        let attempt = slot.and_then(|&slot| self.slots[slot].attempt.as_ref());
        attempt.is_some_and(|attempt| attempt.status.is_none())
    }

    /// A process that descends from us and is no attempt's: it is left alone.
    pub fn spare(&mut self, pid: u32) {
        self.before
            .extend(i32::try_from(pid).ok().and_then(Pid::from_raw));
    }

    /// Waits until something happens, and reports all that has.
    pub fn wait(&mut self, happenings: &mut Vec<Happening>) -> io::Result<()> {
        let timeout = self.timeout();
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        happenings.append(&mut self.ready);
        let mut arrived = Arrived::default();
        for index in 0..self.events.len() {
            let token = self.events[index].data.u64();
            let low = u32::try_from(token & u64::from(u32::MAX)).unwrap_or_default();
            match token & !u64::from(u32::MAX) {
                TOKEN_SIGNALS => self.signals.read(&mut arrived),
                TOKEN_WATCHED => happenings.push(Happening::Readable(low)),
                TOKEN_STDOUT => self.take_output(low as usize, Stream::Stdout, TURN, happenings),
                TOKEN_STDERR => self.take_output(low as usize, Stream::Stderr, TURN, happenings),
                _ => {}
            }
        }
        if arrived.child {
            self.reap(happenings);
        }
        happenings.extend(arrived.signals.into_iter().map(Happening::Signal));
        happenings.extend(self.always.iter().copied().map(Happening::Readable));
        if timeout.is_some() {
            self.act_on_deadlines(happenings);
        }
        Ok(())
    }

    /// Ends what is left of descendants that belong to no attempt: processes
    /// that cleared their environment and left their group. What cannot be ended
    /// is left after a while.
    pub fn finish(&mut self) {
        let end = Instant::now() + STRAGGLER_GRACE;
        let mut arrived = Arrived::default();
        loop {
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
            self.list_orphans();
            let left = end.saturating_duration_since(Instant::now());
            if self.children.is_empty() || left.is_zero() || self.abandoned {
                return;
            }
            for &pid in &self.children {
                family::signal_straggler(pid, UnixSignal::KILL);
            }
            let mut signals = [rustix::event::PollFd::new(
                &self.signals,
                rustix::event::PollFlags::IN,
            )];
            let _ = rustix::event::poll(&mut signals, Some(&timespec(left)));
            self.signals.read(&mut arrived);
        }
    }

    /// Our children that no attempt is led by: those we inherited.
    fn list_orphans(&mut self) {
        self.family.children(&mut self.children);
        let (leaders, before) = (&self.leaders, &self.before);
        self.children
            .retain(|pid| !leaders.contains_key(pid) && !before.contains(pid));
    }

    fn timeout(&self) -> Option<rustix::event::Timespec> {
        if !self.ready.is_empty() || !self.always.is_empty() {
            return Some(timespec(Duration::ZERO));
        }
        let deadlines = self.by_task.values().filter_map(|&slot| {
            self.slots[slot]
                .attempt
                .as_ref()
                .and_then(|attempt| attempt.deadline)
        });
        let next = deadlines.chain(self.alarm).min()?;
        Some(timespec(next.saturating_duration_since(Instant::now())))
    }

    fn act_on_deadlines(&mut self, happenings: &mut Vec<Happening>) {
        let now = Instant::now();
        if self.alarm.is_some_and(|at| at <= now) {
            self.alarm = None;
            happenings.push(Happening::Alarm);
        }
        let mut stragglers = false;
        for &slot in self.by_task.values() {
            let Some(attempt) = self.slots[slot].attempt.as_mut() else {
                continue;
            };
            if attempt.deadline.is_none_or(|at| at > now) {
                continue;
            }
            attempt.deadline = None;
            if attempt.status.is_some() {
                attempt.given_up = attempt.stragglers_killed;
                attempt.stopped = Some(Stop::Kill);
                stragglers = true;
            } else if attempt.stopped.is_none() {
                say_farewell(&mut self.farewell, attempt);
                attempt.stop(Stop::Terminate, Cause::TimeLimit, self.settings.grace, now);
            } else {
                attempt.stop(Stop::Kill, Cause::Asked, self.settings.grace, now);
            }
        }
        if stragglers {
            self.settle_ending(happenings);
        }
    }

    /// Moves output from the pipe to where it goes, at most `turns` buffers.
    fn take_output(
        &mut self,
        slot: usize,
        stream: Stream,
        turns: usize,
        happenings: &mut Vec<Happening>,
    ) {
        let Slot { attempt, pipes, .. } = &mut self.slots[slot];
        let (Some(attempt), Some(reader)) = (attempt, pipes.as_mut()) else {
            // Nobody's output: whoever writes it gets a pipe without an end.
            *pipes = None;
            return;
        };
        for _ in 0..turns {
            let Some(bytes) = reader.read(stream, &mut self.buffer) else {
                return;
            };
            if let Err(error) = attempt.log.write(&self.settings.log_folder, stream, bytes) {
                happenings.push(Happening::Trouble {
                    task: attempt.task,
                    message: format!("the rest of its output is lost: {error}"),
                });
            }
            let full = bytes.len() == BUFFER;
            if self.settings.output == Output::LogAndShow {
                happenings.push(Happening::Output {
                    task: attempt.task,
                    stream,
                    bytes: bytes.to_vec(),
                });
            }
            if !full {
                return;
            }
        }
    }

    /// Collects everybody who has died.
    fn reap(&mut self, happenings: &mut Vec<Happening>) {
        let mut orphan_died = false;
        let mut leaders_died = false;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if let Some(slot) = self.leaders.remove(&pid) {
                self.leader_died(slot, status, happenings);
                leaders_died = true;
            } else {
                orphan_died = true;
            }
        }
        if leaders_died || (orphan_died && !self.ending.is_empty()) {
            self.settle_ending(happenings);
        }
    }

    fn leader_died(&mut self, slot: usize, status: WaitStatus, happenings: &mut Vec<Happening>) {
        let Slot {
            attempt, cradle, ..
        } = &mut self.slots[slot];
        let asked = attempt.as_ref().is_some_and(|it| it.stopped.is_some());
        if cradle.error().is_some() && !asked {
            self.start_again(slot, happenings);
        } else if let Some(attempt) = attempt {
            attempt.status = Some(status);
            attempt.deadline = None;
            self.ending.push(slot);
        }
    }

    /// Looks at every attempt whose leader has ended: is its tree empty?
    fn settle_ending(&mut self, happenings: &mut Vec<Happening>) {
        self.list_orphans();
        let orphans = std::mem::take(&mut self.children);
        let mut ending = std::mem::take(&mut self.ending);
        ending.retain(|&slot| !self.settle(slot, &orphans, happenings));
        self.ending = ending;
        self.children = orphans;
    }

    /// Finishes the attempt if nothing of it is left; else ends what is.
    fn settle(&mut self, slot: usize, orphans: &[Pid], happenings: &mut Vec<Happening>) -> bool {
        let only = self.by_task.len() == 1;
        let Slot { attempt, pipes, .. } = &mut self.slots[slot];
        let Some(attempt) = attempt else {
            return true;
        };
        let left = attempt.left_behind(orphans, pipes.as_ref(), only);
        if attempt.given_up || (left.is_empty() && !attempt.group_exists()) {
            // Somebody whom we cannot place may hold the writing ends.
            let strangers = !orphans.is_empty();
            self.finish_attempt(slot, strangers, happenings);
            return true;
        }
        attempt.stragglers = attempt.stragglers.max(left.len()).max(1);
        let end = Instant::now() + STRAGGLER_GRACE;
        if attempt.stopped == Some(Stop::Kill) {
            attempt.signal(UnixSignal::KILL);
            for &pid in &left {
                family::signal_straggler(pid, UnixSignal::KILL);
            }
            attempt.stragglers_killed = true;
        } else {
            if attempt.deadline.is_none() {
                attempt.signal(UnixSignal::TERM);
            }
            // Ending one may bring up another.
            for &pid in &left {
                if !attempt.asked.contains(&pid) {
                    attempt.asked.push(pid);
                    family::signal_straggler(pid, UnixSignal::TERM);
                }
            }
        }
        attempt.deadline.get_or_insert(end);
        false
    }

    fn finish_attempt(&mut self, slot: usize, strangers: bool, happenings: &mut Vec<Happening>) {
        // Nobody writes any more, so what is in the pipes is all there is.
        self.take_output(slot, Stream::Stdout, LAST_TURNS, happenings);
        self.take_output(slot, Stream::Stderr, LAST_TURNS, happenings);
        let Some(attempt) = self.slots[slot].attempt.take() else {
            return;
        };
        self.by_task.remove(&attempt.task);
        if strangers || attempt.stragglers > 0 {
            self.slots[slot].pipes = None;
        }
        if attempt.given_up {
            happenings.push(Happening::Trouble {
                task: attempt.task,
                message: "processes it left behind cannot be ended and still run".to_owned(),
            });
        } else if attempt.stragglers > 0 && attempt.cause.is_none() {
            // One that we ended ourselves had no chance to clean up.
            happenings.push(Happening::Trouble {
                task: attempt.task,
                message: match attempt.stragglers {
                    1 => "a process it left behind was ended".to_owned(),
                    many => format!("{many} processes it left behind were ended"),
                },
            });
        }
        self.free.insert(slot);
        happenings.push(Happening::Ended(Ended {
            task: attempt.task,
            attempt: attempt.number,
            outcome: attempt.outcome(),
            message: None,
            took: attempt.started.elapsed(),
        }));
        if !self.deferred.is_empty() {
            self.start_deferred(happenings);
        }
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            if slot.attempt.is_some_and(|attempt| attempt.status.is_none()) {
                // Its process may be on the way to its program.
                std::mem::forget((slot.cradle, slot.pipes));
            }
        }
    }
}

fn timespec(time: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
