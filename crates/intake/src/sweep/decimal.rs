//! Numbers as people write them, kept as they are: 0.1 is one tenth.

use std::io::Write as _;

/// As many digits as can be brought to a common scale and still be counted.
const MOST_DIGITS: usize = 30;

/// `mantissa` × 10^-`scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    pub mantissa: i128,
    /// How many digits there are after the point.
    pub scale: u32,
    /// How many there are before it, if that was meant: 007 has three.
    pub width: u32,
}

/// A number with more digits than we can compute with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyDigits;

/// The parts of a number, if the text is one.
struct Parts<'a> {
    sign: &'a str,
    whole: &'a str,
    fraction: &'a str,
    exponent: &'a str,
}

/// Whether the text is a number: `-1`, `0.5`, `.5`, `1e-4`.
pub(super) fn is_number(text: &str) -> bool {
    Parts::of(text).is_some()
}

impl Decimal {
    /// The number, if the text is one.
    pub fn parse(text: &str) -> Option<Result<Self, TooManyDigits>> {
        Parts::of(text).map(|parts| parts.decimal().ok_or(TooManyDigits))
    }

    /// The mantissa that the same number has at a larger scale.
    pub fn at_scale(self, scale: u32) -> Result<i128, TooManyDigits> {
        10_i128
            .checked_pow(scale.saturating_sub(self.scale))
            .and_then(|factor| self.mantissa.checked_mul(factor))
            .ok_or(TooManyDigits)
    }

    /// Appends it with every digit of its scale.
    pub fn push_to(self, out: &mut Vec<u8>) {
        let scale = self.scale as usize;
        let least = scale + (self.width as usize).max(1);
        if self.mantissa < 0 {
            out.push(b'-');
        }
        // Nothing that is written to a vector can fail.
        let _ = write!(out, "{:0least$}", self.mantissa.unsigned_abs());
        if scale > 0 {
            out.insert(out.len() - scale, b'.');
        }
    }
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (sign, unsigned) = text.split_at(usize::from(text.starts_with(['-', '+'])));
        let (number, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = match number.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (number, ""),
        };
        let magnitude = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let are_digits =
            |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let is_number = are_digits(&[whole, fraction].concat()) && are_digits(magnitude);
        is_number.then_some(Self { sign, whole, fraction, exponent })
    }

    fn decimal(&self) -> Option<Decimal> {
        let (whole, fraction) = (self.whole, self.fraction);
        let exponent: i32 = self.exponent.parse().ok()?;
        let most = whole.len() + fraction.len();
        if most.max(exponent.unsigned_abs() as usize) > MOST_DIGITS {
            return None;
        }
        let mut mantissa: i128 = format!("{}{whole}{fraction}", self.sign).parse().ok()?;
        let scale = i32::try_from(fraction.len()).ok()? - exponent;
        if scale < 0 {
            mantissa = mantissa.checked_mul(10_i128.checked_pow(scale.unsigned_abs())?)?;
        }
        let is_padded = whole.len() > 1 && whole.starts_with('0');
        let width = if is_padded { whole.len() } else { 0 };
        Some(Decimal {
            mantissa,
            scale: scale.max(0).unsigned_abs(),
            width: u32::try_from(width).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_prints_with_the_digits_it_was_written_with() {
        for (text, wanted) in [
            ("0", "0"),
            ("-0", "0"),
            ("+7", "7"),
            ("007", "007"),
            ("-07", "-07"),
            ("0.50", "0.50"),
            (".5", "0.5"),
            ("-.25", "-0.25"),
            ("1e3", "1000"),
            ("1.5e3", "1500"),
            ("1e-4", "0.0001"),
            ("12.5E-1", "1.25"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            let mut out = Vec::new();
            Decimal::parse(text).unwrap().unwrap().push_to(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "", "-", ".", "1.", "e5", "1e", "1e+", "1e5.0", "0x10", "inf", "nan", "1_000", "--1",
            "1 ", "٣",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_too_long_to_compute_with_is_refused() {
        for text in ["1e31", "1e-31", "1e99999999999", &"9".repeat(31)] {
            assert_eq!(Decimal::parse(text), Some(Err(TooManyDigits)), "{text}");
        }
    }
}
