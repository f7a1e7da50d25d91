//! The records of a file, with the place of every field in it.

use std::ops::Range;

use csv_core::{ReadFieldResult, Reader};

/// How long the byte order mark is that some programs put in front of UTF-8.
pub(super) fn mark_length(bytes: &[u8]) -> usize {
    let unmarked = bytes.strip_prefix(b"\xef\xbb\xbf");
    bytes.len() - unmarked.unwrap_or(bytes).len()
}

/// One row.
#[derive(Debug)]
pub(super) struct CsvRecord {
    /// Its bytes, without what ends the line.
    pub place: Range<usize>,
    /// Where the next one may begin.
    pub end: usize,
    pub fields: Vec<Field>,
    /// Its last field has a quote that is never closed.
    pub is_unclosed: bool,
}

/// One cell.
#[derive(Debug)]
pub(super) struct Field {
    /// What it says, quotes taken off, without blanks around it.
    pub text: Vec<u8>,
    /// Its bytes, quotes included, without blanks around it.
    pub place: Range<usize>,
}

impl CsvRecord {
    /// Whether there is nothing in it.
    pub fn is_blank(&self) -> bool {
        self.fields.iter().all(|field| field.text.is_empty())
    }
}

/// All records, blank lines left out.
pub(super) struct CsvRecords<'a> {
    bytes: &'a [u8],
    at: usize,
    reader: Reader,
    /// As long as the file: no field is longer.
    buffer: Vec<u8>,
}

impl<'a> CsvRecords<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: mark_length(bytes), reader: Reader::new(), buffer: vec![0; bytes.len()] }
    }

    /// The next field, and how it ended.
    fn field(&mut self) -> Option<(Field, FieldEnd)> {
        let start = self.at;
        let mut length = 0;
        loop {
            let rest = &self.bytes[self.at..];
            let (result, read, written) = self.reader.read_field(rest, &mut self.buffer[length..]);
            self.at += read;
            length += written;
            match result {
                // Asked again with nothing, it takes that for the end.
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => self.buffer.push(0),
                ReadFieldResult::End => return None,
                ReadFieldResult::Field { record_end } => {
                    let end = match (record_end, read) {
                        (false, _) => FieldEnd::Comma,
                        (true, 0) => FieldEnd::File,
                        (true, _) => FieldEnd::Line,
                    };
                    let until = self.at - usize::from(end != FieldEnd::File);
                    let field = Field {
                        text: self.buffer[..length].trim_ascii().to_vec(),
                        place: trimmed(self.bytes, start..until),
                    };
                    return Some((field, end));
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldEnd {
    Comma,
    Line,
    File,
}

impl Iterator for CsvRecords<'_> {
    type Item = CsvRecord;

    fn next(&mut self) -> Option<CsvRecord> {
        while matches!(self.bytes.get(self.at), Some(b'\r' | b'\n')) {
            self.at += 1;
        }
        let start = self.at;
        let mut fields = Vec::new();
        let mut end = FieldEnd::Comma;
        while end == FieldEnd::Comma {
            let (field, how) = self.field()?;
            fields.push(field);
            end = how;
        }
        let mut until = self.at;
        if end == FieldEnd::Line {
            until -= 1;
            // The reader stops within `\r\n`.
            if self.bytes[until] == b'\r' && self.bytes.get(self.at) == Some(&b'\n') {
                self.at += 1;
            }
        }
        let last = fields.last().map_or(start..start, |f| f.place.clone());
        let raw = &self.bytes[last];
        let quotes = memchr::memchr_iter(b'"', raw).count();
        Some(CsvRecord {
            place: start..until,
            end: self.at,
            fields,
            is_unclosed: end == FieldEnd::File && raw.starts_with(b"\"") && quotes % 2 == 1,
        })
    }
}

fn trimmed(bytes: &[u8], place: Range<usize>) -> Range<usize> {
    let raw = &bytes[place.clone()];
    let start = place.start + raw.len() - raw.trim_ascii_start().len();
    start..start + raw.trim_ascii().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(input: &str) -> Vec<Vec<String>> {
        let records = CsvRecords::new(input.as_bytes());
        let text = |field: Field| String::from_utf8(field.text).unwrap();
        records.map(|record| record.fields.into_iter().map(text).collect()).collect()
    }

    #[test]
    fn fields_are_read_as_spreadsheets_write_them() {
        for (input, wanted) in [
            ("a,b\nc,d\n", vec![vec!["a", "b"], vec!["c", "d"]]),
            ("a,b\r\nc,d", vec![vec!["a", "b"], vec!["c", "d"]]),
            ("a\rb\r", vec![vec!["a"], vec!["b"]]),
            ("\u{feff}a,b", vec![vec!["a", "b"]]),
            ("\u{feff}\"a\",b", vec![vec!["a", "b"]]),
            (" a , \"b\"\n", vec![vec!["a", "\"b\""]]),
            ("\"a,\"\"b\"\"\n\",c", vec![vec!["a,\"b\"", "c"]]),
            ("\"a\" ,b", vec![vec!["a", "b"]]),
            ("\n\r\n\na\n\n\nb\n\n", vec![vec!["a"], vec!["b"]]),
            ("a,\n,\n", vec![vec!["a", ""], vec!["", ""]]),
            ("", vec![]),
        ] {
            assert_eq!(texts(input), wanted, "{input:?}");
        }
    }

    #[test]
    fn every_record_and_field_is_known_by_its_place() {
        let input = "\u{feff}a, b \r\n\r\n\"c\nd\",e\nlast";
        let of = |place: Range<usize>| &input[place];
        let records: Vec<CsvRecord> = CsvRecords::new(input.as_bytes()).collect();
        let places: Vec<_> = records.iter().map(|r| of(r.place.clone())).collect();
        assert_eq!(places, ["a, b ", "\"c\nd\",e", "last"]);
        let ends: Vec<_> = records.iter().map(|r| &input[r.end..]).collect();
        assert_eq!(ends, ["\r\n\"c\nd\",e\nlast", "last", ""]);
        let fields = records.iter().flat_map(|r| &r.fields);
        let fields: Vec<_> = fields.map(|f| of(f.place.clone())).collect();
        assert_eq!(fields, ["a", "b", "\"c\nd\"", "e", "last"]);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_noticed() {
        let unclosed = |input: &str| {
            let last = CsvRecords::new(input.as_bytes()).last();
            last.unwrap().is_unclosed
        };
        assert!(unclosed("a\nb,\"c\nd\n"));
        assert!(unclosed("\""));
        assert!(unclosed("\"a\"\""));
        assert!(!unclosed("a,\"b\""));
        assert!(!unclosed("a,\"b\"\"\""));
        assert!(!unclosed("a,b\""));
        assert!(!unclosed("\"a\"b\"\n"), "odd, and yet its line ended");
    }
}
