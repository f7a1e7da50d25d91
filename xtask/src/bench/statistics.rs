//! Medians, and values with their units.

use std::fmt;
use std::time::Duration;

/// A value, with how many decimals it is shown, and its unit.
#[derive(Clone, Copy)]
pub struct Measured(pub f64, pub usize, pub &'static str);

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, decimals, unit) = self;
        write!(f, "{value:.decimals$}{unit}")
    }
}

/// How much of another value it is.
pub fn ratio(value: f64) -> Measured {
    Measured(value, 3, "")
}

pub fn microseconds(nanoseconds: f64) -> Measured {
    Measured(nanoseconds / 1e3, 2, " µs")
}

#[expect(clippy::cast_precision_loss, reason = "less than 2^53 bytes")]
pub fn megabytes(bytes: u64) -> Measured {
    Measured(bytes as f64 / 1e6, 1, " MB")
}

/// The middle value, or the mean of the two in the middle; `NaN` if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

/// The median over the rounds of `ours / theirs`, as far as both ran.
pub fn median_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

/// Milliseconds, with their fraction.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value_whatever_the_order() {
        assert!((median([9.0, 1.0, 5.0]) - 5.0).abs() < 1e-9);
        assert!((median([4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median([]).is_nan());
    }

    #[test]
    fn values_are_shown_with_their_units() {
        assert_eq!(megabytes(23_960_000).to_string(), "24.0 MB");
        assert_eq!(microseconds(1234.0).to_string(), "1.23 µs");
        assert_eq!(ratio(1.0).to_string(), "1.000");
    }

    #[test]
    fn ratio_pairs_the_runs_of_one_round() {
        // The machine was twice as slow in the second round, for both alike.
        let ratio = median_ratio(&[90.0, 45.0], &[100.0, 50.0, 20.0]);
        assert!((ratio - 0.9).abs() < 1e-9);
    }
}
