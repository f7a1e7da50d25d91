use std::collections::HashMap;
use std::io::Write;

use super::axis::{SweepAxis, axes};
use super::cursor::SweepCommands;
use super::error::{SweepError, SweepWriteError};
use super::parameter::Parameter;
use super::permutation::Permutation;
use super::pieces::TemplatePiece;
use super::template::Template;
use crate::excerpt::quoted;
use crate::lines::Separator;
use crate::nearest::nearest;

/// How much is written at a time.
const BLOCK: usize = 64 << 10;

/// In which order the combinations come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SweepOrder {
    /// The last parameter changes fastest.
    #[default]
    Grid,
    /// Any, but the same for the same seed, on every machine.
    Shuffled {
        /// What decides the order.
        seed: u64,
    },
}

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

/// A sweep that is being put together.
#[derive(Clone, Debug)]
#[must_use]
pub struct SweepBuilder {
    template: Template,
    parameters: Vec<Parameter>,
    zips: Vec<Vec<String>>,
    order: SweepOrder,
    limit: Option<u64>,
    unused_is_fine: bool,
}

impl SweepBuilder {
    /// Adds a parameter. It changes faster than those added before.
    pub fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Adds several.
    pub fn parameters(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    /// Lets the parameters of these names advance together instead of being
    /// combined each with each.
    pub fn zip<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.zips.push(names.into_iter().map(Into::into).collect());
        self
    }

    /// In which order the combinations come.
    pub fn order(mut self, order: SweepOrder) -> Self {
        self.order = order;
        self
    }

    /// Takes only the first `limit`: of a shuffled order, that is a sample without
    /// replacement.
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Accepts parameters that the template does not show. They multiply the
    /// combinations all the same.
    pub fn allow_unused(mut self) -> Self {
        self.unused_is_fine = true;
        self
    }

    /// Checks everything, and computes nothing yet.
    pub fn build(self) -> Result<Sweep, SweepError> {
        let mut index_of = HashMap::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            if index_of.insert(parameter.name(), index).is_some() {
                return Err(SweepError::Twice {
                    name: quoted(parameter.name().as_bytes()),
                });
            }
        }
        let axes = axes(&self.parameters, &self.zips)?;
        let mut axis_of = vec![0; self.parameters.len()];
        for (axis, members) in axes.iter().map(|axis| &axis.members).enumerate() {
            for &member in members {
                axis_of[member] = axis;
            }
        }

        let mut parts = Vec::with_capacity(self.template.pieces.len());
        for piece in &self.template.pieces {
            parts.push(match piece {
                TemplatePiece::Literal(text) => Part::Literal(text.clone()),
                TemplatePiece::Placeholder { name, place } => {
                    let Some(&parameter) = index_of.get(name.as_str()) else {
                        let nearest = nearest(name, self.parameters.iter().map(Parameter::name));
                        let error = self.template.unknown(name, place.clone(), nearest);
                        return Err(error.into());
                    };
                    Part::Value {
                        parameter,
                        axis: axis_of[parameter],
                    }
                }
            });
        }
        if !self.unused_is_fine {
            check_all_used(&parts, &self.parameters)?;
        }

        let total = axes
            .iter()
            .try_fold(1_u128, |total, axis| total.checked_mul(axis.len))
            .ok_or(SweepError::TooMany)?;
        Ok(Sweep {
            first_part: first_parts(&parts, axes.len()),
            parts,
            axes,
            permutation: match self.order {
                SweepOrder::Grid => None,
                SweepOrder::Shuffled { seed } => Some(Permutation::new(total, seed)),
            },
            len: self.limit.map_or(total, |limit| total.min(limit.into())),
            parameters: self.parameters,
        })
    }
}

impl Sweep {
    /// Begins with a template and no parameters.
    pub fn builder(template: Template) -> SweepBuilder {
        SweepBuilder {
            template,
            parameters: Vec::new(),
            zips: Vec::new(),
            order: SweepOrder::default(),
            limit: None,
            unused_is_fine: false,
        }
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
        let mut out = Vec::new();
        self.command_into(index, &mut out).then_some(out)
    }

    /// Appends the command at `index` of the order, if there is one.
    pub fn command_into(&self, index: u128, out: &mut Vec<u8>) -> bool {
        if index >= self.len {
            return false;
        }
        let mut digits = vec![0; self.axes.len()];
        self.for_each_digit(index, |axis, digit| digits[axis] = digit);
        for part in &self.parts {
            self.push_part(part, &digits, out);
        }
        true
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
                let name = quoted(self.parameters[*parameter].name().as_bytes());
                Some(format!("a value of parameter `{name}`"))
            }
            _ => None,
        });
        match place {
            None => Ok(()),
            Some(place) => Err(SweepError::Separator {
                place,
                null: separator == Separator::Null,
            }),
        }
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

fn first_parts(parts: &[Part], axes: usize) -> Vec<usize> {
    let mut first = vec![parts.len(); axes];
    for (index, part) in parts.iter().enumerate().rev() {
        if let Part::Value { axis, .. } = part {
            first[*axis] = index;
        }
    }
    first
}

fn check_all_used(parts: &[Part], parameters: &[Parameter]) -> Result<(), SweepError> {
    let mut used = vec![false; parameters.len()];
    for part in parts {
        if let Part::Value { parameter, .. } = part {
            used[*parameter] = true;
        }
    }
    match used.iter().position(|used| !used) {
        None => Ok(()),
        Some(unused) => Err(SweepError::Unused {
            name: quoted(parameters[unused].name().as_bytes()),
        }),
    }
}
