//! The table of evidence: why an attempt failed, as far as its memory is concerned.
//!
//! What a task wrote about GPU memory, or an exit status that a person has declared, is
//! evidence. A full GPU alone is not: programs crash on full GPUs for other reasons, and some
//! fill a GPU on purpose. So it is told, as it was seen, and nothing follows from it: the
//! failure is the task's own, its signal or exit status is shown, its retries stay, nothing
//! is learned.

use std::time::Duration;

use packhorse_model::{Bytes, DeviceId};

use super::track::Track;

/// An older look at a GPU tells nothing about the end of an attempt.
const STALE: Duration = Duration::from_millis(2500);
/// A GPU is full when less than one part of so many is free.
const LITTLE: u64 = 20;

/// What the end of an attempt's log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastWords {
    /// That there was no GPU memory.
    OutOfMemory,
    /// Another error.
    AnotherError,
    /// Nothing; but the task wrote further up that there was no GPU memory, and went on.
    OutOfMemoryBefore,
    Nothing,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By an exit status that a person has declared to mean a lack of memory.
    Declared,
    /// By another exit status.
    Status,
    /// By a signal, or an exit status by which a shell tells of one.
    Signal,
}

/// What the driver reported about a device of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverEvent {
    None,
    /// An error that a program has caused.
    ProgramFault,
    /// The device failed, and was taken out.
    DeviceFailed,
}

/// How much was free on the attempt's devices when it was last seen alive there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headroom {
    Unseen,
    /// That is too long ago.
    Stale,
    Room,
    Full,
}

/// What follows from the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    DeviceFailed,
    OutOfMemory,
    Own,
    /// Its own failure; what the driver reported is told.
    OwnWithFault,
    /// Its own failure; how little was free is told.
    OwnWhileFull,
}

/// The table. The first row that applies counts.
#[expect(clippy::match_same_arms, reason = "each row of the table, in its order")]
pub(super) fn weigh(
    words: LastWords,
    ending: Ending,
    driver: DriverEvent,
    headroom: Headroom,
) -> Verdict {
    match (words, ending, driver, headroom) {
        (_, _, DriverEvent::DeviceFailed, _) => Verdict::DeviceFailed,
        (LastWords::OutOfMemory, _, _, _) | (_, Ending::Declared, _, _) => Verdict::OutOfMemory,
        (_, _, DriverEvent::ProgramFault, _) => Verdict::OwnWithFault,
        // A task that was killed need not have known why.
        (LastWords::AnotherError, Ending::Status, _, _) => Verdict::Own,
        (LastWords::OutOfMemoryBefore, _, _, Headroom::Full) => Verdict::OutOfMemory,
        (_, _, _, Headroom::Full) => Verdict::OwnWhileFull,
        (_, _, _, Headroom::Room | Headroom::Stale | Headroom::Unseen) => Verdict::Own,
    }
}

/// A device of an attempt as it was when the attempt was last seen alive there.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastLook {
    pub(super) device: DeviceId,
    pub(super) free: Bytes,
    /// How long before the attempt's end that was.
    pub(super) age: Duration,
}

impl Track {
    /// The device that was fullest when the attempt was last seen alive, `total` being the
    /// memory of each.
    pub(super) fn fullest(
        &self,
        ended: Duration,
        total: impl Fn(DeviceId) -> Bytes,
    ) -> Option<(LastLook, Headroom)> {
        let looks = self.devices.iter().filter_map(|on| {
            let (_, surroundings) = on.last?;
            let age = ended.saturating_sub(surroundings.at);
            let look = LastLook { device: on.device, free: surroundings.free?, age };
            let headroom = match look.free.0 < total(on.device).0 / LITTLE {
                _ if age > STALE => Headroom::Stale,
                true => Headroom::Full,
                false => Headroom::Room,
            };
            Some((look, headroom))
        });
        looks.min_by_key(|(look, _)| look.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gpu_alone_is_never_a_lack_of_memory() {
        for words in [LastWords::AnotherError, LastWords::Nothing] {
            for ending in [Ending::Status, Ending::Signal] {
                for driver in [DriverEvent::None, DriverEvent::ProgramFault] {
                    let verdict = weigh(words, ending, driver, Headroom::Full);
                    assert_ne!(verdict, Verdict::OutOfMemory, "{words:?} {ending:?} {driver:?}");
                }
            }
        }
    }
}
