use std::ffi::OsStr;
use std::path::Path;

use super::cell::Cells;
use super::columns::Columns;
use super::error::{CsvError, CsvProblem};
use super::header::Header;
use super::path_cache::PathCache;
use super::records::{CsvRecord, CsvRecords};
use super::row::{Row, row};
use super::source::Source;
use crate::names::Names;
use crate::{InputProblem as _, Severity};

/// More mistakes than this are the same one again: the rest of the file is not
/// looked at.
const MOST_MISTAKES: usize = 1000;

/// What a file does not say itself.
#[derive(Clone, Copy, Debug)]
pub struct CsvSettings<'a> {
    /// Which row names the columns.
    pub header: Header,
    /// The folder that relative directories start from: the one that the
    /// person is in, not that of the file.
    pub base: &'a Path,
    /// What the executable `-1` means: a name on the `PATH`, or a whole path,
    /// since a relative one would start from the row's directory. It is not
    /// checked.
    pub python: &'a OsStr,
    /// The value of `PATH`, to find programs by.
    pub path: &'a OsStr,
}

/// A file in which everything can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvTable {
    /// Its tasks, in the order of the file.
    pub rows: Vec<Row>,
    /// What was not understood, and does no harm.
    pub warnings: Vec<CsvError>,
}

/// Reads a whole file. If anything is wrong with it, everything that is wrong
/// comes back, warnings included, in the order of the file.
pub fn read(bytes: &[u8], settings: &CsvSettings<'_>) -> Result<CsvTable, Vec<CsvError>> {
    let source = Source::new(bytes);
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(vec![source.mistake(0..2, CsvProblem::Encoding)]);
    }
    let mut mistakes = Vec::new();
    let mut records = CsvRecords::new(bytes);
    let columns = match settings.header {
        Header::None => Columns::usual(),
        Header::Row(number) => {
            let Some(header) = header(&mut records, number) else {
                let end = bytes.len()..bytes.len();
                let problem = CsvProblem::NoHeader(number);
                return Err(vec![source.mistake(end, problem)]);
            };
            if note_unclosed(&header, &source, &mut mistakes) {
                return Err(mistakes);
            }
            Columns::named(&header, &source, &mut mistakes)
        }
    };
    let mut rows = Vec::new();
    let (mut files, mut names) = (PathCache::new(settings.path), Names::default());
    // With columns that are not known, every row would be wrong again.
    let are_known = !mistakes.iter().any(is_error);
    let records = records.take_while(|_| are_known);
    for record in records.filter(|record| !record.is_blank()) {
        if note_unclosed(&record, &source, &mut mistakes) || mistakes.len() >= MOST_MISTAKES {
            break;
        }
        let cells = Cells {
            record: &record,
            columns: &columns,
            source: &source,
            mistakes: &mut mistakes,
            files: &mut files,
            names: &mut names,
        };
        rows.extend(row(cells, settings));
    }
    if mistakes.iter().any(is_error) {
        mistakes.sort_by_key(|mistake| (mistake.line(), mistake.column()));
        return Err(mistakes);
    }
    Ok(CsvTable { rows, warnings: mistakes })
}

/// The row that names the columns; `records` go on behind it.
pub(super) fn header(records: &mut CsvRecords<'_>, number: u32) -> Option<CsvRecord> {
    // A line of blanks is no row; one of commas is.
    let mut rows = records.filter(|record| record.fields.len() > 1 || !record.is_blank());
    rows.nth(usize::try_from(number).unwrap_or(usize::MAX))
}

fn is_error(mistake: &CsvError) -> bool {
    mistake.problem().severity() == Severity::Error
}

fn note_unclosed(record: &CsvRecord, source: &Source<'_>, mistakes: &mut Vec<CsvError>) -> bool {
    if let Some(field) = record.fields.last().filter(|_| record.is_unclosed) {
        let start = field.place.start;
        mistakes.push(source.mistake(start..start + 1, CsvProblem::Unclosed));
    }
    record.is_unclosed
}
