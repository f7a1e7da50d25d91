//! The cells of one row, and what is wrong with them.

use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use packhorse_model::ParseValueError;

use super::columns::{Column, Columns};
use super::error::{CsvError, CsvProblem};
use super::path_cache::PathCache;
use super::records::{CsvRecord, Field};
use super::source::Source;
use crate::SpecProblem;
use crate::excerpt::quoted;
use crate::names::Names;

/// A row being read.
pub(super) struct Cells<'a> {
    pub record: &'a CsvRecord,
    pub columns: &'a Columns,
    pub source: &'a Source<'a>,
    pub mistakes: &'a mut Vec<CsvError>,
    /// What the rows before and this one name.
    pub files: &'a mut PathCache,
    /// What the rows before are called.
    pub names: &'a mut Names,
}

impl<'a> Cells<'a> {
    fn field(&self, column: Column) -> Option<&'a Field> {
        self.record.fields.get(self.columns.place(column)?)
    }

    /// Where a column's cell is, or should have been.
    fn place(&self, column: Column) -> Range<usize> {
        let end = self.record.place.end;
        self.field(column).map_or(end..end, |f| f.place.clone())
    }

    /// Notes that something is wrong with a column's cell.
    pub fn wrong(&mut self, column: Column, problem: CsvProblem) {
        let mistake = self.source.mistake(self.place(column), problem);
        self.mistakes.push(mistake);
    }

    /// What a cell says. None is said if it is empty, which is noted where it must not be.
    pub fn text(&mut self, column: Column) -> Option<&'a [u8]> {
        let text = self.field(column).map_or(b"".as_slice(), |f| &f.text);
        let problem = if text.contains(&0) {
            SpecProblem::Nul(column.name()).into()
        } else if text.is_empty() && column.is_needed() {
            CsvProblem::Empty(column.name())
        } else {
            return Some(text).filter(|text| !text.is_empty());
        };
        self.wrong(column, problem);
        None
    }

    /// A whole number in a cell.
    pub fn number<T: TryFrom<i64>>(
        &mut self,
        column: Column,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        let text = self.text(column)?;
        let number = whole(text).filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            let problem = CsvProblem::Number(column.name(), quoted(text), range);
            self.wrong(column, problem);
        }
        number
    }

    /// An amount in a cell.
    pub fn quantity<T: FromStr<Err = ParseValueError>>(&mut self, column: Column) -> Option<T> {
        let text = self.text(column)?;
        match String::from_utf8_lossy(text).parse() {
            Ok(value) => Some(value),
            Err(reason) => {
                self.wrong(column, CsvProblem::Quantity(column.name(), reason));
                None
            }
        }
    }

    /// Notes a field for which there is no column.
    pub fn check_width(&mut self) {
        let mut beyond = self.record.fields.iter().skip(self.columns.width);
        let Some(field) = beyond.find(|field| !field.text.is_empty()) else {
            return;
        };
        let problem =
            CsvProblem::TooMany { fields: self.record.fields.len(), columns: self.columns.width };
        let mistake = self.source.mistake(field.place.clone(), problem);
        self.mistakes.push(mistake);
    }
}

/// A whole number, also as a spreadsheet writes it: `10.0`.
fn whole(text: &[u8]) -> Option<i64> {
    let text = str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|digit| digit == b'0') {
        return None;
    }
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_may_look_like_those_of_a_spreadsheet() {
        for (text, wanted) in [
            ("10", Some(10)),
            ("10.0", Some(10)),
            ("10.", Some(10)),
            ("+3", Some(3)),
            ("-3.00", Some(-3)),
            ("007", Some(7)),
            ("10.5", None),
            ("1e2", None),
            (".0", None),
            ("", None),
            ("1 000", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(whole(text.as_bytes()), wanted, "{text}");
        }
        assert_eq!(whole(b"1\xff"), None);
    }
}
