use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::{Reading, Report, Sample};
use crate::Xid;

/// Where the run's loop leaves what it asks for, and the threads what they have
/// found.
#[derive(Debug)]
pub(crate) struct Desk {
    book: Mutex<Book>,
    /// Signalled when something was asked for, and at the end.
    asked: Condvar,
    /// Readable while there are reports.
    bell: OwnedFd,
}

#[derive(Debug)]
struct Book {
    units: Vec<Counter>,
    reports: Vec<Report>,
    is_closed: bool,
}

/// What is going on about one unit.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// Whether somebody serves it.
    is_open: bool,
    /// Since when a sample is wanted that nobody has begun.
    asked: Option<Instant>,
    /// Since when the sample was wanted that is being taken.
    under_way: Option<Instant>,
}

impl Desk {
    pub(super) fn new(units: usize) -> io::Result<Self> {
        Ok(Self {
            book: Mutex::new(Book {
                units: vec![Counter::default(); units],
                reports: Vec::new(),
                is_closed: false,
            }),
            asked: Condvar::new(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// From now on the unit can be asked for.
    pub(super) fn open(&self, unit: usize) {
        self.book().units[unit].is_open = true;
    }

    pub(super) fn ask(&self, unit: usize, now: Instant) {
        if let Some(counter) = self.book().units.get_mut(unit) {
            counter.ask(now);
        }
        self.asked.notify_all();
    }

    pub(crate) fn ask_all(&self, now: Instant) {
        for counter in &mut self.book().units {
            counter.ask(now);
        }
        self.asked.notify_all();
    }

    pub(super) fn fetch(&self) -> Vec<Report> {
        let mut book = self.book();
        // Emptied under the lock, or a bell that rings between would be lost.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut book.reports)
    }

    pub(super) fn unanswered_since(&self, unit: usize) -> Option<Instant> {
        let counter = *self.book().units.get(unit)?;
        counter.under_way.or(counter.asked)
    }

    /// Nobody will fetch any more.
    pub(super) fn close(&self) {
        self.book().is_closed = true;
        self.asked.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.book().is_closed
    }

    pub(crate) fn report_xid(&self, unit: usize, xid: Xid) {
        self.report(&mut self.book(), Report::Xid { unit, xid });
    }

    /// Takes a sample of the unit whenever one is asked for, until the end.
    pub(super) fn serve(&self, unit: usize, mut read: impl FnMut() -> Vec<Reading>) {
        while self.begin(unit) {
            let at = Instant::now();
            let members = read();
            let sample = Sample {
                unit,
                at,
                took: at.elapsed(),
                members,
            };
            let mut book = self.book();
            book.units[unit].under_way = None;
            self.report(&mut book, Report::Sample(sample));
        }
    }

    /// Waits until the unit is asked for. False: the end.
    fn begin(&self, unit: usize) -> bool {
        let mut book = self.book();
        loop {
            if book.is_closed {
                return false;
            }
            if let Some(asked) = book.units[unit].asked.take() {
                book.units[unit].under_way = Some(asked);
                return true;
            }
            book = self
                .asked
                .wait(book)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn report(&self, book: &mut Book, report: Report) {
        book.reports.push(report);
        // It fails only when it rings already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counter {
    fn ask(&mut self, now: Instant) {
        if self.is_open {
            self.asked.get_or_insert(now);
        }
    }
}

impl AsFd for Desk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
