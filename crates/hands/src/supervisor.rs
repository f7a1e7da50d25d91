//! The loop around everything that happens to processes.

use std::collections::BTreeSet;
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

use crate::attempt::{Attempt, Cause};
use crate::family::{self, Family, HOME_MARK, MARK_ATTEMPT, MARK_TASK};
use crate::files::Files;
use crate::log::Log;
use crate::pipes::Pipes;
use crate::signals::{Arrived, Signals};
use crate::spawn::{Attributes, Environment, Stdio, Words};
use crate::words::Programs;
use crate::{Job, Stop, Stream};

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
    /// The terminal has another size.
    Resize,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
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
    signals: Signals,
    family: Family,
    pub(crate) environment: Environment,
    pub(crate) attributes: Attributes,
    pub(crate) programs: Programs,
    pub(crate) words: Words,
    pub(crate) inherit: Stdio,
    pub(crate) dev_null: OwnedFd,
    pub(crate) slots: Vec<Slot>,
    pub(crate) free: BTreeSet<usize>,
    leaders: FxHashMap<Pid, usize>,
    by_task: FxHashMap<TaskId, usize>,
    /// Slots whose leader has ended and whose tree is not yet empty.
    ending: Vec<usize>,
    /// Ends that need no waiting, such as commands that do not exist.
    ready: Vec<Happening>,
    alarm: Option<Instant>,
    abandoned: bool,
    /// Watched descriptors that epoll does not take: files are always readable.
    always: Vec<u32>,
    pub(crate) affinity: CpuSet,
    pub(crate) files: Files,
    buffer: Vec<u8>,
    children: Vec<Pid>,
}

#[derive(Default)]
pub(crate) struct Slot {
    attempt: Option<Attempt>,
    pub(crate) pipes: Option<Pipes>,
}

