//! Telemetry during a run.
//!
//! ```text
//!  the run's loop            SamplerQueue             one thread per unit
//!  ──────────────            ────────────             ───────────────────
//!  request() ──────────────▶ requested ─────────────▶ reads its devices
//!  epoll ◀── eventfd ◀────── reports ◀─────────────── DeviceSample
//!  fetch() ◀──────────────── reports ◀─────────────── Xid: one thread for all
//! ```
//!
//! A driver may be slow, or never return: then only the thread that called it
//! waits. Each unit has a thread of its own, so that a GPU that hangs does not
//! hide the others; [`Sampler::unanswered_since`] tells which one hangs. Xids are
//! events of the driver: the thread that waits for them sleeps until there is one.
//!
//! Dropping the [`Sampler`] waits for no thread, as one that hangs in the driver
//! might never end. The others end by themselves.

mod queue;
mod sample;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::{Amd, Driver, Nvidia, Unit, UnitMember, amd, nvidia, thread};
pub(crate) use queue::SamplerQueue;
pub use sample::{DeviceReading, DeviceSample, ProcessMemory, SamplerReport};

/// Reads devices in threads of its own, so that the run's loop never waits for
/// the driver.
///
/// Its descriptor is readable while there are reports to fetch.
#[derive(Debug)]
pub struct Sampler {
    queue: Arc<SamplerQueue>,
}

impl Sampler {
    /// Takes over the driver to sample these units. Units that no driver knows
    /// are not sampled.
    pub fn start(driver: Driver, units: &[Unit]) -> io::Result<Self> {
        let queue = Arc::new(SamplerQueue::new(units.len())?);
        let sampler = Self {
            queue: Arc::clone(&queue),
        };
        match driver {
            Driver::Nvidia(driver) => start_nvidia(&Arc::new(driver), units, &queue)?,
            Driver::Amd(driver) => start_amd(&Arc::new(driver), units, &queue)?,
            Driver::Broken(_) | Driver::None => {}
        }
        Ok(sampler)
    }

    /// Requests a sample of every unit. A unit that is being sampled is sampled
    /// once more afterwards, however many requests came meanwhile.
    pub fn request_all(&self) {
        self.queue.request_all(Instant::now());
    }

    /// Requests a sample of one unit.
    pub fn request(&self, unit: usize) {
        self.queue.request(unit, Instant::now());
    }

    /// The reports since the last call. Never waits.
    pub fn fetch(&self) -> Vec<SamplerReport> {
        self.queue.fetch()
    }

    /// When the oldest request was made that the unit has not answered. `None`:
    /// all are answered, or nobody can sample the unit.
    pub fn unanswered_since(&self, unit: usize) -> Option<Instant> {
        self.queue.unanswered_since(unit)
    }
}

impl AsFd for Sampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The members of the unit with their indices, if the driver knows them all.
fn known_members(unit: &Unit) -> Option<Vec<(u32, UnitMember)>> {
    let members = unit.members.iter();
    members
        .map(|member| Some((member.index?, member.clone())))
        .collect()
}

fn start_nvidia(driver: &Arc<Nvidia>, units: &[Unit], queue: &Arc<SamplerQueue>) -> io::Result<()> {
    let mut devices = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        let Some(members) = known_members(unit) else {
            continue;
        };
        devices.extend(members.iter().map(|(index, _)| (*index, number)));
        let (driver, queue) = (Arc::clone(driver), Arc::clone(queue));
        queue.open(number);
        thread::spawn_without_signals(&format!("sample-{}", unit.label), move || {
            let mut readers: Vec<nvidia::MemberReader> = members
                .iter()
                .map(|(index, member)| nvidia::MemberReader::new(&driver, *index, member))
                .collect();
            queue.serve(number, || {
                readers.iter_mut().map(nvidia::MemberReader::read).collect()
            });
        })?;
    }
    if !devices.is_empty() {
        let (driver, queue) = (Arc::clone(driver), Arc::clone(queue));
        thread::spawn_without_signals("sample-xid", move || {
            nvidia::watch_xids(&driver, devices, &queue);
        })?;
    }
    Ok(())
}

fn start_amd(driver: &Arc<Amd>, units: &[Unit], queue: &Arc<SamplerQueue>) -> io::Result<()> {
    for (number, unit) in units.iter().enumerate() {
        let Some(members) = known_members(unit) else {
            continue;
        };
        let (driver, queue) = (Arc::clone(driver), Arc::clone(queue));
        queue.open(number);
        thread::spawn_without_signals(&format!("sample-{}", unit.label), move || {
            let indices = members.into_iter().map(|(index, _)| index).collect();
            let reader = amd::CardsReader::new(&driver, indices);
            queue.serve(number, || reader.read());
        })?;
    }
    Ok(())
}
