use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// One line of metrics: the values that an attempt printed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricLine {
    /// The values by their names, all of them finite.
    pub values: BTreeMap<String, f64>,
    /// Where in the work they were measured, such as the number of an epoch.
    pub step: Option<f64>,
}

/// Why what follows [`MetricLine::PREFIX`] on a line is no metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricLineError {
    /// It goes on for too long.
    #[error("it is longer than {} KiB", MetricLine::LONGEST / 1024)]
    TooLong,
    /// It is something else than JSON.
    #[error("it is not JSON")]
    NotJson,
    /// JSON has no such numbers.
    #[error("NaN and Infinity are not finite numbers")]
    NotFinite,
    /// It is JSON, but no object.
    #[error("it is not a JSON object")]
    NotAnObject,
    /// A value is something else than a number.
    #[error("`{name}` is not a finite number")]
    NotANumber { name: String },
    /// A name is empty, or goes on for too long.
    #[error("names have 1 to {} bytes", MetricLine::LONGEST_NAME)]
    WrongName,
}

impl MetricLine {
    /// What a line of output begins with if metrics follow.
    pub const PREFIX: &[u8] = b"packhorse: ";

    /// How many bytes may follow.
    pub const LONGEST: usize = 64 * 1024;

    /// How many bytes a name may have.
    pub const LONGEST_NAME: usize = 200;

    /// The member that is no metric, but says where the others were measured.
    const STEP: &str = "step";

    /// Reads what follows the prefix: a JSON object of numbers. `None` if it is not
    /// right: [`MetricLine::explain`] says why.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut values: BTreeMap<String, f64> = serde_json::from_slice(text).ok()?;
        let step = values.remove(Self::STEP);
        let names = values.keys().all(|name| is_name(name));
        names.then_some(Self { values, step })
    }

    /// Why [`MetricLine::parse`] does not take this.
    pub fn explain(text: &[u8]) -> MetricLineError {
        let Ok(value) = serde_json::from_slice::<Value>(text) else {
            // What Python's `json` and others write all the same.
            let has = |word: &str| text.windows(word.len()).any(|part| part == word.as_bytes());
            return if has("NaN") || has("Infinity") {
                MetricLineError::NotFinite
            } else {
                MetricLineError::NotJson
            };
        };
        let Value::Object(members) = value else {
            return MetricLineError::NotAnObject;
        };
        if !members.keys().all(|name| is_name(name)) {
            return MetricLineError::WrongName;
        }
        let wrong = members.into_iter().find(|(_, value)| !value.is_number());
        let name = wrong.map_or_else(String::new, |(name, _)| name);
        MetricLineError::NotANumber { name }
    }
}

fn is_name(name: &str) -> bool {
    (1..=MetricLine::LONGEST_NAME).contains(&name.len())
}

/// What is kept of the values that one attempt printed under one name.
///
/// All of them are finite: JSON has no way to write anything else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricSummary {
    /// The value that was printed last.
    #[serde(serialize_with = "number::serialize")]
    pub last: f64,
    /// The lowest value.
    #[serde(serialize_with = "number::serialize")]
    pub lowest: f64,
    /// The highest value.
    #[serde(serialize_with = "number::serialize")]
    pub highest: f64,
    /// How many values there were.
    pub count: u64,
}

impl MetricSummary {
    /// The summary of a single value.
    pub const fn of(value: f64) -> Self {
        Self { last: value, lowest: value, highest: value, count: 1 }
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

/// Numbers as people write them: whole ones without a fraction.
pub(crate) mod number {
    use super::{BTreeMap, Serialize, Serializer};

    struct Written(f64);

    impl Serialize for Written {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serialize(&self.0, serializer)
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field as it is")]
    pub(crate) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        // From 2^53 on, a float may stand for another number than the one that was meant.
        const EXACT: f64 = 9e15;
        if number.fract() == 0.0 && number.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number within the range")]
            serializer.serialize_i64(*number as i64)
        } else {
            serializer.serialize_f64(*number)
        }
    }

    /// The same where there may be none.
    #[expect(clippy::ref_option, reason = "serde passes the field as it is")]
    pub(crate) fn option<S: Serializer>(
        number: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        number.map(Written).serialize(serializer)
    }

    /// The same for several with names.
    pub(crate) fn map<S: Serializer>(
        numbers: &BTreeMap<String, f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(numbers.iter().map(|(name, number)| (name, Written(*number))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_object_of_finite_numbers() {
        let line = MetricLine::parse(br#" {"loss": 0.1, "step": 3, "n": -2e3} "#).unwrap();
        assert_eq!(line.step, Some(3.0));
        let values = [("loss", 0.1), ("n", -2000.0)].map(|(name, value)| (name.to_owned(), value));
        assert_eq!(line.values, BTreeMap::from(values));
        assert_eq!(MetricLine::parse(b"{}"), Some(MetricLine::default()));
    }

    #[test]
    fn what_is_no_line_of_metrics_is_explained() {
        let not_a_number = |name: &str| MetricLineError::NotANumber { name: name.to_owned() };
        let long = format!("{{\"{}\": 1}}", "x".repeat(201));
        let deep = "[".repeat(1000);
        for (text, wanted) in [
            ("", MetricLineError::NotJson),
            ("hello", MetricLineError::NotJson),
            (r#"{"loss": 0.1"#, MetricLineError::NotJson),
            (r#"{"loss": 0.1} and more"#, MetricLineError::NotJson),
            (r#"{"loss": 1e999}"#, MetricLineError::NotJson),
            (&deep, MetricLineError::NotJson),
            (r#"{"loss": NaN}"#, MetricLineError::NotFinite),
            (r#"{"loss": -Infinity}"#, MetricLineError::NotFinite),
            ("[0.1]", MetricLineError::NotAnObject),
            ("0.1", MetricLineError::NotAnObject),
            (r#"{"loss": 1, "name": "x"}"#, not_a_number("name")),
            (r#"{"loss": null}"#, not_a_number("loss")),
            (r#"{"loss": true}"#, not_a_number("loss")),
            (r#"{"loss": {"a": 1}}"#, not_a_number("loss")),
            (r#"{"step": "one"}"#, not_a_number("step")),
            (&long, MetricLineError::WrongName),
            (r#"{"": 1}"#, MetricLineError::WrongName),
        ] {
            assert_eq!(MetricLine::parse(text.as_bytes()), None, "{text}");
            assert_eq!(MetricLine::explain(text.as_bytes()), wanted, "{text}");
        }
        let invalid = b"{\"\xff\": 1}";
        assert_eq!(MetricLine::parse(invalid), None);
        assert_eq!(MetricLine::explain(invalid), MetricLineError::NotJson);
    }

    #[test]
    fn whole_numbers_are_written_without_a_fraction() {
        let summary = MetricSummary { last: 3.0, lowest: 0.5, highest: 1e300, count: 2 };
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(json, r#"{"last":3,"lowest":0.5,"highest":1e+300,"count":2}"#);
        assert_eq!(serde_json::from_str::<MetricSummary>(&json).unwrap(), summary);
    }

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
        let whole = MetricSummary { last: 2.0, lowest: -1.0, highest: 3.0, count: 4 };
        assert_eq!(parts, whole);
    }
}
