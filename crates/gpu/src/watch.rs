//! Telemetry while a run lasts.
//!
//! ```text
//!  the run's loop            the desk                 one thread a unit
//!  ──────────────            ────────                 ─────────────────
//!  ask() ──────────────────▶ asked ─────────────────▶ reads its devices
//!  epoll ◀── eventfd ◀────── reports ◀─────────────── Sample
//!  fetch() ◀──────────────── reports ◀─────────────── Xid: one thread for all
//! ```
//!
//! A driver may take its time, or never come back: then the thread that asked
//! it waits, and nobody else. Each unit has a thread of its own, so that a GPU
//! that hangs does not hide the others; [`Watch::unanswered_since`] says which
//! one it is. Xids come from the driver's own events: the thread that waits for
//! them sleeps until there is one.
//!
//! Dropping the [`Watch`] waits for nobody: a thread that hangs in the driver
//! would be waited for in vain. Threads that do not hang end.

mod desk;
mod sample;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::{Amd, Driver, Member, Nvidia, Unit, amd, nvidia, quiet};
pub(crate) use desk::Desk;
pub use sample::{Held, Reading, Report, Sample};

/// Asks the driver, so that the run's loop never has to.
///
/// As a descriptor it is readable when there is something to fetch.
#[derive(Debug)]
pub struct Watch {
    desk: Arc<Desk>,
}

impl Watch {
    /// Takes over the driver, to be asked about these units. Units that no
    /// driver knows are not sampled.
    pub fn start(driver: Driver, units: &[Unit]) -> io::Result<Self> {
        let desk = Arc::new(Desk::new(units.len())?);
        let watch = Self {
            desk: Arc::clone(&desk),
        };
        match driver {
            Driver::Nvidia(driver) => start_nvidia(&Arc::new(driver), units, &desk)?,
            Driver::Amd(driver) => start_amd(&Arc::new(driver), units, &desk)?,
            Driver::Broken(_) | Driver::None => {}
        }
        Ok(watch)
    }

    /// Has a sample of every unit taken as soon as possible. A unit that is
    /// being sampled is sampled once more afterwards, however often it was
    /// asked for meanwhile.
    pub fn ask(&self) {
        self.desk.ask_all(Instant::now());
    }

    /// The same of one unit.
    pub fn ask_unit(&self, unit: usize) {
        self.desk.ask(unit, Instant::now());
    }

    /// What was reported since the last time. Never waits.
    pub fn fetch(&self) -> Vec<Report> {
        self.desk.fetch()
    }

    /// Since when a sample of the unit has been asked for and not come. `None`:
    /// every one has come, or nobody can be asked about it.
    pub fn unanswered_since(&self, unit: usize) -> Option<Instant> {
        self.desk.unanswered_since(unit)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.desk.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.desk.close();
    }
}

/// The members of the unit, if the driver knows every one of them.
fn known(unit: &Unit) -> Option<Vec<(u32, Member)>> {
    let members = unit.members.iter();
    members
        .map(|member| Some((member.index?, member.clone())))
        .collect()
}

fn start_nvidia(driver: &Arc<Nvidia>, units: &[Unit], desk: &Arc<Desk>) -> io::Result<()> {
    let mut devices = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        let Some(members) = known(unit) else { continue };
        devices.extend(members.iter().map(|(index, _)| (*index, number)));
        let (driver, desk) = (Arc::clone(driver), Arc::clone(desk));
        desk.open(number);
        quiet::spawn(&format!("watch-{}", unit.label), move || {
            let mut samplers: Vec<nvidia::Sampler> = members
                .iter()
                .map(|(index, member)| nvidia::Sampler::new(&driver, *index, member))
                .collect();
            desk.serve(number, || {
                samplers.iter_mut().map(nvidia::Sampler::read).collect()
            });
        })?;
    }
    if !devices.is_empty() {
        let (driver, desk) = (Arc::clone(driver), Arc::clone(desk));
        quiet::spawn("watch-xid", move || {
            nvidia::watch_xids(&driver, devices, &desk);
        })?;
    }
    Ok(())
}

fn start_amd(driver: &Arc<Amd>, units: &[Unit], desk: &Arc<Desk>) -> io::Result<()> {
    for (number, unit) in units.iter().enumerate() {
        let Some(members) = known(unit) else { continue };
        let (driver, desk) = (Arc::clone(driver), Arc::clone(desk));
        desk.open(number);
        quiet::spawn(&format!("watch-{}", unit.label), move || {
            let indices = members.into_iter().map(|(index, _)| index).collect();
            let sampler = amd::Sampler::new(&driver, indices);
            desk.serve(number, || sampler.read());
        })?;
    }
    Ok(())
}
