//! The readings that change, for a run that samples all the time.

use super::Amd;
use super::card::Card;
use super::kfd::Kfd;
use crate::DeviceReading;

/// Samples some cards. The processes that hold memory are those that compute;
/// finding those that draw would take a look at every descriptor of every process.
pub(crate) struct CardsReader {
    kfd: Kfd,
    /// `None`: it has disappeared since the devices were chosen.
    cards: Vec<Option<Card>>,
}

impl CardsReader {
    /// The cards with these indices.
    pub(crate) fn new(driver: &Amd, indices: impl Iterator<Item = u32>) -> Self {
        let kfd = Kfd::read(&driver.sysfs);
        let mut all: Vec<Option<Card>> = driver.cards(&kfd).into_iter().map(Some).collect();
        let cards = indices.map(|index| {
            let index = usize::try_from(index).ok()?;
            all.get_mut(index)?.take()
        });
        Self { cards: cards.collect(), kfd }
    }

    /// Their state now.
    pub(crate) fn read(&self) -> Vec<DeviceReading> {
        let cards = self.cards.iter();
        cards
            .map(|card| match card {
                Some(card) => DeviceReading {
                    memory: card.memory(),
                    processes: self.kfd.processes(card.address),
                    utilisation: card.utilisation(),
                    health: card.health(),
                },
                None => DeviceReading::lost("it has gone from the system".to_owned()),
            })
            .collect()
    }
}
