//! Whether what the rows name is there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    Nothing,
    Folder,
    File,
    /// A file that can be executed.
    Program,
    /// It could not be looked at. Whether it works will be seen.
    Unknown,
}

/// Looks at every path only once: thousands of rows have the same few.
pub(super) struct PathCache {
    search: Vec<PathBuf>,
    known: HashMap<PathBuf, PathKind>,
}

impl PathCache {
    /// Programs are searched for in the folders of `path`.
    pub fn new(path: &OsStr) -> Self {
        Self { search: std::env::split_paths(path).collect(), known: HashMap::new() }
    }

    pub fn look(&mut self, path: &Path) -> PathKind {
        if let Some(&found) = self.known.get(path) {
            return found;
        }
        let found = match fs_err::metadata(path) {
            Ok(metadata) if metadata.is_dir() => PathKind::Folder,
            Ok(metadata) if metadata.permissions().mode() & 0o111 != 0 => PathKind::Program,
            Ok(_) => PathKind::File,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidFilename => PathKind::Nothing,
                _ => PathKind::Unknown,
            },
        };
        self.known.insert(path.to_owned(), found);
        found
    }

    /// What a program is that has only a name.
    pub fn search(&mut self, name: &Path) -> PathKind {
        let folders = std::mem::take(&mut self.search);
        let mut looked = folders.iter().map(|folder| self.look(&folder.join(name)));
        let runs = |found: &PathKind| matches!(found, PathKind::Program | PathKind::Unknown);
        let found = looked.find(runs).unwrap_or(PathKind::Nothing);
        self.search = folders;
        found
    }
}
