//! The supervisor itself: what it holds, and what it is asked.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use packhorse_model::{Outcome, OutputMode, ProcessEvent, StopMode, TaskId};
use packhorse_proc::{MARK_HOME, ProcEntry, ancestry};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::attempt::{EndReason, RunningAttempt};
use crate::deadlines::Deadlines;
use crate::deferred::DeferredJobs;
use crate::descriptor_limit::DescriptorLimit;
use crate::environment::Environment;
use crate::log::{Log, LogScan};
use crate::metric_scanner::MetricScanner;
use crate::pipes::Pipes;
use crate::preload::{Pythons, WaitingStart};
use crate::process_tree::{
    ChildList, MARK_ATTEMPT, MARK_SERVICE, MARK_TASK, marked_attempt, number, to_pid,
};
use crate::programs::Programs;
use crate::settle::WatchedOrphan;
use crate::spawn::{Inheritance, SpawnBuffer, Stdio};
use crate::{SignalMask, signals};

/// What is the same for all attempts.
#[derive(Clone, Debug)]
pub struct SupervisorSettings {
    /// Variables for all children, on top of our own environment. Of several with
    /// the same name the last one counts.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables of our own environment that children must not see.
    pub hidden: Vec<OsString>,
    /// Tells this user's state folder from others', in the mark of processes.
    pub home_mark: String,
    /// The signals that children have blocked. `None`: those that the calling
    /// thread has blocked when the supervisor is made.
    pub signal_mask: Option<SignalMask>,
    /// Which children of the program are the supervisor's.
    pub children: Children,
}

/// Which children of the program that the supervisor did not start itself are
/// orphans of its attempts: it ends and reaps these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// Only those in the process group of an attempt or with its mark in their
    /// environment. For any program. What an attempt left behind without either
    /// is let be.
    Marked,
    /// All that were not there before, are not spared, and have no
    /// `PACKHORSE_SERVICE` in their environment: the program starts no other
    /// children by itself. Nothing that an attempt leaves behind escapes.
    All(EndNotice),
}

impl Children {
    pub(crate) fn are_all_ours(self) -> bool {
        matches!(self, Self::All(_))
    }
}

/// How the end of an attempt's first process is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndNotice {
    /// Each has a handle, by which the supervisor's descriptor becomes readable.
    Handle,
    /// The program also calls [`Supervisor::drain`] whenever it gets SIGCHLD, and leaves
    /// it to that to reap the children of the calling thread. A handle for each process
    /// costs the kernel more than all else about its end.
    Sigchld,
}

/// Starts and watches processes. Its descriptor is readable when there is something
/// to [`drain`](Self::drain).
///
/// The program gets SIGCHLD for attempts as for any child, and needs to do nothing
/// about it. One that ignores SIGCHLD, or waits for children whoever started them,
/// takes exit statuses away. Linux 6.15 and newer tell them all the same; before
/// that, an attempt whose status was taken is a failure with a message that says so.
pub struct Supervisor {
    pub(crate) children: Children,
    pub(crate) home_mark: String,
    pub(crate) epoll: OwnedFd,
    pub(crate) deadlines: Deadlines,
    pub(crate) child_list: ChildList,
    pub(crate) inheritance: Inheritance,
    pub(crate) programs: Programs,
    pub(crate) inherit: Stdio,
    pub(crate) dev_null: OwnedFd,
    pub(crate) slots: Vec<Slot>,
    pub(crate) free: BTreeSet<usize>,
    /// By the number of the leader, which is also that of its process group, until
    /// the attempt is over.
    pub(crate) by_leader: FxHashMap<Pid, usize>,
    pub(crate) by_task: FxHashMap<TaskId, usize>,
    /// Slots whose leader has ended and whose tree is not yet empty.
    pub(crate) ending: Vec<usize>,
    /// They have to be looked at: somebody has been reaped meanwhile.
    pub(crate) unsettled: bool,
    /// Orphans that are watched until they end.
    pub(crate) orphans: FxHashMap<Pid, WatchedOrphan>,
    /// What could not be started yet.
    pub(crate) deferred: DeferredJobs,
    /// Those that attempts are forked from.
    pub(crate) pythons: Pythons,
    /// Events that need no waiting, such as ends of commands that do not exist.
    pub(crate) ready: Vec<ProcessEvent>,
    /// The first log of an earlier run that was renamed, which alone is told.
    pub(crate) first_backup: Option<PathBuf>,
    /// There was more than one call of `drain` takes.
    pub(crate) more: bool,
    pub(crate) abandoned: bool,
    pub(crate) descriptor_limit: DescriptorLimit,
    /// What is read goes here, once there is somebody to read from.
    pub(crate) buffer: Vec<u8>,
    pub(crate) listed: Vec<Pid>,
    /// Children that are nobody's orphans.
    pub(crate) spared: Vec<Pid>,
    /// The session of this process, if it is the first one of its namespace: orphans of others
    /// are given to it, too.
    pub(crate) init_session: Option<u32>,
    /// Those of others: they are reaped when they end, and else left alone.
    pub(crate) of_others: FxHashSet<Pid>,
    /// Children that were found to be no attempt's (with [`Children::Marked`]), and
    /// how many there have been.
    pub(crate) unknown: FxHashSet<Pid>,
    pub(crate) unknown_found: u64,
}

