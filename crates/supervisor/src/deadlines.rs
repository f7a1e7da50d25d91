//! When to act unasked.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The deadlines of slots, and a timer that is set to the first of them.
pub(crate) struct Deadlines {
    timer: OwnedFd,
    set: Option<Instant>,
    queue: BTreeSet<(Instant, usize)>,
}

impl Deadlines {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            set: None,
            queue: BTreeSet::new(),
        })
    }

    /// A slot's deadline has changed.
    pub(crate) fn change(&mut self, slot: usize, from: Option<Instant>, to: Option<Instant>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.queue.remove(&(from, slot));
        }
        if let Some(to) = to {
            self.queue.insert((to, slot));
        }
    }

    /// Takes out a slot whose deadline is over.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<usize> {
        self.queue.first().filter(|&&(at, _)| at <= now)?;
        self.queue.pop_first().map(|(_, slot)| slot)
    }

    /// The timer has come.
    pub(crate) fn set_off(&mut self) {
        self.set = None;
    }

    /// Sets the timer, if it must come before it would, or need not come at all.
    /// One that would come too early stays: an attempt with a time limit that ends
    /// in time is the usual thing, and setting it anew for each costs more than
    /// one wake-up. With `at_once` it comes now.
    pub(crate) fn set_timer(&mut self, at_once: bool) {
        let first = self.queue.first().map(|&(at, _)| at);
        if !at_once && first.is_none() && self.set.is_none() {
            return;
        }
        let now = Instant::now();
        let wanted = if at_once { Some(now) } else { first };
        if let (Some(wanted), Some(set)) = (wanted, self.set)
            && set <= wanted
        {
            return;
        }
        let left = wanted.and_then(|at| {
            let left = at.saturating_duration_since(now);
            // Zero means never.
            Timespec::try_from(left.max(Duration::from_nanos(1))).ok()
        });
        let once =
            Itimerspec { it_interval: Timespec::default(), it_value: left.unwrap_or_default() };
        // It cannot fail: the descriptor is a timer, and the time is valid.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        self.set = wanted;
    }
}

impl AsFd for Deadlines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
