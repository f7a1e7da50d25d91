//! `log:lo..hi:n`: n numbers evenly spaced in their logarithm.

use super::error::ParameterProblem;
use super::range::Dotted;
use crate::excerpt::quoted;

/// What C's `%g` prints, unless the values are closer together.
const LEAST_DIGITS: u32 = 6;

/// Beyond these, digits say more about the computer than about the number.
const MOST_DIGITS: u32 = 15;

/// How many values are computed ahead: usually there are a handful, used over and
/// over.
const KEPT: u64 = 1024;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Logarithmic {
    first: f64,
    last: f64,
    len: u64,
    digits: u32,
    kept: Vec<String>,
}

impl Logarithmic {
    pub fn new(dotted: &Dotted<'_>, value: &str) -> Result<Self, ParameterProblem> {
        let quote = || quoted(value.as_bytes());
        let len = dotted.extra.and_then(|count| count.parse::<u64>().ok());
        let Some(len) = len.filter(|&len| len >= 2) else {
            return Err(ParameterProblem::LogCount(quote()));
        };
        let end = |text: &str| {
            let number = text.parse::<f64>().ok();
            number
                .filter(|number| number.is_finite() && *number > 0.0)
                .ok_or_else(|| ParameterProblem::LogEnds(quote()))
        };
        let (first, last) = (end(dotted.first)?, end(dotted.last)?);
        let digits = digits_to_tell_apart(first, last, len)
            .ok_or_else(|| ParameterProblem::LogCrowded(quote()))?;
        let mut all = Self { first, last, len, digits, kept: Vec::new() };
        if len <= KEPT {
            all.kept = (0..len).map(|index| all.value(index)).collect();
        }
        Ok(all)
    }

    pub fn len(&self) -> u128 {
        u128::from(self.len)
    }

    pub fn push_value(&self, index: u128, out: &mut Vec<u8>) {
        let index = u64::try_from(index).unwrap_or(u64::MAX);
        let kept = usize::try_from(index).ok().and_then(|i| self.kept.get(i));
        match kept {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(self.value(index).as_bytes()),
        }
    }

    fn value(&self, index: u64) -> String {
        if index == 0 {
            return general(&format!("{:e}", self.first));
        }
        if index >= self.len - 1 {
            return general(&format!("{:e}", self.last));
        }
        let part = as_float(index) / as_float(self.len - 1);
        // To base 10, so that decades come out as the numbers they are.
        let (from, to) = (self.first.log10(), self.last.log10());
        let number = 10_f64.powf(from + part * (to - from));
        general(&format!("{number:.*e}", self.digits as usize - 1))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "where it would matter, the values are refused as too close together"
)]
fn as_float(number: u64) -> f64 {
    number as f64
}

/// How many digits it takes for neighbours to print differently.
fn digits_to_tell_apart(first: f64, last: f64, len: u64) -> Option<u32> {
    let decades = (last.log10() - first.log10()).abs() / as_float(len - 1);
    let ratio = (decades * std::f64::consts::LN_10).exp_m1();
    (LEAST_DIGITS..=MOST_DIGITS).find(|&digits| {
        let last_digit = 10_f64.powi(1 - digits.cast_signed());
        ratio >= 2.0 * last_digit
    })
}

/// Lays out `d.ddde-5` as Python prints a float, without the zeros at its end:
/// `0.001`, `1e-05`, `1000000`.
fn general(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let magnitude = exponent.unsigned_abs() as usize;
    match exponent {
        0..16 if magnitude >= fraction.len() => {
            digits.clone() + &"0".repeat(magnitude - fraction.len())
        }
        0..16 => {
            let (before, after) = digits.split_at(magnitude + 1);
            format!("{before}.{after}")
        }
        -4..0 => format!("0.{}{digits}", "0".repeat(magnitude - 1)),
        _ => {
            let point = if fraction.is_empty() { "" } else { "." };
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{whole}{point}{fraction}e{sign}{magnitude:02}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_is_laid_out_as_python_does_it() {
        for (number, wanted) in [
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-5, "1.5e-05"),
            (0.1, "0.1"),
            (0.25, "0.25"),
            (1.0, "1"),
            (12.5, "12.5"),
            (100.0, "100"),
            (1e6, "1000000"),
            (1_234_567.5, "1234567.5"),
            (1e15, "1000000000000000"),
            (1e16, "1e+16"),
            (2.5e100, "2.5e+100"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(general(&format!("{number:e}")), wanted);
        }
    }
}