/// What an attempt has while it runs, and leaves to the next one.
///
/// Its first process uses the buffer until it executes its program. So that stays
/// as it is while there is an attempt whose leader has not been waited for.
pub(crate) struct Slot {
    pub(crate) attempt: Option<RunningAttempt>,
    /// An attempt that is not there yet: it has been asked for.
    pub(crate) waiting: Option<WaitingStart>,
    pub(crate) pipes: Option<Pipes>,
    /// What becomes of the attempt's output: whether it comes through the pipes.
    pub(crate) output: OutputMode,
    pub(crate) log: Log,
    /// The metrics in the output.
    pub(crate) metrics: MetricScanner,
    /// How far they have been looked for in a log that the attempt wrote itself.
    pub(crate) log_scan: LogScan,
    pub(crate) buffer: Box<SpawnBuffer>,
}

impl Slot {
    /// What a process has open that writes to its pipes or its log.
    pub(crate) fn output_names(&self) -> impl Iterator<Item = PathBuf> {
        let pipes = self.pipes.iter().flat_map(Pipes::names);
        pipes.chain(self.log.link_name())
    }
}

/// How much is read at once: as much as a pipe holds.
pub(crate) const BUFFER: usize = 64 * 1024;

pub(crate) const TOKEN_TIMER: u64 = 0;
pub(crate) const TOKEN_LEADER: u64 = 1 << 32;
pub(crate) const TOKEN_STDOUT: u64 = 2 << 32;
pub(crate) const TOKEN_STDERR: u64 = 3 << 32;
pub(crate) const TOKEN_ORPHAN: u64 = 4 << 32;
pub(crate) const TOKEN_PYTHON: u64 = 5 << 32;
pub(crate) const TOKEN_PYTHON_END: u64 = 6 << 32;

