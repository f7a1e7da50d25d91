use std::time::{Duration, Instant};

use packhorse_model::Bytes;

use crate::{Health, Memory, Percent, Xid};

/// What a [`Watch`](crate::Watch) has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// How a unit is.
    Sample(Sample),
    /// The driver reported an error of a unit's device. Every unit that has a
    /// part of the device gets the report.
    Xid {
        /// The unit's place among those that are watched.
        unit: usize,
        /// The error.
        xid: Xid,
    },
}

/// How a unit was, from `at` until `took` later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The unit's place among those that are watched.
    pub unit: usize,
    /// When reading began: what happened before is in the sample.
    pub at: Instant,
    /// How long it took.
    pub took: Duration,
    /// One for each member of the unit, in order.
    pub members: Vec<Reading>,
}

/// How a device or MIG instance is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its memory.
    pub memory: Option<Memory>,
    /// Who holds memory of it, by process id. `None`: the driver does not tell,
    /// which is not the same as nobody.
    pub processes: Option<Vec<Held>>,
    /// How busy it is.
    pub utilisation: Option<Percent>,
    /// Whether it works.
    pub health: Health,
}

/// What a process holds of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The process.
    pub pid: u32,
    /// How much. `None`: the driver does not tell.
    pub memory: Option<Bytes>,
}

impl Reading {
    /// A device that does not work.
    pub(crate) fn lost(reason: String) -> Self {
        Self {
            memory: None,
            processes: None,
            utilisation: None,
            health: Health::Lost(reason),
        }
    }
}
