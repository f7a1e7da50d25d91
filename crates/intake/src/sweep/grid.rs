use std::collections::HashMap;
use std::io::Write;

use packhorse_model::SweepSpec;

use super::axis::{SweepAxis, axes};
use super::cursor::SweepCommands;
use super::error::{SweepError, SweepWriteError, TemplateError, TemplateProblem};
use super::parameter::Parameter;
use super::permutation::Permutation;
use super::pieces::{Placeholders, TemplatePiece, pieces};
use crate::excerpt::quoted;
use crate::lines::Separator;
use crate::nearest::nearest;

/// How much is written at a time.
const BLOCK: usize = 64 << 10;

/// A template with all the combinations of its parameters.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub(super) parts: Vec<Part>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) axes: Vec<SweepAxis>,
    /// For each axis the first part that shows it.
    pub(super) first_part: Vec<usize>,
    pub(super) permutation: Option<Permutation>,
    len: u128,
}

/// A piece of the template with its parameter found.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Literal(String),
    Value { parameter: usize, axis: usize },
}

/// How the parameters of a sweep are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepLanguage {
    /// `1..5` and the like stand for several values, and each parameter is used.
    Packhorse,
    /// As in the original: values are text, and a parameter may be unused. It
    /// multiplies the combinations all the same.
    Original,
}

impl Sweep {
    /// Checks everything, and computes nothing yet.
    ///
    /// Each parameter changes faster than those before it, unless a seed shuffles the
    /// combinations: the same gives the same order on every machine, and a limit of it is a
    /// sample without replacement.
    pub fn new(spec: &SweepSpec, language: SweepLanguage) -> Result<Self, SweepError> {
        let template = spec.template.as_str();
        let wrong = |place, problem| TemplateError::new(1, template.as_bytes(), place, problem);
        let pieces = pieces(template, Placeholders::Named)
            .map_err(|(place, problem)| wrong(place, problem))?;
        let read = match language {
            SweepLanguage::Packhorse => Parameter::parse,
            SweepLanguage::Original => Parameter::literal,
        };
        let parameters = spec.parameters.iter();
        let parameters = parameters.map(|(name, values)| read(name, values));
        let parameters: Vec<Parameter> = parameters.collect::<Result<_, _>>()?;
        let mut index_of = HashMap::new();
        for (index, parameter) in parameters.iter().enumerate() {
            if index_of.insert(parameter.name(), index).is_some() {
                return Err(SweepError::Twice(parameter.quoted_name()));
            }
        }
        let axes = axes(&parameters, &spec.zips)?;
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            parts.push(match piece {
                TemplatePiece::Literal(text) => Part::Literal(text),
                TemplatePiece::Placeholder { name, place } => {
                    let Some(&parameter) = index_of.get(name.as_str()) else {
                        let nearest = nearest(&name, parameters.iter().map(Parameter::name));
                        let problem = TemplateProblem::Unknown {
                            nearest: nearest.map(str::to_owned),
                            dollar: template[..place.start].ends_with('$'),
                            name: quoted(name.as_bytes()),
                        };
                        return Err(wrong(place, problem).into());
                    };
                    let has_it = |axis: &SweepAxis| axis.members.contains(&parameter);
                    Part::Value { parameter, axis: axes.iter().position(has_it).unwrap_or(0) }
                }
            });
        }
        let is_shown = |index: usize| {
            let shows =
                |part: &Part| matches!(part, Part::Value { parameter, .. } if *parameter == index);
            parts.iter().any(shows)
        };
        let unused = (0..parameters.len()).find(|&index| !is_shown(index));
        if let Some(unused) = unused.filter(|_| language == SweepLanguage::Packhorse) {
            return Err(SweepError::Unused(parameters[unused].quoted_name()));
        }

