use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// One line of metrics: the values that an attempt printed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricLine {
    /// The values by their names. NaN and infinity are values: that is how a training ends
    /// that has diverged.
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
    /// It is JSON, but no object.
    #[error("it is not a JSON object")]
    NotAnObject,
    /// A value is something else than a number.
    #[error("`{name}` is not a number")]
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

    /// Reads what follows the prefix: a JSON object of numbers, among them `NaN`,
    /// `Infinity` and `-Infinity` as Python writes them, and the same words as text.
    /// `None` if it is not right: [`MetricLine::explain`] says why.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let values = serde_json::from_slice::<BTreeMap<String, f64>>(text);
        let mut values = values.or_else(|_| number::read_words(text)).ok()?;
        let step = values.remove(Self::STEP).filter(|step| step.is_finite());
        let names = values.keys().all(|name| is_name(name));
        names.then_some(Self { values, step })
    }

    /// Why [`MetricLine::parse`] does not take this.
    pub fn explain(text: &[u8]) -> MetricLineError {
        let Ok(value) = serde_json::from_slice::<Value>(&number::quote_words(text)) else {
            return MetricLineError::NotJson;
        };
        let Value::Object(members) = value else {
            return MetricLineError::NotAnObject;
        };
        if !members.keys().all(|name| is_name(name)) {
            return MetricLineError::WrongName;
        }
        let is_word = |value: &Value| value.as_str().and_then(number::of_word).is_some();
        let mut members = members.into_iter();
        let wrong = members.find(|(_, value)| !value.is_number() && !is_word(value));
        let name = wrong.map_or_else(String::new, |(name, _)| name);
        MetricLineError::NotANumber { name }
    }
}

fn is_name(name: &str) -> bool {
    (1..=MetricLine::LONGEST_NAME).contains(&name.len())
}

/// What is kept of the values that one attempt printed under one name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricSummary {
    /// The value that was printed last.
    #[serde(with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::MetricNumber"))]
    pub last: f64,
    /// The lowest finite value; the last one if none is finite.
    #[serde(with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::MetricNumber"))]
    pub lowest: f64,
    /// The highest finite value; the last one if none is finite.
    #[serde(with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::MetricNumber"))]
    pub highest: f64,
    /// How many values there were.
    pub count: u64,
}

impl MetricSummary {
    /// The summary of a single value.
    pub const fn of(value: f64) -> Self {
        Self { last: value, lowest: value, highest: value, count: 1 }
    }

    /// Whether the values ended with one that is not finite.
    pub const fn is_diverged(&self) -> bool {
        !self.last.is_finite()
    }

    /// Counts one more value, the latest.
    pub fn add(&mut self, value: f64) {
        self.append(&Self::of(value));
    }

    /// Counts values that came after these.
    pub fn append(&mut self, later: &Self) {
        self.last = later.last;
        self.lowest = finite(self.lowest, later.lowest, f64::min);
        self.highest = finite(self.highest, later.highest, f64::max);
        self.count = self.count.saturating_add(later.count);
    }
}

/// Chooses between two finite numbers; else takes the finite one, else the later.
fn finite(earlier: f64, later: f64, choose: fn(f64, f64) -> f64) -> f64 {
    match (earlier.is_finite(), later.is_finite()) {
        (true, true) => choose(earlier, later),
        (true, false) => earlier,
        (false, _) => later,
    }
}

/// Numbers as people write them: whole ones without a fraction. JSON has no others than
/// finite ones, so `"NaN"`, `"Infinity"` and `"-Infinity"` are text.
pub(crate) mod number {
    use serde::de::Error as _;

    use super::{BTreeMap, Deserialize, Deserializer, Serialize, Serializer};

