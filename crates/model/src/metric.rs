use serde::{Deserialize, Serialize};

/// What is kept of the values that one attempt printed under one name.
///
/// All of them are finite: JSON has no way to write anything else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricSummary {
    /// The value that was printed last.
    pub last: f64,
    /// The lowest value.
    pub lowest: f64,
    /// The highest value.
    pub highest: f64,
    /// How many values there were.
    pub count: u64,
}

impl MetricSummary {
    /// The summary of a single value.
    pub const fn of(value: f64) -> Self {
        Self {
            last: value,
            lowest: value,
            highest: value,
            count: 1,
        }
    }

    /// Counts one more value, the latest.
    pub fn add(&mut self, value: f64) {
        self.append(&Self::of(value));
    }

    /// Counts values that came after these.
    pub fn append(&mut self, later: &Self) {
        self.last = later.last;
        self.lowest = self.lowest.min(later.lowest);
        self.highest = self.highest.max(later.highest);
        self.count = self.count.saturating_add(later.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_parts_is_the_summary_of_the_whole() {
        let values = [0.5, -1.0, 3.0, 2.0];
        let of = |values: &[f64]| {
            let mut summary = MetricSummary::of(values[0]);
            values[1..].iter().for_each(|value| summary.add(*value));
            summary
        };
        let mut parts = of(&values[..2]);
        parts.append(&of(&values[2..]));
        assert_eq!(parts, of(&values));
        let whole = MetricSummary {
            last: 2.0,
            lowest: -1.0,
            highest: 3.0,
            count: 4,
        };
        assert_eq!(parts, whole);
    }
}
