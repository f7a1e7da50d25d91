//! Reading files of settings.

use std::fmt;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use packhorse_model::Command;
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
    /// What to do about it.
    pub hint: String,
}

impl LeftOutFile {
    /// `naming` is what names such a file: an option, or a variable with its `=`.
    fn new(path: &Path, distrust: &Distrust, naming: &str) -> Self {
        let word = Command::Words(vec![path.as_os_str().as_bytes().to_vec()]);
        let word = word.to_text();
        let hint = match distrust.remedy() {
            Some(remedy) => format!("`{remedy} {word}` makes it count"),
            None => format!("if you trust it, name it: `{naming}{word}`"),
        };
        Self { path: path.to_owned(), reason: distrust.to_string(), hint }
    }
}

impl fmt::Display for LeftOutFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, reason, hint } = self;
        write!(f, "warning: {} was left out: {reason}\nhint: {hint}", path.display())
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
            Found::File(file) => Ok(Some((path.to_owned(), read_text(path, file)?))),
        }
    }
}

/// The text of a file that the person has named, whatever it is and whoever owns it.
pub(super) fn read_named(path: &Path) -> Result<String, SessionError> {
    read_text(path, fs_err::File::open(path)?)
}

fn read_text(path: &Path, file: impl std::io::Read) -> Result<String, SessionError> {
    let wrong = |why: String| {
        let text = format!("cannot read {}: {why}", path.display());
        std::io::Error::new(std::io::ErrorKind::InvalidData, text)
    };
    let mut bytes = Vec::new();
    let mut limited = file.take(LONGEST + 1);
    limited.read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > LONGEST {
        return Err(wrong("settings have at most 1 MiB".to_owned()).into());
    }
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|_| wrong("it is not UTF-8".to_owned()))?)
}