/// How long stragglers have between SIGTERM and SIGKILL.
const STRAGGLER_GRACE: Duration = Duration::from_secs(2);
/// How much is read from one attempt before the others get their turn.
const TURN: usize = 4;
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
        Ok(Self {
            attributes: Attributes::new(signals.original())?,
            inherit: Stdio::new(&[(dev_null.as_fd(), 0)])?,
            family: Family::new()?,
            affinity: rustix::thread::sched_getaffinity(None)?,
            files: Files::default(),
            epoll,
            events: Vec::with_capacity(64),
            signals,
            environment,
            programs: Programs::from_env(),
            words: Words::default(),
            dev_null,
            slots: Vec::new(),
            free: BTreeSet::new(),
            leaders: FxHashMap::default(),
            by_task: FxHashMap::default(),
            ending: Vec::new(),
            ready: Vec::new(),
            alarm: None,
            abandoned: false,
            always: Vec::new(),
            buffer: vec![0; BUFFER],
            children: Vec::new(),
            settings,
        })
    }

    /// Whether no attempt is alive, and all ends have been told.
    pub fn is_idle(&self) -> bool {
        self.by_task.is_empty() && self.ready.is_empty()
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

    /// Starts an attempt; whether it runs now. Whatever goes wrong is told as its
    /// end.
    pub fn start(&mut self, job: Job<'_>) -> bool {
        let started = Instant::now();
        match self.try_start(job) {
            Ok((slot, leader)) => {
                self.leaders.insert(leader, slot);
                self.by_task.insert(job.task, slot);
                self.slots[slot].attempt = Some(Attempt {
                    task: job.task,
                    number: job.attempt,
                    leader,
                    log: Log::new(job.task, job.attempt),
                    started,
                    deadline: job.time_limit.map(|limit| started + limit),
                    cause: None,
                    stopped: None,
                    status: None,
                    stragglers: 0,
                    given_up: false,
                });
                true
            }
            Err(message) => {
                self.ready.push(Happening::Ended(Ended {
                    task: job.task,
                    attempt: job.attempt,
                    outcome: Outcome::NotStarted,
                    message: Some(message),
                    took: Duration::ZERO,
                }));
                false
            }
        }
    }

    /// Ends the running attempt of `task`, if there is one.
    pub fn stop(&mut self, task: TaskId, how: Stop) {
        let now = Instant::now();
        let attempt = self
            .by_task
            .get(&task)
            .and_then(|&slot| self.slots[slot].attempt.as_mut());
        if let Some(attempt) = attempt {
            attempt.stop(how, Cause::Asked, self.settings.grace, now);
        }
    }

    /// Ends all running attempts.
    pub fn stop_all(&mut self, how: Stop) {
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
    /// that cleared their environment and left their group.
    pub fn finish(&mut self) {
        // Waiting for what cannot be killed would take for ever.
        while !self.abandoned {
            self.family.children(&mut self.children);
            if self.children.is_empty() {
                return;
            }
            for &pid in &self.children {
                family::signal_straggler(pid, UnixSignal::KILL);
            }
            // Blocks until one of them is gone, which is at once.
            if rustix::process::wait(WaitOptions::empty()).is_err() {
                return;
            }
        }
    }

    fn timeout(&self) -> Option<rustix::event::Timespec> {
        if !self.ready.is_empty() || !self.always.is_empty() {
            return Some(rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            });
        }
        let deadlines = self.by_task.values().filter_map(|&slot| {
            self.slots[slot]
                .attempt
                .as_ref()
                .and_then(|attempt| attempt.deadline)
        });
        let next = deadlines.chain(self.alarm).min()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(rustix::event::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
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
                attempt.given_up = attempt.stopped == Some(Stop::Kill);
                attempt.stopped = Some(Stop::Kill);
                stragglers = true;
            } else if attempt.stopped.is_none() {
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
        let Slot { attempt, pipes } = &mut self.slots[slot];
        let (Some(attempt), Some(pipes)) = (attempt, pipes) else {
            return;
        };
        for _ in 0..turns {
            let Some(bytes) = pipes.read(stream, &mut self.buffer) else {
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
                self.leader_died(slot, status);
                leaders_died = true;
            } else {
                orphan_died = true;
            }
        }
        if leaders_died || (orphan_died && !self.ending.is_empty()) {
            self.settle_ending(happenings);
        }
    }

    fn leader_died(&mut self, slot: usize, status: WaitStatus) {
        if let Some(attempt) = self.slots[slot].attempt.as_mut() {
            attempt.status = Some(status);
            attempt.deadline = None;
            self.ending.push(slot);
        }
    }

    /// Looks at every attempt whose leader has ended: is its tree empty?
    fn settle_ending(&mut self, happenings: &mut Vec<Happening>) {
        self.family.children(&mut self.children);
        self.children.retain(|pid| !self.leaders.contains_key(pid));
        let orphans = std::mem::take(&mut self.children);
        let mut ending = std::mem::take(&mut self.ending);
        ending.retain(|&slot| !self.settle(slot, &orphans, happenings));
        self.ending = ending;
        self.children = orphans;
    }

    /// Finishes the attempt if nothing of it is left; else ends what is.
    fn settle(&mut self, slot: usize, orphans: &[Pid], happenings: &mut Vec<Happening>) -> bool {
        let Some(attempt) = self.slots[slot].attempt.as_mut() else {
            return true;
        };
        let left = attempt.left_behind(orphans);
        if !attempt.given_up && (!left.is_empty() || attempt.group_exists()) {
            attempt.stragglers = attempt.stragglers.max(left.len()).max(1);
            let kill = attempt.stopped == Some(Stop::Kill);
            let signal = if kill {
                UnixSignal::KILL
            } else {
                UnixSignal::TERM
            };
            if kill || attempt.deadline.is_none() {
                attempt.signal(signal);
                for &pid in &left {
                    family::signal_straggler(pid, signal);
                }
                let end = Instant::now() + STRAGGLER_GRACE;
                attempt.deadline.get_or_insert(end);
            }
            return false;
        }
        self.finish_attempt(slot, happenings);
        true
    }

    fn finish_attempt(&mut self, slot: usize, happenings: &mut Vec<Happening>) {
        // Nobody writes any more, so what is in the pipes is all there is.
        self.take_output(slot, Stream::Stdout, usize::MAX, happenings);
        self.take_output(slot, Stream::Stderr, usize::MAX, happenings);
        let Some(attempt) = self.slots[slot].attempt.take() else {
            return;
        };
        self.by_task.remove(&attempt.task);
        if attempt.given_up {
            self.slots[slot].pipes = None;
            happenings.push(Happening::Trouble {
                task: attempt.task,
                message: "processes it left behind cannot be ended and still run".to_owned(),
            });
        } else if attempt.stragglers > 0 {
            // Somebody unseen might still hold the writing ends.
            self.slots[slot].pipes = None;
        }
        // One that we ended ourselves had no chance to clean up.
        if attempt.stragglers > 0 && !attempt.given_up && attempt.cause.is_none() {
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
    }
}
