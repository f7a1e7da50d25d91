//! `lo..hi` and `lo..hi:step`, both ends included, computed in decimal.

use super::decimal::{Decimal, TooManyDigits, is_number};
use super::error::ParameterProblem;
use crate::excerpt::quoted;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    first: Decimal,
    /// At the scale of the first.
    step: i128,
    len: u128,
}

/// A value that has the form of a range of numbers, or nearly.
pub(super) struct Dotted<'a> {
    pub first: &'a str,
    pub last: &'a str,
    /// What comes after the colon.
    pub extra: Option<&'a str>,
}

impl<'a> Dotted<'a> {
    /// The parts, if both ends are numbers; none if it is other text, such as
    /// `../data`; an error if it can only have been meant as a range. `value`
    /// is what messages quote.
    pub fn of(text: &'a str, value: &str) -> Result<Option<Self>, ParameterProblem> {
        let value = || quoted(value.as_bytes());
        let Some((first, rest)) = text.split_once("..") else {
            return Ok(None);
        };
        let (last, extra) = match rest.split_once(':') {
            Some((last, extra)) => (last, Some(extra)),
            None => (rest, None),
        };
        let open = |end| ParameterProblem::OpenRange { value: value(), end };
        Err(match (is_number(first), is_number(last)) {
            (true, true) if last.starts_with('.') => ParameterProblem::Dots(value()),
            (true, true) => return Ok(Some(Self { first, last, extra })),
            (true, false) if last.is_empty() => open("end"),
            (false, true) if first.is_empty() && !last.starts_with('.') => open("beginning"),
            // The shell writes its step like this: {1..9..2}.
            (true, false) if last.split_once("..").is_some_and(|(l, _)| is_number(l)) => {
                ParameterProblem::Step(value())
            }
            _ => return Ok(None),
        })
    }
}

impl Steps {
    pub fn new(dotted: &Dotted<'_>, value: &str) -> Result<Self, ParameterProblem> {
        let quote = || quoted(value.as_bytes());
        let digits = |_: TooManyDigits| ParameterProblem::Digits(quote());
        let no_step = || ParameterProblem::Step(quote());
        let number = |text| match Decimal::parse(text) {
            Some(number) => number.map_err(digits),
            None => Err(no_step()),
        };
        let first = number(dotted.first)?;
        let last = number(dotted.last)?;
        let given = dotted.extra.map(number).transpose()?;
        if given.is_none() && first.scale.max(last.scale) > 0 {
            return Err(ParameterProblem::NoStep(quote()));
        }
        let step = given.unwrap_or(Decimal { mantissa: 1, scale: 0, width: 0 });

        let scale = first.scale.max(last.scale).max(step.scale);
        let width = first.width.max(last.width);
        let mantissa = first.at_scale(scale).map_err(digits)?;
        let last = last.at_scale(scale).map_err(digits)?;
        let step = step.at_scale(scale).map_err(digits)?;
        let distance = last.checked_sub(mantissa).ok_or_else(|| digits(TooManyDigits))?;
        if step == 0 {
            return Err(ParameterProblem::ZeroStep(quote()));
        }
        if step < 0 && distance > 0 {
            return Err(ParameterProblem::WrongWay(quote()));
        }
        Ok(Self {
            first: Decimal { mantissa, scale, width },
            step: step.abs() * if distance < 0 { -1 } else { 1 },
            len: distance.unsigned_abs() / step.unsigned_abs() + 1,
        })
    }

    pub fn len(&self) -> u128 {
        self.len
    }

    pub fn push_value(&self, index: u128, out: &mut Vec<u8>) {
        let index = i128::try_from(index).unwrap_or(i128::MAX);
        let distance = self.step.saturating_mul(index);
        let mantissa = self.first.mantissa.saturating_add(distance);
        Decimal { mantissa, ..self.first }.push_to(out);
    }
}
