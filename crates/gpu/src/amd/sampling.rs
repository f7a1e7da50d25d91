//! What changes, and no more: a run asks for it all the time.

use super::Amd;
use super::card::Card;
use super::kfd::Kfd;
use crate::{Held, Reading};

/// Reads some cards again and again. Who holds memory is known of programs that
/// compute; displays would have to be looked for in every descriptor of every
/// process.
pub(crate) struct Sampler {
    kfd: Kfd,
    /// `None`: it has gone since the devices were chosen.
    cards: Vec<Option<Card>>,
}

impl Sampler {
    /// The cards with these indices.
    pub(crate) fn new(driver: &Amd, indices: Vec<u32>) -> Self {
        let kfd = Kfd::read(&driver.sysfs);
        let mut all: Vec<Option<Card>> = driver.cards(&kfd).into_iter().map(Some).collect();
        let cards = indices.into_iter().map(|index| {
            let index = usize::try_from(index).ok()?;
            all.get_mut(index)?.take()
        });
        Self {
            cards: cards.collect(),
            kfd,
        }
    }

    /// How they are now.
    pub(crate) fn read(&self) -> Vec<Reading> {
        let cards = self.cards.iter();
        cards
            .map(|card| match card {
                Some(card) => self.read_card(card),
                None => Reading::lost("it has gone from the system".to_owned()),
            })
            .collect()
    }

    fn read_card(&self, card: &Card) -> Reading {
        let held = self.kfd.processes(card.address());
        let processes = held.map(|held| {
            held.into_iter()
                .map(|(pid, memory)| Held {
                    pid,
                    memory: Some(memory),
                })
                .collect()
        });
        Reading {
            memory: card.memory(),
            processes,
            utilisation: card.utilisation(),
            health: card.health(),
        }
    }
}
