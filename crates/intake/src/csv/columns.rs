//! Which column is which.

use super::error::{CsvError, CsvProblem};
use super::records::CsvRecord;
use super::source::Source;
use crate::excerpt::quoted;
use crate::nearest::nearest;

/// What a column says, in the order they come in without a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Directory,
    Executable,
    Filename,
    Epochs,
    Priority,
    Memory,
    Gpus,
    Timeout,
    Retries,
    Name,
}

impl Column {
    /// What they are called.
    const NAMES: [&'static str; 10] = [
        "Directory",
        "Executable",
        "Filename",
        "Epochs",
        "Priority",
        "Memory",
        "GPUs",
        "Timeout",
        "Retries",
        "Name",
    ];

    /// How many there must be; the others may be missing.
    const NEEDED: usize = 5;

    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether every row must say something in it.
    pub const fn is_needed(self) -> bool {
        (self as usize) < Self::NEEDED
    }
}

/// Where each column is.
#[derive(Debug)]
pub(super) struct Columns {
    at: [Option<usize>; Column::NAMES.len()],
    /// How many there are, known or not.
    pub width: usize,
}

impl Columns {
    /// In their usual order.
    pub fn usual() -> Self {
        Self {
            at: std::array::from_fn(|index| (index < Column::NEEDED).then_some(index)),
            width: Column::NEEDED,
        }
    }

    /// As the header names them. What is wrong with it goes to `mistakes`.
    pub fn named(header: &CsvRecord, source: &Source<'_>, mistakes: &mut Vec<CsvError>) -> Self {
        let mut columns = Self { at: [None; Column::NAMES.len()], width: header.fields.len() };
        let mut unknown = Vec::new();
        for (index, field) in header.fields.iter().enumerate() {
            let mut names = Column::NAMES.iter();
            let called = |name: &&str| name.as_bytes().eq_ignore_ascii_case(&field.text);
            let Some(column) = names.position(called) else {
                // Spreadsheets leave columns without anything in them.
                if !field.text.is_empty() {
                    unknown.push(field);
                }
                continue;
            };
            let place = &mut columns.at[column];
            if place.is_some() {
                let problem = CsvProblem::ColumnTwice(Column::NAMES[column]);
                mistakes.push(source.mistake(field.place.clone(), problem));
            } else {
                *place = Some(index);
            }
        }

        let missing = |names: usize| {
            let places = Column::NAMES.into_iter().zip(columns.at).take(names);
            let missing = places.filter(|(_, place)| place.is_none());
            missing.map(|(name, _)| name)
        };
        let needed: Vec<&str> = missing(Column::NEEDED).collect();
        if !needed.is_empty() {
            let whole = &header.fields[0].text;
            let problem = CsvProblem::Missing {
                separator: [';', '\t', '|']
                    .into_iter()
                    .find(|&c| header.fields.len() == 1 && whole.contains(&(c as u8))),
                is_header: columns.at.iter().any(Option::is_some),
                columns: needed,
            };
            mistakes.push(source.mistake(header.place.clone(), problem));
        }
        // A header with none of the names is no header: its cells are no names.
        if columns.at.iter().any(Option::is_some) {
            for field in unknown {
                let typed = String::from_utf8_lossy(&field.text);
                let nearest = nearest(&typed, missing(Column::NAMES.len()));
                let problem = CsvProblem::UnknownColumn(quoted(&field.text), nearest);
                mistakes.push(source.mistake(field.place.clone(), problem));
            }
        }
        columns
    }

    /// Where a column is.
    pub fn place(&self, column: Column) -> Option<usize> {
        self.at[column as usize]
    }
}
