use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, Milli, ParseValueError, parse_duration, written};

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
    /// All that is free, which has to be so much: nobody knows yet what it needs.
    AtLeast(Bytes),
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Priority(pub i32);

/// How much GPU memory a task asks for, as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VramRequest {
    /// `9G`: so much of each of its GPUs.
    Bytes(Bytes),
    /// `auto`: what was learned of commands like it; if nothing was, a GPU to
    /// itself.
    Auto,
    /// `measure`: a GPU to itself, to be measured on it.
    Measure,
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeLimit {
    /// `never`: as long as it likes, even if the run has a limit.
    Never,
    /// This long.
    After(Duration),
}

impl TimeLimit {
    /// The length of time, if there is a limit.
    pub const fn get(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::After(time) => Some(time),
        }
    }
}

impl FromStr for VramRequest {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "measure" => Ok(Self::Measure),
            _ => text.parse().map(Self::Bytes),
        }
    }
}

impl fmt::Display for VramRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Auto => f.write_str("auto"),
            Self::Measure => f.write_str("measure"),
        }
    }
}

impl Serialize for VramRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) => bytes.serialize(serializer),
            word => serializer.collect_str(word),
        }
    }
}

impl<'de> Deserialize<'de> for VramRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let amount = written::Amount::deserialize(deserializer)?;
        match amount.whole() {
            Some(bytes) => Ok(Self::Bytes(Bytes(bytes))),
            None => amount.parse(),
        }
    }
}

impl FromStr for TimeLimit {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "never" => Ok(Self::Never),
            _ => parse_duration(text).map(Self::After),
        }
    }
}

impl Serialize for TimeLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => serializer.serialize_str("never"),
            Self::After(time) => serializer.serialize_f64(time.as_secs_f64()),
        }
    }
}

written::parsed!(TimeLimit);

impl Serialize for GpuRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_u32(0),
            Self::Whole(count) => serializer.serialize_u32(*count),
            Self::Share(share) => share.serialize(serializer),
        }
    }
}

written::parsed!(GpuRequest);

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
    type Err = ParseValueError;

    /// `0`, `2`, `0.5`, `1/3`: nothing, whole devices, or a part of one.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "an amount of GPUs, such as 2, 0.5 or 1/3";
        let milli = Milli::parse(text, expected, "a whole number of thousandths of a GPU")?;
        match milli.0 {
            0 => Ok(Self::None),
            share @ 1..1000 => Ok(Self::Share(Milli(share))),
            whole if whole.is_multiple_of(1000) => Ok(Self::Whole(whole / 1000)),
            _ => Err(ParseValueError::new(
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
    fn amounts_are_read_as_numbers_and_as_text() {
        fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
            serde_json::from_str(json).unwrap()
        }
        assert_eq!(read::<GpuRequest>("0.5"), GpuRequest::Share(Milli(500)));
        assert_eq!(read::<GpuRequest>("2"), GpuRequest::Whole(2));
        assert_eq!(read::<GpuRequest>(r#""1/3""#), GpuRequest::Share(Milli(333)));
        assert_eq!(read::<VramRequest>(r#""9G""#), VramRequest::Bytes(Bytes(9 << 30)));
        assert_eq!(read::<VramRequest>("1024"), VramRequest::Bytes(Bytes(1024)));
        assert_eq!(read::<VramRequest>("9e3"), VramRequest::Bytes(Bytes(9000)));
        assert_eq!(read::<Bytes>("9000.0"), Bytes(9000));
        assert!(serde_json::from_str::<Bytes>("9000.5").is_err());
        assert_eq!(read::<VramRequest>(r#""auto""#), VramRequest::Auto);
        assert_eq!(read::<TimeLimit>("1.5"), TimeLimit::After(Duration::from_millis(1500)));
        assert_eq!(read::<TimeLimit>(r#""2h""#), TimeLimit::After(Duration::from_hours(2)));
        assert_eq!(read::<TimeLimit>(r#""never""#), TimeLimit::Never);
        assert!(serde_json::from_str::<GpuRequest>("1.5").is_err());
        assert!(serde_json::from_str::<GpuRequest>("true").is_err());
    }

    #[test]
    fn amounts_are_read_as_they_were_written() {
        fn again<T>(value: &T)
        where
            T: Serialize + serde::de::DeserializeOwned + PartialEq + fmt::Debug,
        {
            let json = serde_json::to_string(value).unwrap();
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), *value, "{json}");
        }
        for gpus in [GpuRequest::None, GpuRequest::Share(Milli(333)), GpuRequest::Whole(8)] {
            again(&gpus);
        }
        for bytes in [0, 1, u64::MAX] {
            again(&VramRequest::Bytes(Bytes(bytes)));
        }
        again(&VramRequest::Measure);
        again(&TimeLimit::After(Duration::from_micros(1_234_567)));
        again(&TimeLimit::Never);
        again(&Milli(1500));
    }

    #[test]
    fn an_amount_of_cores_is_not_taken_for_one_of_gpus() {
        let error = |text: &str| text.parse::<Milli>().unwrap_err().to_string();
        assert_eq!(error("many"), "`many` is not a number of cores, such as 4, 1.5 or 1/3");
        assert_eq!(error("0.0001"), "`0.0001` is not a whole number of thousandths of a core");
        let error = "many".parse::<GpuRequest>().unwrap_err().to_string();
        assert_eq!(error, "`many` is not an amount of GPUs, such as 2, 0.5 or 1/3");
    }

    #[test]
    fn one_and_a_half_gpus_are_refused() {
        for text in ["1.5", "3/2", "-1", "0.0001", "", "half", "1/0", "nan", "1e3"] {
            assert!(text.parse::<GpuRequest>().is_err(), "{text}");
        }
    }
}
