use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::{DeviceReading, DeviceSample, SamplerReport};
use crate::Xid;

/// Requests of the run's loop, and reports of the sampling threads.
#[derive(Debug)]
pub(crate) struct SamplerQueue {
    state: Mutex<SamplerQueueState>,
    /// Signalled when a sample is requested, and at the end.
    requested: Condvar,
    /// An eventfd that is readable while there are reports.
    reported: OwnedFd,
}

#[derive(Debug)]
struct SamplerQueueState {
    units: Vec<UnitRequests>,
    reports: Vec<SamplerReport>,
    is_closed: bool,
}

/// The unanswered requests of one unit.
#[derive(Clone, Copy, Debug, Default)]
struct UnitRequests {
    /// Whether a thread serves it.
    is_served: bool,
    /// Since when a sample is requested that no thread has begun.
    pending: Option<Instant>,
    /// When the sample was requested that is being taken.
    under_way: Option<Instant>,
}

impl SamplerQueue {
    pub(super) fn new(units: usize) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(SamplerQueueState {
                units: vec![UnitRequests::default(); units],
                reports: Vec::new(),
                is_closed: false,
            }),
            requested: Condvar::new(),
            reported: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Accepts requests for the unit from now on.
    pub(super) fn open(&self, unit: usize) {
        self.state().units[unit].is_served = true;
    }

    pub(super) fn request(&self, unit: usize, now: Instant) {
        if let Some(requests) = self.state().units.get_mut(unit) {
            requests.add(now);
        }
        self.requested.notify_all();
    }

    pub(crate) fn request_all(&self, now: Instant) {
        for requests in &mut self.state().units {
            requests.add(now);
        }
        self.requested.notify_all();
    }

    pub(super) fn fetch(&self) -> Vec<SamplerReport> {
        let mut state = self.state();
        // Reset under the lock: a report that came in between would be lost.
        let _ = rustix::io::read(&self.reported, &mut [0; 8]);
        std::mem::take(&mut state.reports)
    }

    pub(super) fn unanswered_since(&self, unit: usize) -> Option<Instant> {
        let requests = *self.state().units.get(unit)?;
        requests.under_way.or(requests.pending)
    }

    /// Ends the threads: nobody will fetch any more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.requested.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    pub(crate) fn report_xid(&self, unit: usize, xid: Xid) {
        self.report(&mut self.state(), SamplerReport::Xid { unit, xid });
    }

    /// Takes a sample of the unit whenever one is requested, until the queue is
    /// closed.
    pub(super) fn serve(&self, unit: usize, mut read: impl FnMut() -> Vec<DeviceReading>) {
        while self.wait_for_request(unit) {
            let at = Instant::now();
            let members = read();
            let sample = DeviceSample {
                unit,
                at,
                took: at.elapsed(),
                members,
            };
            let mut state = self.state();
            state.units[unit].under_way = None;
            self.report(&mut state, SamplerReport::Sample(sample));
        }
    }

    /// Waits for a request. False: the queue is closed.
    fn wait_for_request(&self, unit: usize) -> bool {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return false;
            }
            if let Some(requested) = state.units[unit].pending.take() {
                state.units[unit].under_way = Some(requested);
                return true;
            }
            state = self
                .requested
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn report(&self, state: &mut SamplerQueueState, report: SamplerReport) {
        state.reports.push(report);
        // Fails only if the counter is full: then it is readable anyway.
        let _ = rustix::io::write(&self.reported, &1_u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, SamplerQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnitRequests {
    fn add(&mut self, now: Instant) {
        if self.is_served {
            self.pending.get_or_insert(now);
        }
    }
}

impl AsFd for SamplerQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reported.as_fd()
    }
}
