//! What is in the small files that commands name: what commands are remembered by depends
//! on it.

use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use packhorse_intake::signature::content_hash;
use rustc_hash::FxHashMap;
use rustix::fs::OFlags;

/// Larger files are data, not settings.
const LARGEST: u64 = 64 * 1024;

/// So many files are remembered. Those of a sweep may be as many as its tasks.
const MOST: usize = 10_000;

/// Tells a file that has changed: its device, number, length and time.
type FileStamp = (u64, u64, u64, i64, i64);

/// Reads files, each again only when it has changed.
#[derive(Default)]
pub(crate) struct FileContents {
    known: FxHashMap<PathBuf, (FileStamp, u64)>,
}

impl FileContents {
    /// The hash of what is in each file; none of one that is no file, too large, or cannot
    /// be read.
    pub(crate) fn hashes(&mut self, files: &[PathBuf]) -> Vec<Option<u64>> {
        files.iter().map(|file| self.hash(file)).collect()
    }

    fn hash(&mut self, path: &Path) -> Option<u64> {
        let home = path.iter().position(|part| part == "~");
        let at_home: PathBuf;
        let path = match home {
            // As a shell reads it.
            Some(place) => {
                let rest: PathBuf = path.iter().skip(place + 1).collect();
                at_home = PathBuf::from(std::env::var_os("HOME")?).join(rest);
                &at_home
            }
            None => path,
        };
        let stamp = stamp(&fs_err::metadata(path).ok()?)?;
        if let Some((known, hash)) = self.known.get(path)
            && *known == stamp
        {
            return Some(*hash);
        }
        let hash = content_hash(&read(path)?);
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(path.to_owned(), (stamp, hash));
        Some(hash)
    }
}

fn stamp(file: &Metadata) -> Option<FileStamp> {
    let fits = file.is_file() && file.len() <= LARGEST;
    let changed = (file.mtime(), file.mtime_nsec());
    fits.then(|| (file.dev(), file.ino(), file.len(), changed.0, changed.1))
}

/// What is in a file, if it is still a small one: somebody may put a pipe in its place.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut options = fs_err::OpenOptions::new();
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    options.read(true).custom_flags(flags);
    let file = options.open(path).ok()?;
    stamp(&file.metadata().ok()?)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= LARGEST).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_count_by_what_is_in_them_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs_err::write(path("a"), "lr: 1").unwrap();
        fs_err::write(path("b"), "lr: 1").unwrap();
        fs_err::write(path("large"), vec![0; 64 * 1024 + 1]).unwrap();
        let mut files = FileContents::default();
        let mut hash = |name: &str| files.hashes(&[path(name)])[0];
        let before = hash("a");
        assert!(before.is_some());
        assert_eq!(hash("b"), before);
        assert_eq!([hash("large"), hash("gone"), hash(".")], [None; 3]);
        fs_err::write(path("a"), "lr: 20").unwrap();
        assert_ne!(hash("a"), before);
    }
}
