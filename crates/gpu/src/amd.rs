//! AMD's devices, through sysfs.
//!
//! The kernel has a folder for each card under `class/drm`. The compute driver
//! (kfd) has its own list of the devices that ROCm can use, with its own numbers,
//! and tells which processes hold memory on them. Any of these files may be
//! missing, so every reading is optional.

mod card;
mod kfd;
mod reader;

use std::path::PathBuf;

use crate::driver::Detail;
use crate::process::ProcessLookup;
use crate::{Device, GpuConfig};
use card::Card;
use kfd::Kfd;
pub(crate) use reader::CardsReader;

/// AMD's driver.
#[derive(Debug)]
pub struct Amd {
    sysfs: PathBuf,
}

impl Amd {
    /// `None`: this machine has no AMD device.
    pub(crate) fn find(config: &GpuConfig) -> Option<Self> {
        let amd = Self { sysfs: config.sysfs.clone() };
        let has_cards = !amd.cards(&Kfd::read(&amd.sysfs)).is_empty();
        has_cards.then_some(amd)
    }

    /// Every device.
    pub(crate) fn devices(&self, detail: Detail) -> Vec<Device> {
        let kfd = Kfd::read(&self.sysfs);
        let mut lookup = ProcessLookup::default();
        let mut devices = Vec::new();
        for (index, card) in (0..).zip(self.cards(&kfd)) {
            let mut device = card.device(index);
            if detail == Detail::Everything {
                card.read_readings(&mut device);
                device.processes = lookup.processes(kfd.processes(card.address));
            }
            devices.push(device);
        }
        devices
    }

    /// The cards in ROCm's order, which is that of their PCI addresses. If kfd
    /// tells which of them ROCm can use, only those: a small GPU inside the
    /// processor is a card too.
    fn cards(&self, kfd: &Kfd) -> Vec<Card> {
        let mut cards = card::find(&self.sysfs);
        if kfd.has_devices() {
            cards.retain(|card| kfd.knows(card.address));
        }
        cards.sort_by_key(|card| card.address);
        cards
    }
}
