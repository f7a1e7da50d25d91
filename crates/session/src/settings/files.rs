//! Reading files of settings.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use packhorse_model::Command;
use packhorse_proc::{read_at_once, read_to_limit, utf8};
use packhorse_trust::{Distrust, Found, find_file};

use crate::SessionError;

/// No file of settings is longer.
const LONGEST: u64 = 1 << 20;

/// A file that was found, and does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutFile {
    pub path: PathBuf,
    /// Why it does not count.
    pub reason: String,
    /// What to do about it, if something helps.
    pub hint: Option<String>,
}

impl LeftOutFile {
    /// `naming` is what names such a file: an option, or a variable with its `=`.
    fn new(path: &Path, distrust: &Distrust, naming: &str) -> Self {
        let word = Command::Words(vec![path.as_os_str().as_bytes().to_vec()]);
        let word = word.to_text();
        let hint = match (distrust, distrust.remedy()) {
            (_, Some(remedy)) => Some(format!("`{remedy} {word}` makes it count")),
            (Distrust::Owner(_) | Distrust::LinkOf(_), None) if path.is_file() => {
                Some(format!("if you trust it, name it: `{naming}{word}`"))
            }
            (Distrust::NoFile, None) => Some("put a regular file there, or remove it".to_owned()),
            _ => None,
        };
        Self { path: path.to_owned(), reason: distrust.to_string(), hint }
    }
}

impl fmt::Display for LeftOutFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, reason, hint } = self;
        write!(f, "warning: {} was left out: {reason}", path.display())?;
        hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

/// Reads files that nobody named.
#[derive(Default)]
pub(super) struct FoundFiles {
    pub(super) left_out: Vec<LeftOutFile>,
}

impl FoundFiles {
    /// The file at this path and its text, if there is one that counts.
    pub(super) fn read(
        &mut self,
        path: &Path,
        naming: &str,
    ) -> Result<Option<(PathBuf, String)>, SessionError> {
        match find_file(path)? {
            Found::Nothing => Ok(None),
            Found::LeftOut(distrust) => {
                self.left_out.push(LeftOutFile::new(path, &distrust, naming));
                Ok(None)
            }
            Found::File(file) => {
                let name = path.display().to_string();
                let file = fs_err::File::from_parts(file, path);
                let text = utf8(read_to_limit(file, &name, LONGEST)?, &name)?;
                Ok(Some((path.to_owned(), text)))
            }
        }
    }
}

/// The text of a file that the person has named, whoever owns it.
pub(super) fn read_named(path: &Path) -> Result<String, SessionError> {
    Ok(utf8(read_at_once(path, LONGEST)?, &path.display().to_string())?)
}
