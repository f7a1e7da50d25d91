use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use packhorse_model::{Command, Priority, TaskSpec};

use super::cell::Cells;
use super::columns::Column;
use super::error::CsvProblem;
use super::path_cache::PathKind;
use super::read::CsvSettings;
use crate::excerpt::quoted;
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
    /// The whole task, which runs `EXECUTABLE FILENAME --epochs=N --id=K`.
    pub fn task(&self, id: u64) -> TaskSpec {
        let arguments = [format!("--epochs={}", self.epochs), format!("--id={id}")];
        let arguments = arguments.map(String::into_bytes);
        TaskSpec {
            command: Command::Words(self.words.iter().cloned().chain(arguments).collect()),
            ..self.spec.clone()
        }
    }
}

/// Reads a row. If something is wrong with it, that is noted, and there is none.
pub(super) fn row(mut cells: Cells<'_>, settings: &CsvSettings<'_>) -> Option<Row> {
    let mistakes = cells.mistakes.len();
    cells.check_width();
    let folder = folder(&mut cells, settings.base);
    let program = program(&mut cells, settings.python, folder.as_deref());
    let script = script(&mut cells, folder.as_deref());
    let epochs = cells.number(Column::Epochs, 1..=u32::MAX.into());
    let priorities = i32::MIN.into()..=i32::MAX.into();
    let spec = TaskSpec {
        folder,
        priority: cells.number(Column::Priority, priorities).map(Priority),
        vram: cells.quantity(Column::Memory),
        gpus: cells.quantity(Column::Gpus),
        timeout: cells.quantity(Column::Timeout),
        retries: cells.number(Column::Retries, 0..=u32::MAX.into()),
        name: name(&mut cells),
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
        epochs: epochs?,
        spec,
    })
}

fn folder(cells: &mut Cells<'_>, base: &Path) -> Option<PathBuf> {
    let text = cells.text(Column::Directory)?;
    let folder = base.join(OsStr::from_bytes(text));
    let problem = match cells.files.look(&folder) {
        PathKind::Folder | PathKind::Unknown => return Some(folder),
        PathKind::Nothing => CsvProblem::NoFolder(quoted(text)),
        PathKind::File | PathKind::Program => CsvProblem::NotFolder(quoted(text)),
    };
    cells.wrong(Column::Directory, problem);
    None
}

/// The words of the executable. Without a folder it is only split.
fn program(cells: &mut Cells<'_>, python: &OsStr, folder: Option<&Path>) -> Option<Vec<Vec<u8>>> {
    let text = cells.text(Column::Executable)?;
    if text == b"-1" {
        return Some(vec![python.as_bytes().to_vec()]);
    }
    let words = split(cells, Column::Executable, text, folder)?;
    let (Some(first), Some(folder)) = (words.first(), folder) else {
        return Some(words);
    };
    let name = Path::new(OsStr::from_bytes(first));
    let found = if first.contains(&b'/') {
        cells.files.look(&folder.join(name))
    } else {
        cells.files.search(name)
    };
    let problem = match found {
        PathKind::Unknown | PathKind::Program => return Some(words),
        PathKind::Nothing => CsvProblem::NoProgram(quoted(first)),
        PathKind::Folder | PathKind::File => CsvProblem::NotExecutable(quoted(first)),
    };
    cells.wrong(Column::Executable, problem);
    None
}

fn script(cells: &mut Cells<'_>, folder: Option<&Path>) -> Option<Vec<Vec<u8>>> {
    let text = cells.text(Column::Filename)?;
    let words = split(cells, Column::Filename, text, folder)?;
    let (Some(first), Some(folder)) = (words.first(), folder) else {
        return Some(words);
    };
    let path = folder.join(OsStr::from_bytes(first));
    // `-m package.module`: only Python knows where that is.
    if !first.starts_with(b"-") && cells.files.look(&path) == PathKind::Nothing {
        cells.wrong(Column::Filename, CsvProblem::NoFile(quoted(first)));
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
) -> Option<Vec<Vec<u8>>> {
    let whole = folder.map(|folder| folder.join(OsStr::from_bytes(text)));
    let whole = whole.map(|path| cells.files.look(&path));
    if let Some(PathKind::File | PathKind::Program) = whole {
        return Some(vec![text.to_vec()]);
    }
    let words = shell::words(text);
    if words.is_none() {
        cells.wrong(column, CsvProblem::Quote(column.name()));
    }
    words
}

fn name(cells: &mut Cells<'_>) -> Option<String> {
    let name = String::from_utf8_lossy(cells.text(Column::Name)?).into_owned();
    if let Err(problem) = cells.names.check_new(&name) {
        cells.wrong(Column::Name, problem.into());
        return None;
    }
    cells.names.insert(Some(&name));
    Some(name)
}
