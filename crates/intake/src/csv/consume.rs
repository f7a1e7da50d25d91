//! Taking rows out of the file that are done.

use std::collections::HashMap;
use std::fs::{Metadata, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use fs_err::File;

use super::header::Header;
use super::read::header as skip_to_header;
use super::records::CsvRecords;

/// How often the file is read again if it changes meanwhile.
const TRIES: usize = 16;

/// Why rows could not be taken out. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ConsumeError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody else changes it right now.
    #[error("`{}` is being changed by somebody else\nhint: the finished rows are still in it", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

/// Takes the rows `finished` out of the file at `path`, each given as its bytes
/// without the end of the line, and tells how many were there.
///
/// The file is read anew, because the person may have added rows or removed
/// some: a row is known by its bytes, and one that is no longer there is left
/// alone. Of several equal rows, as many are taken out as are given, from the
/// first on. Every other byte stays.
///
/// The file is replaced at once and as a whole, with its owner as far as we may,
/// and its permissions. If `path` is a symbolic link, what it leads to is
/// replaced. Hard links, access control lists and extended attributes are lost,
/// as with any editor that saves so.
pub fn consume<'a>(
    path: &Path,
    header: Header,
    finished: impl IntoIterator<Item = &'a [u8]>,
) -> Result<usize, ConsumeError> {
    let mut wanted: HashMap<&[u8], usize> = HashMap::new();
    for row in finished {
        *wanted.entry(row).or_default() += 1;
    }
    let path = fs_err::canonicalize(path)?;
    for _ in 0..TRIES {
        if let Some(removed) = attempt(&path, header, wanted.clone())? {
            return Ok(removed);
        }
    }
    Err(ConsumeError::Busy { path })
}

/// Once. `None`: the file changed meanwhile, and nothing was done.
fn attempt(
    path: &Path,
    header: Header,
    wanted: HashMap<&[u8], usize>,
) -> Result<Option<usize>, ConsumeError> {
    let mut file = packhorse_proc::open_regular(path)?;
    // Against another Packhorse; what an editor does is seen below. Some network
    // file systems have no locks.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let path = path.to_owned();
        return Err(ConsumeError::Busy { path });
    }
    let version = version_of(&file.metadata()?);
    let name = path.display().to_string();
    let bytes = packhorse_proc::read_to_limit(&mut file, &name, packhorse_proc::LARGEST_TABLE)?;
    let (kept, removed) = without(&bytes, header, wanted);
    if removed == 0 {
        return Ok(Some(0));
    }
    let is_replaced = replace(path, &file, &kept, &version)?;
    Ok(is_replaced.then_some(removed))
}

/// The bytes without the rows, and how many that were.
pub(super) fn without(
    bytes: &[u8],
    header: Header,
    mut wanted: HashMap<&[u8], usize>,
) -> (Vec<u8>, usize) {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut removed = 0;
    let mut from = 0;
    let mut records = CsvRecords::new(bytes);
    if let Header::Row(number) = header {
        skip_to_header(&mut records, number);
    }
    for record in records {
        let Some(count) = wanted.get_mut(&bytes[record.place.clone()]) else {
            continue;
        };
        if *count > 0 {
            *count -= 1;
            removed += 1;
            kept.extend_from_slice(&bytes[from..record.place.start]);
            from = record.end;
        }
    }
    kept.extend_from_slice(&bytes[from..]);
    (kept, removed)
}

/// Puts `bytes` in the place of the file at `path`, unless it is no longer the
/// `file` that was read.
fn replace(path: &Path, file: &File, bytes: &[u8], version: &FileVersion) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut new = tempfile::Builder::new().prefix(".packhorse-").tempfile_in(folder)?;
    new.write_all(bytes)?;
    let metadata = file.metadata()?;
    // Only root may give a file away: for anybody else, as much is kept as is allowed.
    let (user, group) = (Some(metadata.uid()), Some(metadata.gid()));
    let _ = fchown(new.as_file(), user, group).or_else(|_| fchown(new.as_file(), None, group));
    new.as_file().set_permissions(metadata.permissions())?;
    new.as_file().sync_all()?;
    if version_of(&fs_err::metadata(path)?) != *version {
        return Ok(false);
    }
    new.persist(path).map_err(|error| error.error)?;
    // The rows are out already. Where the folder cannot be read, nobody can tell whether
    // that would survive a power cut; to fail would be to say that they are still there.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(true)
}

/// Device, inode, length and time of the last change.
type FileVersion = (u64, u64, u64, (i64, i64));

/// Differs when the file was replaced or written to.
fn version_of(of: &Metadata) -> FileVersion {
    let modified = (of.mtime(), of.mtime_nsec());
    (of.dev(), of.ino(), of.len(), modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_editor_saved_meanwhile_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.csv");
        fs_err::write(&path, "h\na\n").unwrap();
        let file = File::open(&path).unwrap();
        let version = version_of(&file.metadata().unwrap());
        fs_err::write(&path, "h\na\nb\n").unwrap();
        assert!(!replace(&path, &file, b"h\n", &version).unwrap());
        assert_eq!(fs_err::read(&path).unwrap(), b"h\na\nb\n");

        let version = version_of(&file.metadata().unwrap());
        let saved = folder.path().join("saved");
        fs_err::write(&saved, "h\nc\n").unwrap();
        fs_err::rename(saved, &path).unwrap();
        assert!(!replace(&path, &file, b"h\n", &version).unwrap());
        assert_eq!(fs_err::read(&path).unwrap(), b"h\nc\n");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }
}
