use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use packhorse_model::{Command, Priority, TaskSpec};

use super::cell::Cells;
use super::columns::Column;
use super::error::CsvProblem;
use super::path_cache::{PathCache, PathKind};
use super::read::CsvSettings;
use crate::excerpt::quoted;
use crate::names::Names;
use crate::shell;

/// One task of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line it begins on, counted from 1.
    pub line: u64,
    /// Its bytes in the file, without the end of the line: what [`consume`]
    /// knows it by.
    ///
    /// [`consume`]: super::consume
    pub record: Range<usize>,
    /// Program, script and what else stood beside them.
    pub words: Vec<Vec<u8>>,
    /// How many epochs to train, at least 1.
    pub epochs: u32,
    /// The task without its command: its folder (a relative one is joined to the
    /// base), its priority, and what the further columns said.
    pub spec: TaskSpec,
}

impl Row {
    /// What to run: `EXECUTABLE FILENAME --epochs=N --id=K`.
    pub fn command(&self, id: u64) -> Command {
        let arguments = [format!("--epochs={}", self.epochs), format!("--id={id}")];
        let arguments = arguments.map(String::into_bytes);
        Command::Words(self.words.iter().cloned().chain(arguments).collect())
    }

    /// The whole task.
    pub fn task(&self, id: u64) -> TaskSpec {
        TaskSpec {
            command: self.command(id),
            ..self.spec.clone()
        }
    }
}

/// What is known from the rows before.
pub(super) struct Earlier {
    pub files: PathCache,
    pub names: Names,
}

/// Reads a row. If something is wrong with it, that is noted, and there is none.
pub(super) fn row(
    mut cells: Cells<'_>,
    settings: &CsvSettings<'_>,
    earlier: &mut Earlier,
) -> Option<Row> {
    let mistakes = cells.mistakes.len();
    cells.check_width();
    let directory = directory(&mut cells, settings.base, &mut earlier.files);
    let place = directory.as_deref();
    let program = program(&mut cells, settings.python, place, &mut earlier.files);
    let script = script(&mut cells, place, &mut earlier.files);
    let epochs = cells
        .needed(Column::Epochs)
        .and_then(|text| cells.number(Column::Epochs, text, 1, u32::MAX.into()));
    let priority = cells
        .needed(Column::Priority)
        .and_then(|text| cells.number(Column::Priority, text, i32::MIN.into(), i32::MAX.into()));
    let retries = cells
        .optional(Column::Retries)
        .and_then(|text| cells.number(Column::Retries, text, 0, u32::MAX.into()));
    let spec = TaskSpec {
        folder: directory,
        priority: priority.and_then(|n| i32::try_from(n).ok()).map(Priority),
        vram: cells.quantity(Column::Memory),
        gpus: cells.quantity(Column::Gpus),
        timeout: cells.quantity(Column::Timeout),
        retries: retries.and_then(|number| u32::try_from(number).ok()),
        name: name(&mut cells, &mut earlier.names),
        ..TaskSpec::default()
    };
    if cells.mistakes.len() > mistakes {
        return None;
    }
    let mut words = program?;
    words.extend(script?);
    Some(Row {
        line: cells.source.line(cells.record.place.start),
        record: cells.record.place.clone(),
        words,
        epochs: u32::try_from(epochs?).ok()?,
        spec,
    })
}

fn directory(cells: &mut Cells<'_>, base: &Path, files: &mut PathCache) -> Option<PathBuf> {
    let text = cells.needed(Column::Directory)?;
    let folder = base.join(OsStr::from_bytes(text));
    let path = || quoted(text);
    let problem = match files.look(&folder) {
        PathKind::Folder | PathKind::Unknown => return Some(folder),
        PathKind::Nothing => CsvProblem::NoFolder { path: path() },
        PathKind::File { .. } => CsvProblem::NotFolder { path: path() },
    };
    cells.wrong(Column::Directory, problem);
    None
}

/// The words of the executable. Without a folder it is only split.
fn program(
    cells: &mut Cells<'_>,
    python: &OsStr,
    folder: Option<&Path>,
    files: &mut PathCache,
) -> Option<Vec<Vec<u8>>> {
    let text = cells.needed(Column::Executable)?;
    if text == b"-1" {
        return Some(vec![python.as_bytes().to_vec()]);
    }
    let words = split(cells, Column::Executable, text, folder, files)?;
    let (Some(first), Some(folder)) = (words.first(), folder) else {
        return Some(words);
    };
    let name = Path::new(OsStr::from_bytes(first));
    let found = if first.contains(&b'/') {
        files.look(&folder.join(name))
    } else {
        files.search(name)
    };
    let problem = match found {
        PathKind::Unknown
        | PathKind::File {
            is_executable: true,
        } => return Some(words),
        PathKind::Nothing => CsvProblem::NoProgram {
            program: quoted(first),
        },
        PathKind::Folder | PathKind::File { .. } => CsvProblem::NotExecutable {
            path: quoted(first),
        },
    };
    cells.wrong(Column::Executable, problem);
    None
}

fn script(
    cells: &mut Cells<'_>,
    folder: Option<&Path>,
    files: &mut PathCache,
) -> Option<Vec<Vec<u8>>> {
    let text = cells.needed(Column::Filename)?;
    let words = split(cells, Column::Filename, text, folder, files)?;
    let (Some(first), Some(folder)) = (words.first(), folder) else {
        return Some(words);
    };
    // `-m package.module`: only Python knows where that is.
    if !first.starts_with(b"-")
        && files.look(&folder.join(OsStr::from_bytes(first))) == PathKind::Nothing
    {
        let path = quoted(first);
        cells.wrong(Column::Filename, CsvProblem::NoFile { path });
        return None;
    }
    Some(words)
}

/// The words of a cell, as a shell would split it; a path with blanks in it is
/// one word if there is such a file.
fn split(
    cells: &mut Cells<'_>,
    column: Column,
    text: &[u8],
    folder: Option<&Path>,
    files: &mut PathCache,
) -> Option<Vec<Vec<u8>>> {
    let is_file = |folder: &Path| {
        let found = files.look(&folder.join(OsStr::from_bytes(text)));
        matches!(found, PathKind::File { .. })
    };
    if folder.is_some_and(is_file) {
        return Some(vec![text.to_vec()]);
    }
    let words = shell::words(text).ok();
    if words.is_none() {
        let problem = CsvProblem::Quote {
            column: column.name(),
        };
        cells.wrong(column, problem);
    }
    words
}

fn name(cells: &mut Cells<'_>, names: &mut Names) -> Option<String> {
    let name = String::from_utf8_lossy(cells.optional(Column::Name)?);
    if let Err(problem) = names.check_new(&name) {
        cells.wrong(Column::Name, problem.into());
        return None;
    }
    let name = name.into_owned();
    names.insert(Some(&name));
    Some(name)
}
