use std::fmt;
use std::str::FromStr;

use packhorse_model::{Bytes, ParseQuantityError};

/// How much GPU memory a task needs, as people say it: `9G` or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vram {
    /// So much.
    Bytes(Bytes),
    /// What was learned, or will be.
    Auto,
}

impl FromStr for Vram {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Bytes)
    }
}

impl fmt::Display for Vram {
    /// So that it reads as the same again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}B", bytes.0),
            Self::Auto => f.write_str("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_as_the_same() {
        for text in ["auto", "9G", "1.5G", "512M", "7B"] {
            let vram: Vram = text.parse().unwrap();
            assert_eq!(vram.to_string().parse(), Ok(vram), "{text}");
        }
        assert!("9".parse::<Vram>().is_err(), "nine what?");
    }
}