        let total = axes
            .iter()
            .try_fold(1_u128, |total, axis| total.checked_mul(axis.len))
            .ok_or(SweepError::TooMany)?;
        let first_part = |wanted: usize| {
            let shows = |part: &Part| matches!(part, Part::Value { axis, .. } if *axis == wanted);
            parts.iter().position(shows).unwrap_or(parts.len())
        };
        Ok(Self {
            first_part: (0..axes.len()).map(first_part).collect(),
            parts,
            axes,
            permutation: spec.seed.map(|seed| Permutation::new(total, seed)),
            len: spec.limit.map_or(total, |limit| total.min(limit.into())),
            parameters,
        })
    }

    /// How many commands there are.
    pub fn len(&self) -> u128 {
        self.len
    }

    /// Whether there are none, because none were asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The command at `index` of the order.
    pub fn command(&self, index: u128) -> Option<Vec<u8>> {
        if index >= self.len {
            return None;
        }
        let mut digits = vec![0; self.axes.len()];
        self.for_each_digit(index, |axis, digit| digits[axis] = digit);
        let mut command = Vec::new();
        for part in &self.parts {
            self.push_part(part, &digits, &mut command);
        }
        Some(command)
    }

    /// The parameters' values in the command at `index` of the order, by name.
    pub fn values(&self, index: u128) -> Vec<(&str, String)> {
        if index >= self.len {
            return Vec::new();
        }
        let mut values = vec![String::new(); self.parameters.len()];
        self.for_each_digit(index, |axis, digit| {
            for &member in &self.axes[axis].members {
                let mut value = Vec::new();
                self.parameters[member].push_value(digit, &mut value);
                values[member] = String::from_utf8_lossy(&value).into_owned();
            }
        });
        let names = self.parameters.iter().map(Parameter::name);
        names.zip(values).collect()
    }

    /// The commands one after the other.
    pub fn commands(&self) -> SweepCommands<'_> {
        SweepCommands::new(self)
    }

    /// Whether every command would be one line, or one item.
    pub fn check_separator(&self, separator: Separator) -> Result<(), SweepError> {
        let byte = separator.byte();
        let place = self.parts.iter().find_map(|part| match part {
            Part::Literal(text) if text.as_bytes().contains(&byte) => Some("the template".into()),
            Part::Value { parameter, .. } if self.parameters[*parameter].contains(byte) => {
                let name = self.parameters[*parameter].quoted_name();
                Some(format!("a value of parameter `{name}`"))
            }
            _ => None,
        });
        let null = separator == Separator::Null;
        place.map_or(Ok(()), |place| Err(SweepError::Separator { place, null }))
    }

    /// Writes every command with the separator after it.
    pub fn write_to(
        &self,
        out: &mut impl Write,
        separator: Separator,
    ) -> Result<(), SweepWriteError> {
        self.check_separator(separator)?;
        let mut block = Vec::with_capacity(BLOCK + BLOCK / 4);
        let mut commands = self.commands();
        while let Some(command) = commands.advance() {
            block.extend_from_slice(command);
            block.push(separator.byte());
            if block.len() >= BLOCK {
                out.write_all(&block)?;
                block.clear();
            }
        }
        out.write_all(&block)?;
        out.flush()?;
        Ok(())
    }

    /// Tells where on each axis the command at `index` of the order is.
    pub(super) fn for_each_digit(&self, index: u128, mut tell: impl FnMut(usize, u128)) {
        let mut rest = match &self.permutation {
            None => index,
            Some(permutation) => permutation.get(index),
        };
        for (axis, len) in self.axes.iter().map(|axis| axis.len).enumerate().rev() {
            let (quotient, digit) = super::permutation::divide(rest, len);
            tell(axis, digit);
            rest = quotient;
        }
    }

    pub(super) fn push_part(&self, part: &Part, digits: &[u128], out: &mut Vec<u8>) {
        match part {
            Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
            Part::Value { parameter, axis } => {
                self.parameters[*parameter].push_value(digits[*axis], out);
            }
        }
    }
}
