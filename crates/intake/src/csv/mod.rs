//! A table of training scripts, one per row.
//!
//! ```text
//! Directory,Executable,Filename,Epochs,Priority
//! ./code1,-1,train.py,90,2
//! ./code2,/opt/venv/bin/python,train.py --lr 0.1,10,1
//! ```
//!
//! A row is the command `EXECUTABLE FILENAME --epochs=N --id=K`, run in its
//! folder; the executable `-1` is the Python that the caller names. The lower
//! the priority, the earlier. Columns are found by the name in the header, in
//! any order, or by their order where there is no header. `Memory`, `GPUs`,
//! `Timeout`, `Retries` and `Name` may be further columns; their cells may be
//! empty.
//!
//! Where the tool this comes from would have failed late, a row is refused
//! before anything starts: [`read`] looks whether the folders, programs and
//! scripts are there, and collects everything that is wrong. Where it was
//! needlessly strict, a row is taken: blanks around cells, `10.0` for a whole
//! number as spreadsheets write it, a byte order mark, every kind of line end,
//! rows and trailing cells with nothing in them, a path with a blank in it.
//!
//! [`consume`] takes rows out of the file again.

mod batch;
mod cell;
mod columns;
mod consume;
mod error;
mod header;
mod path_cache;
mod read;
mod records;
mod row;
mod source;
#[cfg(test)]
mod tests;

pub use batch::turns;
pub use consume::{ConsumeError, consume};
pub use error::{CsvError, CsvProblem};
pub use header::{Header, ParseHeaderError};
pub use read::{CsvSettings, CsvTable, read};
pub use row::Row;