impl Supervisor {
    /// Makes this process the one that orphans among its descendants are given to.
    pub fn new(settings: SupervisorSettings) -> io::Result<Self> {
        let me = rustix::process::getpid();
        if let Err(rustix::io::Errno::NOSYS) = pidfd_open(me, PidfdFlags::empty()) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel is too old: processes can be watched from Linux 5.4 on",
            ));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let deadlines = Deadlines::new()?;
        // On an edge: setting the timer anew is all that takes its readiness back.
        epoll::add(
            &epoll,
            &deadlines,
            epoll::EventData::new_u64(TOKEN_TIMER),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        let dev_null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        let mut child_list = ChildList::new()?;
        let mut spared = Vec::new();
        child_list.read(&mut spared);
        let own_path = settings.environment.iter().rfind(|(name, _)| name == "PATH");
        let path = own_path.map(|(_, path)| path.clone());
        Ok(Self {
            inheritance: Inheritance {
                environment: shared_environment(&settings),
                mask: settings.signal_mask.unwrap_or_else(SignalMask::of_this_thread),
                reset: signals::to_reset().into(),
            },
            programs: Programs::new(path.or_else(|| std::env::var_os("PATH"))),
            inherit: [Some(dev_null.as_raw_fd()), None, None],
            dev_null,
            children: settings.children,
            home_mark: settings.home_mark,
            epoll,
            deadlines,
            child_list,
            slots: Vec::new(),
            free: BTreeSet::new(),
            by_leader: FxHashMap::default(),
            by_task: FxHashMap::default(),
            ending: Vec::new(),
            unsettled: false,
            orphans: FxHashMap::default(),
            deferred: DeferredJobs::default(),
            pythons: Pythons::default(),
            ready: Vec::new(),
            first_backup: None,
            more: false,
            abandoned: false,
            descriptor_limit: DescriptorLimit::raised(),
            buffer: Vec::new(),
            listed: Vec::new(),
            spared,
            init_session: (me.as_raw_nonzero().get() == 1)
                .then(|| ProcEntry::of(1).stat().map_or(0, |stat| stat.session)),
            of_others: FxHashSet::default(),
            unknown: FxHashSet::default(),
            unknown_found: 0,
        })
    }

    /// Whether no attempt is alive, and all ends have been told.
    pub fn is_idle(&self) -> bool {
        self.by_task.is_empty() && self.deferred.jobs.is_empty() && self.ready.is_empty()
    }

    /// How many attempts are alive.
    pub fn running(&self) -> usize {
        self.by_task.len()
    }

    /// Ends the running attempt of `task`, if there is one.
    pub fn stop(&mut self, task: TaskId, how: StopMode) {
        self.stop_deferred(task);
        self.stop_waiting(task);
        if let Some(&slot) = self.by_task.get(&task) {
            self.request_end(slot, how, EndReason::Asked, Instant::now());
        }
        self.set_timer();
    }

    /// Permits the end that [`ProcessEvent::Ending`] told of.
    pub fn proceed(&mut self, task: TaskId) {
        if let Some(&slot) = self.by_task.get(&task) {
            let now = Instant::now();
            self.with_attempt(slot, |attempt, buffer| attempt.proceed(buffer, now));
        }
        self.set_timer();
    }

    /// Gives up on an attempt that outlives SIGKILL, as a process does that waits
    /// for a dead disk or driver.
    pub fn abandon(&mut self, task: TaskId) {
        self.stop_waiting(task);
        let Some(&slot) = self.by_task.get(&task) else {
            return;
        };
        let Some(attempt) = self.take_attempt(slot) else {
            return;
        };
        self.abandoned = true;
        self.ending.retain(|&other| other != slot);
        // It may hang before it has executed its program: the buffer is its own from
        // now on.
        let fresh = SpawnBuffer::new(&self.inheritance);
        std::mem::forget(std::mem::replace(&mut self.slots[slot].buffer, fresh));
        self.slots[slot].pipes = None;
        self.free.insert(slot);
        let message = "it did not end when it was killed, and still runs".to_owned();
        self.ready.push(attempt.ended(Outcome::Interrupted, Some(message)));
        self.start_deferred();
        self.set_timer();
    }

    /// The task whose attempt a process belongs to, if it is one of ours.
    pub fn owner_of(&self, pid: u32) -> Option<TaskId> {
        let me = std::process::id();
        // The last one below us: a leader, or an orphan that we inherited.
        let mut outermost = None;
        for pid in ancestry(pid) {
            if pid == me {
                let slot = self.attempt_of(outermost?)?;
                return Some(self.attempt(slot)?.task);
            }
            let pid = to_pid(pid)?;
            if let Some(&slot) = self.by_leader.get(&pid) {
                return Some(self.attempt(slot)?.task);
            }
            outermost = Some(pid);
        }
        // What an adopted attempt started need not descend from us.
        let attempt = self.attempt(self.attempt_of(to_pid(pid)?)?)?;
        attempt.is_adopted().then_some(attempt.task)
    }

    pub(crate) fn attempt(&self, slot: usize) -> Option<&RunningAttempt> {
        self.slots[slot].attempt.as_ref()
    }

    /// The slot of the attempt that a process belongs to by its group or mark.
    pub(crate) fn attempt_of(&self, pid: Pid) -> Option<usize> {
        if let Some(group) = packhorse_proc::group_of(pid)
            && let Some(&slot) = self.by_leader.get(&group)
        {
            return Some(slot);
        }
        self.slot_of(marked_attempt(pid, &self.home_mark)?)
    }

    /// The slot of an attempt of a task, while it runs.
    pub(crate) fn slot_of(&self, (task, number): (TaskId, u32)) -> Option<usize> {
        let slot = *self.by_task.get(&task)?;
        (self.attempt(slot)?.number == number).then_some(slot)
    }

    /// Whether the process that leads a task's attempt is still there, as far as we
    /// know.
    pub fn is_led(&self, task: TaskId) -> bool {
        self.has_leader(self.by_task.get(&task))
    }

    /// The first process of each attempt that is led by it, and how long it has run.
    pub fn leaders(&self) -> impl Iterator<Item = (u32, Duration)> {
        let attempts = self.slots.iter().filter_map(|slot| slot.attempt.as_ref());
        let led = attempts.filter(|attempt| attempt.end.is_none());
        led.map(|attempt| (number(attempt.leader), attempt.started.elapsed()))
    }

    /// Whether each process needs a handle that tells of its end.
    pub(crate) fn uses_handles(&self) -> bool {
        self.children != Children::All(EndNotice::Sigchld)
    }

    /// Whether there is an attempt in the slot whose leader we wait for.
    pub(crate) fn has_leader(&self, slot: Option<&usize>) -> bool {
        let attempt = slot.and_then(|&slot| self.attempt(slot));
        attempt.is_some_and(|attempt| attempt.end.is_none())
    }

    /// A process that descends from us and is no attempt's: it is left alone.
    pub fn spare(&mut self, pid: u32) {
        self.spared.extend(to_pid(pid));
    }

    /// Ends an attempt, unless that has to wait for permission.
    pub(crate) fn request_end(
        &mut self,
        slot: usize,
        how: StopMode,
        reason: EndReason,
        now: Instant,
    ) {
        let told = self
            .with_attempt(slot, |attempt, buffer| attempt.request_end(how, reason, buffer, now));
        self.ready.extend(told.flatten());
    }

    /// Lets something be done to an attempt that may change its deadline.
    pub(crate) fn with_attempt<T>(
        &mut self,
        slot: usize,
        act: impl FnOnce(&mut RunningAttempt, &SpawnBuffer) -> T,
    ) -> Option<T> {
        let Slot { attempt, buffer, .. } = &mut self.slots[slot];
        let attempt = attempt.as_mut()?;
        let before = attempt.deadline;
        let result = act(attempt, buffer);
        self.deadlines.change(slot, before, attempt.deadline);
        Some(result)
    }

    /// Takes an attempt out of its slot, and forgets it.
    pub(crate) fn take_attempt(&mut self, slot: usize) -> Option<RunningAttempt> {
        let attempt = self.slots[slot].attempt.take()?;
        self.deadlines.change(slot, attempt.deadline, None);
        self.by_task.remove(&attempt.task);
        if self.by_leader.get(&attempt.leader) == Some(&slot) {
            self.by_leader.remove(&attempt.leader);
        }
        let Slot { log, metrics, log_scan, .. } = &mut self.slots[slot];
        log.close();
        *metrics = MetricScanner::default();
        *log_scan = LogScan::default();
        Some(attempt)
    }

    /// Sees to it that the descriptor becomes readable when it should.
    pub(crate) fn set_timer(&mut self) {
        self.deadlines.set_timer(self.more || self.unsettled || !self.ready.is_empty());
    }
}

impl AsFd for Supervisor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            if slot.attempt.is_some_and(|attempt| attempt.end.is_none()) {
                // Its process may not have executed its program yet.
                std::mem::forget(slot.buffer);
            }
        }
    }
}

/// What all children find in their environment. We may run inside an attempt of
/// another run: its marks are not ours.
fn shared_environment(settings: &SupervisorSettings) -> Environment {
    let marks = [MARK_TASK, MARK_ATTEMPT, MARK_HOME, MARK_SERVICE];
    let ours = std::env::vars_os().filter(|(name, _)| {
        !settings.hidden.contains(name) && !marks.iter().any(|mark| *mark == name)
    });
    let mark = (MARK_HOME.into(), settings.home_mark.clone().into());
    Environment::new(ours.chain(settings.environment.iter().cloned()).chain([mark]))
}
