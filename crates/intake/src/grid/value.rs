//! A value of a grid file, as Python sees it and as it was written.

use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::print::{python_repr, python_str};

/// A value with its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct GridValue {
    pub kind: ValueKind,
    /// The bytes of the file that it was written with.
    pub span: Range<usize>,
    /// What was written, where Python would print something else: `1e-3`, `true`.
    pub written: Option<Box<str>>,
}

/// What a value is to Python.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueKind {
    None,
    Bool(bool),
    /// Its decimal digits, with a minus sign where one belongs: Python's integers have no
    /// largest one.
    Int(Box<str>),
    Float(f64),
    Text(Box<str>),
    List(Vec<GridValue>),
    Tuple(Vec<GridValue>),
    /// In the order of the file. No key is there twice.
    Dict(Vec<(GridValue, GridValue)>),
}

/// Where a value stands does not matter for what it is.
impl PartialEq for GridValue {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl GridValue {
    pub fn new(kind: ValueKind, span: Range<usize>) -> Self {
        Self { kind, span, written: None }
    }

    /// The same with what was written for it.
    pub fn written_as(mut self, text: &str) -> Self {
        self.written = Some(text.into());
        self
    }

    /// What commands are given: the value as it was written. Lists and dictionaries are
    /// JSON.
    pub fn as_written(&self) -> String {
        match (&self.written, &self.kind) {
            (Some(written), _) => written.to_string(),
            (None, ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_)) => {
                self.to_json().to_string()
            }
            (None, _) => python_str(self),
        }
    }

    /// The words that commands are given: one, or one per element of a list.
    pub fn words(&self) -> Vec<String> {
        match &self.kind {
            ValueKind::List(items) | ValueKind::Tuple(items) => {
                items.iter().map(Self::as_written).collect()
            }
            _ => vec![self.as_written()],
        }
    }

    /// The value as JSON. What JSON has no number for is text, as Python prints it.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            ValueKind::None => Value::Null,
            ValueKind::Bool(bool) => Value::Bool(*bool),
            ValueKind::Int(digits) => match (digits.parse::<i64>(), digits.parse::<u64>()) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => Value::String(digits.to_string()),
            },
            ValueKind::Float(number) => match Number::from_f64(*number) {
                Some(number) => Value::Number(number),
                None => Value::String(python_str(self)),
            },
            ValueKind::Text(text) => Value::String(text.to_string()),
            ValueKind::List(items) | ValueKind::Tuple(items) => {
                Value::Array(items.iter().map(Self::to_json).collect())
            }
            ValueKind::Dict(members) => {
                let members = members.iter();
                let members = members.map(|(key, value)| (key.json_key(), value.to_json()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// A key as Python's `json` writes it.
    pub fn json_key(&self) -> String {
        match &self.kind {
            ValueKind::None | ValueKind::Bool(_) => self.to_json().to_string(),
            _ => python_str(self),
        }
    }

    /// The name that a key stands for: text, or a number as it was written.
    pub fn name(&self) -> Option<String> {
        match &self.kind {
            ValueKind::Text(text) => Some(text.to_string()),
            ValueKind::Int(_) | ValueKind::Float(_) => Some(self.as_written()),
            _ => None,
        }
    }

    /// Whether there is nothing in it, as in a list.
    pub fn is_scalar(&self) -> bool {
        !matches!(self.kind, ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_))
    }

    /// What it is, for messages.
    pub fn what(&self) -> &'static str {
        match &self.kind {
            ValueKind::None => "nothing",
            ValueKind::Bool(_) => "true or false",
            ValueKind::Int(_) => "a whole number",
            ValueKind::Float(_) => "a number",
            ValueKind::Text(_) => "text",
            ValueKind::List(_) => "a list",
            ValueKind::Tuple(_) => "a tuple",
            ValueKind::Dict(_) => "a dictionary",
        }
    }

    /// What tells it from every other value.
    pub fn identity(&self) -> String {
        python_repr(self)
    }
}
