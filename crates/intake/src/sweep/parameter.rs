use super::error::{ParameterProblem, SweepError};
use super::logarithmic::Logarithmic;
use super::range::{Dotted, Steps};
use crate::excerpt::quoted;

/// A name with the values it takes, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parameter {
    name: String,
    /// Each with how many values there are up to its end.
    segments: Vec<(u128, Segment)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Text(String),
    Steps(Steps),
    Logarithmic(Logarithmic),
}

impl Parameter {
    /// Values as they are, whatever they look like.
    pub fn literal<T: AsRef<str>>(name: &str, values: &[T]) -> Result<Self, SweepError> {
        Self::new(name, values, |value| Ok(Segment::Text(value.to_owned())))
    }

    /// Values, ranges of whole numbers or decimals (`1..10`, `0..1:0.1`, both
    /// ends included), and ranges in the logarithm (`log:1e-4..1e-1:4`).
    ///
    /// What only looks like one, such as `../data` or `a..b`, is a value.
    pub fn parse<T: AsRef<str>>(name: &str, values: &[T]) -> Result<Self, SweepError> {
        Self::new(name, values, Segment::parse)
    }

    fn new<T: AsRef<str>>(
        name: &str,
        values: &[T],
        read: impl Fn(&str) -> Result<Segment, ParameterProblem>,
    ) -> Result<Self, SweepError> {
        let wrong = |problem| SweepError::Parameter { name: quoted(name.as_bytes()), problem };
        if name.is_empty() {
            return Err(wrong(ParameterProblem::NoName));
        }
        if values.is_empty() {
            return Err(wrong(ParameterProblem::NoValues));
        }
        let mut segments = Vec::with_capacity(values.len());
        let mut len = 0_u128;
        for value in values {
            let segment = read(value.as_ref()).map_err(wrong)?;
            len = len.checked_add(segment.len()).ok_or(SweepError::TooMany)?;
            segments.push((len, segment));
        }
        let name = name.to_owned();
        Ok(Self { name, segments })
    }

    /// What the template calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name as messages quote it.
    pub(super) fn quoted_name(&self) -> String {
        quoted(self.name.as_bytes())
    }

    /// How many values it has.
    pub(super) fn len(&self) -> u128 {
        self.segments.last().map_or(0, |&(end, _)| end)
    }

    /// Appends the value at `index`, which must be less than [`Self::len`]; if
    /// it is not, nothing is appended.
    pub(super) fn push_value(&self, index: u128, out: &mut Vec<u8>) {
        let at = self.segments.partition_point(|&(end, _)| end <= index);
        if let Some((end, segment)) = self.segments.get(at) {
            segment.push_value(index - (end - segment.len()), out);
        }
    }

    /// Whether the byte is in any of its values. Numbers contain neither
    /// newlines nor NUL bytes.
    pub(super) fn contains(&self, byte: u8) -> bool {
        let has = |text: &String| memchr::memchr(byte, text.as_bytes()).is_some();
        let mut segments = self.segments.iter();
        segments.any(|(_, segment)| matches!(segment, Segment::Text(text) if has(text)))
    }
}

impl Segment {
    fn parse(value: &str) -> Result<Self, ParameterProblem> {
        if let Some(range) = value.strip_prefix("log:") {
            if let Some(dotted) = Dotted::of(range, value)? {
                return Logarithmic::new(&dotted, value).map(Self::Logarithmic);
            }
        } else if let Some(dotted) = Dotted::of(value, value)? {
            return Steps::new(&dotted, value).map(Self::Steps);
        }
        Ok(Self::Text(value.to_owned()))
    }

    fn len(&self) -> u128 {
        match self {
            Self::Text(_) => 1,
            Self::Steps(steps) => steps.len(),
            Self::Logarithmic(all) => all.len(),
        }
    }

    fn push_value(&self, index: u128, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Steps(steps) => steps.push_value(index, out),
            Self::Logarithmic(all) => all.push_value(index, out),
        }
    }
}

#[cfg(test)]
mod tests;
