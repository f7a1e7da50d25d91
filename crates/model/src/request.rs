use std::fmt;
use std::str::FromStr;

use crate::{Bytes, Milli, ParseQuantityError};

/// What a task needs in order to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// GPUs, or a part of one.
    pub gpus: GpuRequest,
    /// Memory of each of its GPUs.
    pub memory: MemoryRequest,
    /// Which models of GPU will do.
    pub models: Models,
    /// A GPU with less memory than this will not do, even alone.
    pub device_memory: Bytes,
    /// Cores of its own. 0: it shares the machine's cores with everybody.
    pub cores: u32,
    /// How much of the machine's cores it keeps busy, in thousandths of one.
    /// Counted, not pinned; cores of its own count as busy.
    pub cpu: Milli,
    /// Main memory of the machine.
    pub ram: Bytes,
}

/// How much memory of each of its GPUs a task needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryRequest {
    /// Nobody said: it is not counted.
    #[default]
    Uncounted,
    /// So much.
    Bytes(Bytes),
    /// All of it: it is alone on its GPUs.
    Whole,
}

/// A set of GPU models, as bits: the pool's model number `n` is bit `n`. A pool
/// has at most 64 models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Models(pub u64);

/// How much GPU a task needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuRequest {
    /// None: it runs without a device.
    None,
    /// A part of one device, less than all of it. A share of 0 is a place on a
    /// device where memory alone decides how many fit.
    Share(Milli),
    /// So many whole devices of one node, at least one.
    Whole(u32),
}

/// The order among waiting tasks: a lower number goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Models {
    /// Whichever.
    pub const ANY: Self = Self(u64::MAX);

    /// Whether a device of the pool's model `number` will do.
    pub const fn contains(self, number: u8) -> bool {
        self.0 & (1 << (number & 63)) != 0
    }
}

impl Default for Models {
    fn default() -> Self {
        Self::ANY
    }
}

impl Default for GpuRequest {
    fn default() -> Self {
        Self::Whole(1)
    }
}

impl GpuRequest {
    /// How many devices it takes part of.
    pub const fn devices(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Share(_) => 1,
            Self::Whole(count) => count,
        }
    }

    /// How much it takes of each of them.
    pub const fn share(self) -> Milli {
        match self {
            Self::None => Milli(0),
            Self::Share(share) => share,
            Self::Whole(_) => Milli::ONE,
        }
    }
}

impl FromStr for GpuRequest {
    type Err = ParseQuantityError;

    /// `0`, `2`, `0.5`, `1/3`: nothing, whole devices, or a part of one.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let milli: Milli = text.parse()?;
        match milli.0 {
            0 => Ok(Self::None),
            share @ 1..1000 => Ok(Self::Share(Milli(share))),
            whole if whole.is_multiple_of(1000) => Ok(Self::Whole(whole / 1000)),
            _ => Err(ParseQuantityError::new(
                text,
                "a part of one GPU (0.5, 1/3) or a whole number of GPUs",
            )),
        }
    }
}

impl fmt::Display for GpuRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0"),
            Self::Share(share) => share.fmt(f),
            Self::Whole(count) => count.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_amounts_read_as_people_write_them() {
        for (text, wanted) in [
            ("0", GpuRequest::None),
            ("1", GpuRequest::Whole(1)),
            ("1.0", GpuRequest::Whole(1)),
            ("2", GpuRequest::Whole(2)),
            ("0.5", GpuRequest::Share(Milli(500))),
            (".25", GpuRequest::Share(Milli(250))),
            ("1/3", GpuRequest::Share(Milli(333))),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn one_and_a_half_gpus_are_refused() {
        for text in [
            "1.5", "3/2", "-1", "0.0001", "", "half", "1/0", "nan", "1e3",
        ] {
            assert!(text.parse::<GpuRequest>().is_err(), "{text}");
        }
    }
}
