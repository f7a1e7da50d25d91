use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ParseValueError;

/// The number of a run, such as `12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunId(pub u32);

/// A task of a run, as people type it: `12.3` is the third task of run 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The run it belongs to.
    pub run: RunId,
    /// Its place in the run's input, counted from 1.
    pub number: u32,
}

/// A device of the pool. The number means nothing outside the pool that gave
/// it: it is neither CUDA's index nor NVML's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// A machine of the pool. Opaque, like [`DeviceId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A logical processor of one node, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CoreId(pub u32);

impl TaskId {
    /// The task `number` of `run`.
    pub const fn new(run: RunId, number: u32) -> Self {
        Self { run, number }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.number)
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RunId {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(number) if number > 0 => Ok(Self(number)),
            _ => Err(ParseValueError::new(text, "the number of a run, such as 12")),
        }
    }
}

impl FromStr for TaskId {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('.').and_then(|(run, number)| {
            let number: u32 = number.parse().ok().filter(|&n| n > 0)?;
            Some(Self::new(run.parse().ok()?, number))
        });
        let expected = "a task, such as 12.3 for the third task of run 12";
        parts.ok_or_else(|| ParseValueError::new(text, expected))
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_reads_what_it_prints() {
        let id = TaskId::new(RunId(12), 3);
        assert_eq!(id.to_string(), "12.3");
        assert_eq!("12.3".parse(), Ok(id));
    }

    #[test]
    fn nonsense_is_no_task() {
        for text in ["", "12", "12.", ".3", "0.1", "1.0", "1.2.3", "-1.2", "a.b"] {
            assert!(text.parse::<TaskId>().is_err(), "{text}");
        }
    }
}
