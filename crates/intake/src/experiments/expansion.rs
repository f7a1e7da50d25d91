//! `grid`, `list` and `ablative`: many configurations out of one.

use serde_json::Value;

use super::merge::Members;
use super::short_names::piece;
use crate::grid::value::{GridValue, ValueKind};

/// One expansion of an experiment.
#[derive(Debug)]
pub(super) struct Expansion {
    kind: ExpansionKind,
    pub axes: Vec<Axis>,
    /// How many configurations it could make of one.
    pub count: u32,
    /// How many it makes.
    pub runs: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpansionKind {
    /// Every combination, the last parameter fastest.
    Grid,
    /// The n-th values together.
    List,
    /// One parameter changed at a time.
    Ablative,
}

/// A parameter with its values.
#[derive(Debug)]
pub(super) struct Axis {
    /// Where the value goes within `params`.
    pub path: Vec<GridValue>,
    pub values: Vec<GridValue>,
    /// The values as JSON.
    pub json: Vec<Value>,
    /// What each value adds to the name of the run.
    pub pieces: Vec<String>,
}

impl Expansion {
    /// The expansion that a key stands for. None if it makes more than can be counted.
    pub fn new(key: &str, members: &Members) -> Option<Self> {
        let kind = if key.starts_with("grid") {
            ExpansionKind::Grid
        } else if key.starts_with("list") {
            ExpansionKind::List
        } else {
            ExpansionKind::Ablative
        };
        let mut axes = Vec::new();
        collect(&mut Vec::new(), members, &mut axes);
        let lengths = axes.iter().map(|axis| u32::try_from(axis.values.len()));
        let lengths: Vec<u32> = lengths.collect::<Result<_, _>>().ok()?;
        let mut all = lengths.iter();
        let count = match kind {
            ExpansionKind::Grid => all.try_fold(1_u32, |count, more| count.checked_mul(*more))?,
            ExpansionKind::List => all.min().copied().unwrap_or(0),
            ExpansionKind::Ablative => all.try_fold(0_u32, |sum, more| sum.checked_add(*more))?,
        };
        let runs = count;
        Some(Self { kind, axes, count, runs })
    }

    /// Whether each of its configurations has a value for every parameter.
    pub fn sets_all(&self) -> bool {
        self.kind != ExpansionKind::Ablative
    }

    /// Makes only the first of its configurations.
    pub fn reduce_to_first(&mut self) {
        self.runs = self.runs.min(1);
    }

    /// Whether it has lists of different lengths, of which some values are left out.
    pub fn is_uneven(&self) -> bool {
        let longest = self.axes.iter().map(|axis| axis.values.len()).max();
        self.kind == ExpansionKind::List && longest != Some(self.count as usize)
    }

    /// Which axes have which value in one of its configurations.
    pub fn choices(&self, mut digit: u32, mut choose: impl FnMut(&Axis, usize)) {
        match self.kind {
            ExpansionKind::Grid => {
                let mut below = self.count;
                for axis in &self.axes {
                    below /= u32::try_from(axis.values.len()).unwrap_or(1);
                    choose(axis, (digit / below) as usize);
                    digit %= below;
                }
            }
            ExpansionKind::List => {
                for axis in &self.axes {
                    choose(axis, digit as usize);
                }
            }
            ExpansionKind::Ablative => {
                for axis in &self.axes {
                    let values = u32::try_from(axis.values.len()).unwrap_or(u32::MAX);
                    if digit < values {
                        return choose(axis, digit as usize);
                    }
                    digit -= values;
                }
            }
        }
    }
}

/// Notes the parameters of a dictionary that have lists of values.
fn collect(path: &mut Vec<GridValue>, members: &Members, axes: &mut Vec<Axis>) {
    for (key, value) in members {
        path.push(key.clone());
        match &value.kind {
            ValueKind::Dict(members) => collect(path, members, axes),
            ValueKind::List(values) => {
                let names: Vec<String> = path.iter().map(GridValue::json_key).collect();
                axes.push(Axis {
                    path: path.clone(),
                    values: values.clone(),
                    json: values.iter().map(GridValue::to_json).collect(),
                    pieces: values.iter().map(|value| piece(&names, value)).collect(),
                });
            }
            _ => {}
        }
        path.pop();
    }
}
