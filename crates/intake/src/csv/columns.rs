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
    /// Each with its name.
    const ALL: [(Self, &'static str); 10] = [
        (Self::Directory, "Directory"),
        (Self::Executable, "Executable"),
        (Self::Filename, "Filename"),
        (Self::Epochs, "Epochs"),
        (Self::Priority, "Priority"),
        (Self::Memory, "Memory"),
        (Self::Gpus, "GPUs"),
        (Self::Timeout, "Timeout"),
        (Self::Retries, "Retries"),
        (Self::Name, "Name"),
    ];

    /// How many there must be; the others may be missing.
    const NEEDED: usize = 5;

    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether every row must say something in it.
    pub const fn is_needed(self) -> bool {
        (self as usize) < Self::NEEDED
    }

    /// The column that is called so.
    fn called(text: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(_, name)| name.as_bytes().eq_ignore_ascii_case(text));
        found.map(|(column, _)| column)
    }
}

/// Where each column is.
#[derive(Debug)]
pub(super) struct Columns {
    at: [Option<usize>; Column::ALL.len()],
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
        let mut columns = Self {
            at: [None; Column::ALL.len()],
            width: header.fields.len(),
        };
        let mut unknown = Vec::new();
        for (index, field) in header.fields.iter().enumerate() {
            let Some(column) = Column::called(&field.text) else {
                // Spreadsheets leave columns without anything in them.
                if !field.text.is_empty() {
                    unknown.push(field);
                }
                continue;
            };
            let place = &mut columns.at[column as usize];
            if place.is_some() {
                let problem = CsvProblem::ColumnTwice(column.name());
                mistakes.push(source.mistake(field.place.clone(), problem));
            } else {
                *place = Some(index);
            }
        }

        let missing = Column::ALL.into_iter();
        let missing = missing.filter(|(column, _)| columns.place(*column).is_none());
        let needed = missing.clone().filter(|(column, _)| column.is_needed());
        let needed: Vec<&str> = needed.map(|(_, name)| name).collect();
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
                let problem = CsvProblem::UnknownColumn {
                    name: quoted(&field.text),
                    nearest: nearest(&typed, missing.clone().map(|(_, name)| name)),
                };
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