    pub(super) struct Written(pub(super) f64);

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        Number(f64),
        Word(String),
    }

    impl<'de> Deserialize<'de> for Written {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            match Read::deserialize(deserializer)? {
                Read::Number(number) => Ok(Self(number)),
                Read::Word(word) => of_word(&word)
                    .map(Self)
                    .ok_or_else(|| D::Error::custom(format!("`{word}` is not a number"))),
            }
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Written::deserialize(deserializer).map(|Written(number)| number)
    }

    /// The same for several with names.
    pub(crate) fn read_map<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, f64>, D::Error> {
        BTreeMap::deserialize(deserializer).map(plain)
    }

    fn plain(numbers: BTreeMap<String, Written>) -> BTreeMap<String, f64> {
        numbers.into_iter().map(|(name, Written(number))| (name, number)).collect()
    }

    /// Reads numbers with names where they are mixed with words.
    pub(super) fn read_words(text: &[u8]) -> serde_json::Result<BTreeMap<String, f64>> {
        serde_json::from_slice(&quote_words(text)).map(plain)
    }

    /// Reads a word that stands for NaN or infinity.
    pub(super) fn of_word(word: &str) -> Option<f64> {
        Some(match word.to_ascii_lowercase().as_str() {
            "nan" | "+nan" | "-nan" => f64::NAN,
            "inf" | "+inf" | "infinity" | "+infinity" => f64::INFINITY,
            "-inf" | "-infinity" => f64::NEG_INFINITY,
            _ => return None,
        })
    }

    /// JSON with quotes around such words where they stand as Python and others write them.
    pub(super) fn quote_words(text: &[u8]) -> Vec<u8> {
        let mut quoted = Vec::with_capacity(text.len() + 16);
        let mut rest = text;
        let is_of_word = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'+' | b'-');
        while let Some(&first) = rest.first() {
            let length = if first == b'"' {
                end_of_string(rest)
            } else {
                rest.iter().take_while(|byte| is_of_word(byte)).count().max(1)
            };
            let (token, after) = rest.split_at(length);
            if std::str::from_utf8(token).is_ok_and(|word| of_word(word).is_some()) {
                quoted.push(b'"');
                quoted.extend_from_slice(token);
                quoted.push(b'"');
            } else {
                quoted.extend_from_slice(token);
            }
            rest = after;
        }
        quoted
    }

    /// How long the string is that the text begins with, quotes included.
    fn end_of_string(text: &[u8]) -> usize {
        let mut is_escaped = false;
        let inside = text[1..].iter().take_while(|&&byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            !ends
        });
        (inside.count() + 2).min(text.len())
    }

    impl Serialize for Written {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serialize(&self.0, serializer)
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field as it is")]
    pub(crate) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        // From 2^53 on, a float may stand for another number than the one that was meant.
        const EXACT: f64 = 9e15;
        if !number.is_finite() {
            return serializer.serialize_str(match *number {
                f64::INFINITY => "Infinity",
                f64::NEG_INFINITY => "-Infinity",
                _ => "NaN",
            });
        }
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
            (r#"{"loss": Nan1}"#, MetricLineError::NotJson),
            (r#"{"loss": NaN} and more"#, MetricLineError::NotJson),
            (r#"{"loss": "0.5"}"#, not_a_number("loss")),
            (r#"{"loss": "Na\u004e "}"#, not_a_number("loss")),
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
    fn what_is_not_finite_is_a_value_and_the_others_of_its_line_are_kept() {
        for (text, loss) in [
            (r#"{"loss": NaN, "acc": 0.5, "step": 7}"#, "NaN"),
            (r#"{"loss":Infinity,"acc":0.5,"step":7}"#, "Infinity"),
            (r#"{"acc": 0.5, "loss": -Infinity, "step": 7}"#, "-Infinity"),
            (r#"{"loss": "nan", "acc": 0.5, "step": 7}"#, "NaN"),
            (r#"{"loss": "-inf", "acc": 0.5, "step": 7}"#, "-Infinity"),
            (r#"{"loss": inf, "acc": 0.5, "step": 7}"#, "Infinity"),
        ] {
            let line = MetricLine::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((line.values["acc"], line.step), (0.5, Some(7.0)), "{text}");
            let summary = MetricSummary::of(line.values["loss"]);
            assert!(summary.is_diverged());
            let json = serde_json::to_string(&summary).unwrap();
            let wanted =
                format!(r#"{{"last":"{loss}","lowest":"{loss}","highest":"{loss}","count":1}}"#);
            assert_eq!(json, wanted, "{text}");
            let again: MetricSummary = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), json);
        }
        let line = MetricLine::parse(br#"{"a\"NaN": 1, "NaN": NaN, "step": NaN}"#).unwrap();
        assert_eq!((line.values["a\"NaN"], line.step), (1.0, None));
        assert!(line.values["NaN"].is_nan());
    }

    #[test]
    fn the_lowest_and_the_highest_are_finite_if_any_value_is() {
        for (values, last, lowest, highest) in [
            (&[0.5, f64::NAN][..], "NaN", "0.5", "0.5"),
            (&[f64::NAN, 2.0, f64::NEG_INFINITY, 1.0], "1", "1", "2"),
            (&[f64::INFINITY, f64::NAN], "NaN", "NaN", "NaN"),
            (&[f64::NAN, f64::INFINITY], "inf", "inf", "inf"),
        ] {
            for cut in 1..values.len() {
                let of = |values: &[f64]| {
                    let mut summary = MetricSummary::of(values[0]);
                    values[1..].iter().for_each(|value| summary.add(*value));
                    summary
                };
                let mut summary = of(&values[..cut]);
                summary.append(&of(&values[cut..]));
                let all = [summary.last, summary.lowest, summary.highest].map(|it| it.to_string());
                assert_eq!(all, [last, lowest, highest], "{values:?}");
                assert_eq!(summary.count, values.len() as u64);
            }
        }
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
