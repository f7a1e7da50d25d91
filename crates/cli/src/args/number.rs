//! Numbers, with messages for people: those of the standard library speak of digits found in
//! strings.

use std::num::{IntErrorKind, NonZeroU32, ParseIntError};
use std::str::FromStr;

/// A whole number.
pub fn whole<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, &'static str> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::Zero => "it must be at least 1",
        IntErrorKind::PosOverflow => "it is too large",
        _ => "it is not a whole number",
    })
}

/// A whole number from 1 on.
pub fn at_least_one(text: &str) -> Result<u32, &'static str> {
    whole(text).map(NonZeroU32::get)
}
