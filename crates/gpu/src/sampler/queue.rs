use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::{DeviceReading, DeviceSample, SamplerReport};

/// Requests of the run's loop, and reports of the sampling threads.
#[derive(Debug)]
pub(crate) struct SamplerQueue {
    state: Mutex<SamplerQueueState>,
    /// Signalled when samples are requested, and at the end.
    changed: Condvar,
    /// An eventfd that is readable while there are reports.
    reported: OwnedFd,
}

#[derive(Debug)]
struct SamplerQueueState {
    /// For each unit, whether a sample is requested that no thread has begun.
    requested: Vec<bool>,
    reports: Vec<SamplerReport>,
    is_closed: bool,
}

impl SamplerQueue {
    pub(super) fn new(units: usize) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(SamplerQueueState {
                requested: vec![false; units],
                reports: Vec::new(),
                is_closed: false,
            }),
            changed: Condvar::new(),
            reported: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(crate) fn request_all(&self) {
        self.state().requested.fill(true);
        self.changed.notify_all();
    }

    pub(super) fn fetch(&self) -> Vec<SamplerReport> {
        let mut state = self.state();
        // Reset under the lock: a report that came in between would be lost.
        let _ = rustix::io::read(&self.reported, &mut [0; 8]);
        std::mem::take(&mut state.reports)
    }

    /// Ends the threads: nobody will fetch any more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Takes a sample of the unit whenever one is requested, until the queue is
    /// closed.
    pub(super) fn serve(&self, unit: usize, mut read: impl FnMut() -> Vec<DeviceReading>) {
        while self.wait_for_request(unit) {
            let at = Instant::now();
            let members = read();
            self.report(SamplerReport::Sample(DeviceSample { unit, at, members }));
        }
    }

    /// Waits for a request. False: the queue is closed.
    fn wait_for_request(&self, unit: usize) -> bool {
        let is_idle = |state: &mut SamplerQueueState| !state.is_closed && !state.requested[unit];
        let waited = self.changed.wait_while(self.state(), is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.requested[unit] = false;
        !state.is_closed
    }

    pub(crate) fn report(&self, report: SamplerReport) {
        let mut state = self.state();
        state.reports.push(report);
        // Fails only if the counter is full: then it is readable anyway.
        let _ = rustix::io::write(&self.reported, &1_u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, SamplerQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for SamplerQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reported.as_fd()
    }
}
