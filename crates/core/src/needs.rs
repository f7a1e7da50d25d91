//! Amounts: what a task needs of each thing, and how much of each there is.

use packhorse_model::GpuRequest;

use crate::device::{DeviceRoom, memory_of};
use crate::ledger::Amounts;
use crate::queue::Demand;

/// How much of each thing: a bound on the duration in nanoseconds, a share of a
/// device, memory of it, and what a machine has. All that tells the classes of
/// one family apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeededAmounts([u64; 6]);

/// Alternatives: what fits into one of these fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rooms(Vec<NeededAmounts>);

impl NeededAmounts {
    /// What `demand` needs.
    pub(crate) fn of(demand: &Demand) -> Self {
        let Amounts { cores, cpu, ram } = Amounts::of(&demand.request);
        let share = demand.request.gpus.share().0.into();
        let memory = memory_of(&demand.request).0;
        Self([demand.bound.nanos(), share, memory, cores, cpu, ram])
    }

    /// Whether there is so much of each in `room`.
    fn is_within(&self, room: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&room.0);
        pairs.all(|(need, room)| need <= room)
    }

    /// The smaller of both, of each thing.
    pub(crate) fn least(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|thing| self.0[thing].min(other.0[thing])))
    }
}

impl Rooms {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether it fits into one of these.
    pub(crate) fn admit(&self, needs: &NeededAmounts) -> bool {
        self.0.iter().any(|room| needs.is_within(room))
    }

    /// Adds what a machine with `free` amounts and these devices has for attempts
    /// that need `gpus` and take at most `nanos`.
    pub(crate) fn add_machine(
        &mut self,
        nanos: u64,
        free: Amounts,
        gpus: GpuRequest,
        devices: impl Iterator<Item = DeviceRoom>,
    ) {
        let Amounts { cores, cpu, ram } = free;
        let mut add =
            |share, memory| self.add(NeededAmounts([nanos, share, memory, cores, cpu, ram]));
        match gpus {
            GpuRequest::None => add(u64::MAX, u64::MAX),
            GpuRequest::Share(_) => {
                devices.for_each(|room| add(room.share.0.into(), room.memory.0));
            }
            GpuRequest::Whole(wanted) => {
                if let Some(memory) = nth_largest(devices.map(|room| room.memory.0), wanted) {
                    add(u64::MAX, memory);
                }
            }
        }
    }

    /// Adds an alternative, unless another covers it, and drops those it covers.
    fn add(&mut self, room: NeededAmounts) {
        if !self.admit(&room) {
            self.0.retain(|other| !other.is_within(&room));
            self.0.push(room);
        }
    }
}

/// What each of the `wanted` largest has.
fn nth_largest(rooms: impl Iterator<Item = u64>, wanted: u32) -> Option<u64> {
    if wanted == 1 {
        return rooms.max();
    }
    let mut rooms: Vec<u64> = rooms.collect();
    rooms.sort_unstable();
    let place = rooms.len().checked_sub(wanted as usize)?;
    rooms.get(place).copied()
}
