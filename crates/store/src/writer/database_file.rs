//! What happens when somebody removes the database under a running writer. SQLite
//! would go on writing into files that no longer have a name, and everything would
//! be gone with the process. While the files are open, though, everything is in them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::StoreError;
use crate::database::make_private_file;

/// The file that was opened, so that it can be told from another of its name.
pub(super) struct DatabaseFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl DatabaseFile {
    pub(super) fn of(path: PathBuf) -> Self {
        let identity = identity(&path);
        Self { path, identity }
    }

    /// Whether the file is still there under its name.
    pub(super) fn is_in_place(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }

    /// Writes the whole database anew where it was, from the files that are
    /// still open. Whoever else is there now is not overwritten.
    pub(super) fn restore(&self, db: &Connection) -> Result<(), StoreError> {
        let failed = |reason: String| StoreError::Removed { path: self.path.clone(), reason };
        if identity(&self.path).is_some() {
            return Err(failed("another file is in its place".to_owned()));
        }
        let Some(target) = self.path.to_str() else {
            return Err(failed("its path is not UTF-8".to_owned()));
        };
        // A log without its database would be taken for the new one's.
        for companion in ["-wal", "-shm", "-journal"] {
            let _ = fs_err::remove_file(format!("{target}{companion}"));
        }
        make_private_file(&self.path).map_err(|error| failed(error.to_string()))?;
        db.execute("VACUUM INTO ?1", [target]).map_err(|error| failed(error.to_string()))?;
        Ok(())
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = fs_err::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}
