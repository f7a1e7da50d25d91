use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::written;

/// Thousandths of a GPU or of a core. Whole numbers, so that shares add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Milli(pub u32);

/// An amount of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Text that should have been an amount or an id, and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseValueError {
    text: String,
    expected: &'static str,
}

impl ParseValueError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

impl Milli {
    /// One whole GPU.
    pub const ONE: Self = Self(1000);

    /// A decimal number or a fraction. Thirds and sevenths round down, so that
    /// three thirds still fit; anything finer than a thousandth is refused
    /// rather than becoming nothing. `expected` and `finest` say what the text
    /// should have been.
    pub(crate) fn parse(
        text: &str,
        expected: &'static str,
        finest: &'static str,
    ) -> Result<Self, ParseValueError> {
        let wrong = || ParseValueError::new(text, expected);
        if let Some((over, under)) = text.split_once('/') {
            let over: u32 = over.trim().parse().map_err(|_| wrong())?;
            let under: u32 = under.trim().parse().map_err(|_| wrong())?;
            let milli = over.checked_mul(1000).and_then(|m| m.checked_div(under));
            let milli = milli.filter(|milli| over == 0 || *milli > 0);
            return milli.map(Self).ok_or_else(wrong);
        }
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let mut digits = whole.bytes().chain(part.bytes()).peekable();
        if digits.peek().is_none() || !digits.all(|digit| digit.is_ascii_digit()) {
            return Err(wrong());
        }
        let part = part.trim_end_matches('0');
        if part.len() > 3 {
            return Err(ParseValueError::new(text, finest));
        }
        let milli = format!("{whole}{part:0<3}").parse();
        milli.map(Self).map_err(|_| wrong())
    }
}

impl FromStr for Milli {
    type Err = ParseValueError;

    /// A number of cores: `4`, `1.5`, `1/3`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "a number of cores, such as 4, 1.5 or 1/3";
        Self::parse(text, expected, "a whole number of thousandths of a core")
    }
}

impl fmt::Display for Milli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1000, self.0 % 1000);
        if part == 0 {
            whole.fmt(f)
        } else {
            let part = format!("{part:03}");
            write!(f, "{whole}.{}", part.trim_end_matches('0'))
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let power = (self.0.ilog2() / 10).min(5);
        let unit = UNITS[power as usize - 1];
        let tenths = u128::from(self.0) * 10 / (1_u128 << (10 * power));
        if tenths >= 1000 {
            write!(f, "{} {unit}", tenths / 10)
        } else {
            write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
        }
    }
}

impl FromStr for Bytes {
    type Err = ParseValueError;

    /// `9G`, `9GiB`, `1.5 GB`, `512M`: units are powers of 1024 however they are
    /// written, as they are with GPUs. A number alone is refused, since nobody
    /// means 9 bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseValueError::new(text, "an amount of memory, such as 9G or 512M");
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let value: f64 = text[..end].parse().map_err(|_| wrong())?;
        let unit = text[end..].trim_start().to_ascii_lowercase();
        let power = match unit.strip_suffix('b').unwrap_or(&unit).trim_end_matches('i') {
            "" if unit == "b" => 0,
            "k" => 1,
            "m" => 2,
            "g" => 3,
            "t" => 4,
            _ => return Err(wrong()),
        };
        let bytes = (value * 1024_f64.powi(power)).round();
        // Beyond this a float is no whole number any more, nor is there such a GPU.
        if !(1.0..1e15).contains(&bytes) {
            return Err(wrong());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        Ok(Self(bytes as u64))
    }
}

impl Serialize for Milli {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1000.0)
    }
}

written::parsed!(Milli);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let amount = written::Amount::deserialize(deserializer)?;
        match amount.whole() {
            Some(bytes) => Ok(Self(bytes)),
            None => amount.parse(),
        }
    }
}

/// A length of time as people write it: `90` (seconds), `1.5h`, `2h30m`, `500ms`, `1d`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseValueError> {
    let wrong = || ParseValueError::new(text, "a length of time, such as 90s, 30m, 2h30m or 1d");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let value: f64 = rest[..end].parse().map_err(|_| wrong())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        total += value
            * match &rest[..end] {
                "ms" => 0.001,
                "" | "s" | "sec" => 1.0,
                "m" | "min" => 60.0,
                "h" => 3600.0,
                "d" => 86400.0,
                _ => return Err(wrong()),
            };
        rest = &rest[end..];
    }
    match Duration::try_from_secs_f64(total) {
        // A thousand years: what is longer would overflow somebody's clock.
        Ok(duration) if !duration.is_zero() && total < 3.2e10 => Ok(duration),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_print_as_they_were_written() {
        for text in ["0.5", "1", "0.333", "2", "0.05", "0.001"] {
            assert_eq!(text.parse::<Milli>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn memory_prints_in_the_unit_that_fits() {
        for (bytes, wanted) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (24 << 30, "24.0 GiB"),
            (80 * (1 << 30) + (1 << 29), "80.5 GiB"),
            (1000 << 20, "1000 MiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), wanted);
        }
    }

    #[test]
    fn memory_reads_as_people_write_it() {
        for (text, wanted) in [
            ("9G", 9 << 30),
            ("9GiB", 9 << 30),
            ("9 gb", 9 << 30),
            ("1.5g", 3 << 29),
            ("512M", 512 << 20),
            ("80000MiB", 80_000 << 20),
            ("100B", 100),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(wanted)), "{text}");
        }
        for text in ["", "9", "G", "-1G", "0G", "9X", "1e3G", "9 G B", "99999999T"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, millis) in [
            ("90", 90_000),
            ("90s", 90_000),
            ("500ms", 500),
            ("2h", 7_200_000),
            ("2h30m", 9_000_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "h", "2x", "-1", "1..2", "1e400", "99999999999", "5 minutes", "∞"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
