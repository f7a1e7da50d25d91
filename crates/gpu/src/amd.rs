//! AMD's devices, through sysfs.
//!
//! The kernel has a folder for each card under `class/drm`; the compute driver
//! (kfd) keeps its own list of the devices that ROCm can use, with numbers of
//! its own, and tells who holds memory on them. Everything here is optional to
//! the kernel, so everything is optional to us.

mod card;
mod kfd;
mod sampling;

use std::path::PathBuf;

use crate::people::People;
use crate::{Config, Device};
use card::Card;
use kfd::Kfd;
pub(crate) use sampling::Sampler;

/// AMD's driver.
#[derive(Debug)]
pub struct Amd {
    sysfs: PathBuf,
    proc: PathBuf,
}

impl Amd {
    /// `None`: this machine has none of AMD's devices.
    pub(crate) fn find(config: &Config) -> Option<Self> {
        let amd = Self {
            sysfs: config.sysfs.clone(),
            proc: config.proc.clone(),
        };
        let has_cards = !amd.cards(&Kfd::read(&amd.sysfs)).is_empty();
        has_cards.then_some(amd)
    }

    /// Every device with all that can be read of it.
    pub(crate) fn devices(&self) -> Vec<Device> {
        let kfd = Kfd::read(&self.sysfs);
        let mut people = People::new(&self.proc);
        let mut devices = Vec::new();
        for (index, card) in (0..).zip(self.cards(&kfd)) {
            let mut device = card.device(index);
            card.read_readings(&mut device);
            device.processes = kfd.processes(card.address()).map(|held| {
                held.into_iter()
                    .map(|(pid, memory)| people.process(pid, Some(memory)))
                    .collect()
            });
            devices.push(device);
        }
        devices
    }

    /// Every device with what does not change.
    pub(crate) fn identities(&self) -> Vec<Device> {
        let cards = self.cards(&Kfd::read(&self.sysfs));
        let numbered = (0..).zip(cards);
        numbered.map(|(index, card)| card.device(index)).collect()
    }

    /// The cards in ROCm's order, which is that of their PCI addresses. Where
    /// kfd tells which of them ROCm can use, only those: a small GPU inside
    /// the processor is a card too.
    fn cards(&self, kfd: &Kfd) -> Vec<Card> {
        let mut cards = card::find(&self.sysfs);
        if kfd.has_devices() {
            cards.retain(|card| kfd.knows(card.address()));
        }
        cards.sort_by_key(Card::address);
        cards
    }
}
