use std::ops::RangeInclusive;

use packhorse_model::ParseValueError;

use crate::nearest::did_you_mean;
use crate::{InputError, InputProblem, Severity, SpecProblem};

/// Something about the file that cannot be used, or is not understood.
pub type CsvError = InputError<CsvProblem>;

/// What is wrong with a CSV file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvProblem {
    /// It is UTF-16, as spreadsheets call Unicode.
    #[error("this file is not UTF-8")]
    Encoding,
    /// It has no row of this number, counted from 0, to be the header.
    #[error("there is no row {0} to be the header")]
    NoHeader(u32),
    /// The header does not name every column that is needed.
    #[error(
        "the header does not name {}",
        columns.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", ")
    )]
    Missing {
        columns: Vec<&'static str>,
        /// Whether it names any column.
        is_header: bool,
        /// What seems to stand between the columns instead of a comma.
        separator: Option<char>,
    },
    /// Two columns have the same name.
    #[error("there are two columns `{0}`")]
    ColumnTwice(&'static str),
    /// A column that means nothing here, and the one that was probably meant.
    #[error("the column `{0}` is not understood, and is ignored")]
    UnknownColumn(String, Option<&'static str>),
    /// A quote that is never closed.
    #[error("this quote is never closed")]
    Unclosed,
    /// Something in a column that does not exist.
    #[error("this row has {fields} fields, and there are {columns} columns")]
    TooMany {
        /// How many fields it has.
        fields: usize,
        /// How many columns there are.
        columns: usize,
    },
    /// A cell that must not be empty.
    #[error("`{0}` is empty")]
    Empty(&'static str),
    /// A value that is no number, or too small or too large: its column, itself, and what
    /// is accepted.
    #[error(
        "`{0}`: `{1}` is not a whole number from {min} to {max}",
        min = .2.start(), max = .2.end()
    )]
    Number(&'static str, String, RangeInclusive<i64>),
    /// A value that is no amount, or no length of time: its column, and what it should have
    /// been.
    #[error("`{0}`: {1}")]
    Quantity(&'static str, ParseValueError),
    /// A value that no task can have.
    #[error(transparent)]
    Value(#[from] SpecProblem),
    /// A quote within a cell that is never closed.
    #[error("`{0}` has a quote that is never closed")]
    Quote(&'static str),
    /// The folder is not there.
    #[error("there is no folder `{0}`")]
    NoFolder(String),
    /// There is something else.
    #[error("`{0}` is not a folder")]
    NotFolder(String),
    /// The program is not there.
    #[error("there is no program `{0}`")]
    NoProgram(String),
    /// It is there, and cannot be run.
    #[error("`{0}` cannot be executed")]
    NotExecutable(String),
    /// The script is not there.
    #[error("there is no file `{0}`")]
    NoFile(String),
}

impl InputProblem for CsvProblem {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Encoding => "save it as CSV in UTF-8",
            Self::NoHeader(_) => "rows are counted from 0; write --header None if there is none",
            Self::Missing { separator: Some(_), .. } => "separate the columns by commas",
            Self::Missing { is_header: false, .. } => {
                "write --header None if this is no header, or --header N if it is another row, \
                 counted from 0"
            }
            Self::Missing { .. } => {
                "every file needs Directory, Executable, Filename, Epochs and Priority"
            }
            Self::ColumnTwice(_) => "rename or remove one of them",
            Self::UnknownColumn(_, Some(nearest)) => return did_you_mean(nearest),
            Self::UnknownColumn(_, None) => {
                "further columns may be Memory, GPUs, Timeout, Retries and Name"
            }
            Self::Unclosed => "close it; a quote within quotes is written twice",
            Self::TooMany { .. } => {
                "put a field with a comma in it into quotes, with no blank before them"
            }
            Self::Empty("Directory") => "write the folder to run it in; . is the one you are in",
            Self::Empty("Executable") => "write a program such as python, or -1 for the usual one",
            Self::Empty("Filename") => "write the script to run",
            Self::Empty("Epochs") => "write how many epochs to train",
            Self::Empty(_) => "write a whole number; lower ones run first",
            Self::Number(column, value, _) if value.eq_ignore_ascii_case(column) => {
                "this is the header: leave out --header None, or say which row it is"
            }
            Self::Number(..) => "write it without a fraction or a unit",
            Self::Quantity("Memory", _) => "write it like 9G, or auto; or leave it empty",
            Self::Quantity("Timeout", _) => "write it like 2h30m, or leave it empty",
            Self::Quantity(..) => "write it like 0.5 or 2, or leave it empty",
            Self::Value(problem) => return problem.hint(),
            Self::Quote(_) => "close it, or put a backslash before it",
            Self::NoFolder(path) if path.contains('~') => "write the whole path instead of ~",
            Self::NoFolder(_) | Self::NotFolder(_) => {
                "a relative path starts from the folder you are in"
            }
            Self::NoProgram(program) if program.contains('/') => {
                "a relative path starts from the row's Directory"
            }
            Self::NoProgram(_) => "write its path, or a name that is on the PATH",
            Self::NotExecutable(_) => "is it the script? the Executable is what runs it",
            Self::NoFile(_) => "a relative path starts from the row's Directory",
        };
        hint.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Encoding => "here",
            Self::NoHeader(_) => "the file ends",
            Self::Missing { is_header: false, .. } => "is this the header?",
            Self::Missing { .. } => "the header",
            Self::ColumnTwice(_) => "the second",
            Self::UnknownColumn(..) => "ignored",
            Self::Unclosed | Self::Quote(_) => "opened here",
            Self::TooMany { .. } => "no column for this",
            Self::Empty(_) => "nothing here",
            Self::Number(..) | Self::Quantity(..) => "this value",
            Self::Value(problem) => problem.label(),
            Self::NoFolder(_) | Self::NoProgram(_) | Self::NoFile(_) => "not found",
            Self::NotFolder(_) => "not a folder",
            Self::NotExecutable(_) => "not executable",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::UnknownColumn(..) => Severity::Warning,
            _ => Severity::Error,
        }
    }
}
