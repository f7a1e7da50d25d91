use packhorse_model::ParseQuantityError;

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
    /// It has fewer rows than the header's number.
    #[error("there is no row {row} to be the header")]
    NoHeader {
        /// The row, counted from 0.
        row: u32,
    },
    /// The header does not name every column that is needed.
    #[error(
        "the header does not name {}",
        columns.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", ")
    )]
    Missing {
        /// The columns.
        columns: Vec<&'static str>,
        /// Whether it names any column.
        is_header: bool,
        /// What seems to stand between the columns instead of a comma.
        separator: Option<char>,
    },
    /// Two columns have the same name.
    #[error("there are two columns `{column}`")]
    ColumnTwice {
        /// The column.
        column: &'static str,
    },
    /// A column that means nothing here.
    #[error("the column `{name}` is not understood, and is ignored")]
    UnknownColumn {
        /// What it is called.
        name: String,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
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
    /// No program can be given a NUL byte.
    #[error("`{column}` contains a NUL byte")]
    Nul {
        /// The column.
        column: &'static str,
    },
    /// A cell that must not be empty.
    #[error("`{column}` is empty")]
    Empty {
        /// The column.
        column: &'static str,
    },
    /// A value that is no number, or too small or too large.
    #[error("`{column}`: `{value}` is not a whole number from {min} to {max}")]
    Number {
        /// The column.
        column: &'static str,
        /// The value.
        value: String,
        /// The smallest that is accepted.
        min: i64,
        /// The largest that is accepted.
        max: i64,
    },
    /// A value that is no amount, or no length of time.
    #[error("`{column}`: {reason}")]
    Quantity {
        /// The column.
        column: &'static str,
        /// What the value should have been.
        reason: ParseQuantityError,
    },
    /// A value that no task can have.
    #[error(transparent)]
    Value(#[from] SpecProblem),
    /// A quote within a cell that is never closed.
    #[error("`{column}` has a quote that is never closed")]
    Quote {
        /// The column.
        column: &'static str,
    },
    /// The folder is not there.
    #[error("there is no folder `{path}`")]
    NoFolder {
        /// Where it was looked for.
        path: String,
    },
    /// There is something else.
    #[error("`{path}` is not a folder")]
    NotFolder {
        /// Where it is.
        path: String,
    },
    /// The program is not there.
    #[error("there is no program `{program}`")]
    NoProgram {
        /// The program, or where it was looked for.
        program: String,
    },
    /// It is there, and cannot be run.
    #[error("`{path}` cannot be executed")]
    NotExecutable {
        /// Where it is.
        path: String,
    },
    /// The script is not there.
    #[error("there is no file `{path}`")]
    NoFile {
        /// Where it was looked for.
        path: String,
    },
}

impl InputProblem for CsvProblem {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Encoding => "save it as CSV in UTF-8",
            Self::NoHeader { .. } => {
                "rows are counted from 0; write --header None if there is none"
            }
            Self::Missing {
                separator: Some(_), ..
            } => "separate the columns by commas",
            Self::Missing {
                is_header: false, ..
            } => {
                "write --header None if this is no header, or --header N if it is another row, \
                 counted from 0"
            }
            Self::Missing { .. } => {
                "every file needs Directory, Executable, Filename, Epochs and Priority"
            }
            Self::ColumnTwice { .. } => "rename or remove one of them",
            Self::UnknownColumn {
                nearest: Some(nearest),
                ..
            } => return format!("did you mean `{nearest}`?"),
            Self::UnknownColumn { .. } => {
                "further columns may be Memory, GPUs, Timeout, Retries and Name"
            }
            Self::Unclosed => "close it; a quote within quotes is written twice",
            Self::TooMany { .. } => {
                "put a field with a comma in it into quotes, with no blank before them"
            }
            Self::Nul { .. } => "remove it",
            Self::Empty {
                column: "Directory",
            } => "write the folder to run it in; . is the one you are in",
            Self::Empty {
                column: "Executable",
            } => "write a program such as python, or -1 for the usual one",
            Self::Empty { column: "Filename" } => "write the script to run",
            Self::Empty { column: "Epochs" } => "write how many epochs to train",
            Self::Empty { .. } => "write a whole number; lower ones run first",
            Self::Number { column, value, .. } if value.eq_ignore_ascii_case(column) => {
                "this is the header: leave out --header None, or say which row it is"
            }
            Self::Number { .. } => "write it without a fraction or a unit",
            Self::Quantity {
                column: "Memory", ..
            } => "write it like 9G, or auto; or leave it empty",
            Self::Quantity {
                column: "Timeout", ..
            } => "write it like 2h30m, or leave it empty",
            Self::Quantity { .. } => "write it like 0.5 or 2, or leave it empty",
            Self::Value(problem) => return problem.hint(),
            Self::Quote { .. } => "close it, or put a backslash before it",
            Self::NoFolder { path } if path.contains('~') => "write the whole path instead of ~",
            Self::NoFolder { .. } | Self::NotFolder { .. } => {
                "a relative path starts from the folder you are in"
            }
            Self::NoProgram { program } if program.contains('/') => {
                "a relative path starts from the row's Directory"
            }
            Self::NoProgram { .. } => "write its path, or a name that is on the PATH",
            Self::NotExecutable { .. } => "is it the script? the Executable is what runs it",
            Self::NoFile { .. } => "a relative path starts from the row's Directory",
        };
        hint.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Encoding => "here",
            Self::NoHeader { .. } => "the file ends",
            Self::Missing {
                is_header: false, ..
            } => "is this the header?",
            Self::Missing { .. } => "the header",
            Self::ColumnTwice { .. } => "the second",
            Self::UnknownColumn { .. } => "ignored",
            Self::Unclosed | Self::Quote { .. } => "opened here",
            Self::TooMany { .. } => "no column for this",
            Self::Nul { .. } => "a NUL byte",
            Self::Empty { .. } => "nothing here",
            Self::Number { .. } | Self::Quantity { .. } => "this value",
            Self::Value(problem) => problem.label(),
            Self::NoFolder { .. } | Self::NoProgram { .. } | Self::NoFile { .. } => "not found",
            Self::NotFolder { .. } => "not a folder",
            Self::NotExecutable { .. } => "not executable",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::UnknownColumn { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }
}
