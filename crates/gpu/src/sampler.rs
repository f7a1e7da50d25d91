//! Telemetry during a run.
//!
//! ```text
//!  the run's loop            SamplerQueue             one thread per unit
//!  ──────────────            ────────────             ───────────────────
//!  request_all() ──────────▶ requested ─────────────▶ reads its devices
//!  epoll ◀── eventfd ◀────── reports ◀─────────────── DeviceSample
//!  fetch() ◀──────────────── reports ◀─────────────── Xid: one thread for all
//! ```
//!
//! A driver may be slow, or never return: then only the thread that called it
//! waits. Each unit has a thread of its own, so that a GPU that hangs does not
//! hide the others. Xids are events of the driver: the thread that waits for them
//! sleeps until there is one.
//!
//! Dropping the [`Sampler`] waits for no thread, as one that hangs in the driver
//! might never end. The others end by themselves.

mod queue;
mod sample;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::{Driver, Unit, UnitMember, amd, nvidia, thread};
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
        let sampler = Self { queue: Arc::clone(&queue) };
        let driver = Arc::new(driver);
        let mut devices = Vec::new();
        for (number, unit) in units.iter().enumerate() {
            let Some(members) = known_members(unit) else {
                continue;
            };
            devices.extend(members.iter().map(|(index, _)| (*index, number)));
            let (driver, queue) = (Arc::clone(&driver), Arc::clone(&queue));
            thread::spawn_without_signals(&format!("sample-{}", unit.label), move || {
                serve(&driver, &members, &queue, number);
            })?;
        }
        if matches!(*driver, Driver::Nvidia(_)) && !devices.is_empty() {
            thread::spawn_without_signals("sample-xid", move || {
                if let Driver::Nvidia(driver) = &*driver {
                    nvidia::watch_xids(driver, devices, &queue);
                }
            })?;
        }
        Ok(sampler)
    }

    /// Requests a sample of every unit. A unit that is being sampled is sampled
    /// once more afterwards, however many requests came meanwhile.
    pub fn request_all(&self) {
        self.queue.request_all();
    }

    /// The reports since the last call. Never waits.
    pub fn fetch(&self) -> Vec<SamplerReport> {
        self.queue.fetch()
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
    members.map(|member| Some((member.index?, member.clone()))).collect()
}

/// What the thread of a unit does.
fn serve(driver: &Driver, members: &[(u32, UnitMember)], queue: &SamplerQueue, number: usize) {
    match driver {
        Driver::Nvidia(driver) => {
            let readers = members.iter();
            let mut readers: Vec<_> = readers
                .map(|(index, member)| nvidia::MemberReader::new(driver, *index, member))
                .collect();
            queue.serve(number, || readers.iter_mut().map(nvidia::MemberReader::read).collect());
        }
        Driver::Amd(driver) => {
            let indices = members.iter().map(|(index, _)| *index);
            let reader = amd::CardsReader::new(driver, indices);
            queue.serve(number, || reader.read());
        }
        Driver::Broken(_) | Driver::None => {}
    }
}
