//! Logs that earlier runs have left where tasks want theirs.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use packhorse_model::printable;
use rustix::fs::fstat;
use rustix::stdio::{stderr, stdout};

use crate::own_paths::is_system_path;

/// Renames logs of earlier runs before tasks write to theirs.
#[derive(Debug, Default)]
pub(crate) struct EarlierLogs {
    /// The person was told of the first.
    has_warned: bool,
}

impl EarlierLogs {
    /// Renames what is where an attempt has its log: `train.log` to `train.log~`. Returns what
    /// there is to say, once a run. The error says why the attempt cannot have its log there.
    pub(crate) fn set_aside(&mut self, log: &Path) -> Result<Option<String>, String> {
        let backup = match rename(log) {
            Ok(Some(backup)) => backup,
            Ok(None) => return Ok(None),
            Err(error) => {
                return Err(format!(
                    "its log would empty that of an earlier run: {error}; \
                     move that away, or choose another `log`"
                ));
            }
        };
        let is_first = !std::mem::replace(&mut self.has_warned, true);
        Ok(is_first.then(|| {
            format!(
                "{} is the log of an earlier run: it is called {} now, and so are others like it",
                printable(&log.to_string_lossy()),
                printable(&backup.to_string_lossy())
            )
        }))
    }
}

/// The new name, if there was something to lose.
fn rename(log: &Path) -> io::Result<Option<PathBuf>> {
    let Ok(found) = fs_err::metadata(log) else {
        return Ok(None);
    };
    let identity = (found.dev(), found.ino());
    let is_ours = [is(stdout(), identity), is(stderr(), identity)];
    if !found.is_file() || found.len() == 0 || is_system_path(log) || is_ours.contains(&true) {
        return Ok(None);
    }
    // Where a link leads there is room for it; the link stays.
    let log = fs_err::canonicalize(log)?;
    let mut backup = log.clone().into_os_string();
    backup.push("~");
    let backup = PathBuf::from(backup);
    fs_err::rename(&log, &backup)?;
    Ok(Some(backup))
}

/// Whether what we write goes into this file.
fn is(stream: impl AsFd, (dev, ino): (u64, u64)) -> bool {
    fstat(stream).is_ok_and(|stat| stat.st_dev == dev && stat.st_ino == ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_gets_another_name_and_the_first_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut logs = EarlierLogs::default();
        assert_eq!(logs.set_aside(&path("none")), Ok(None));
        fs_err::write(path("empty"), "").unwrap();
        assert_eq!(logs.set_aside(&path("empty")), Ok(None));
        fs_err::write(path("a.log"), "first").unwrap();
        let told = logs.set_aside(&path("a.log")).unwrap().unwrap();
        assert!(told.contains("a.log~ now"), "{told}");
        assert_eq!(fs_err::read_to_string(path("a.log~")).unwrap(), "first");
        // A link leads to the new log as it led to the old.
        fs_err::write(path("b.log"), "second").unwrap();
        std::os::unix::fs::symlink("b.log", path("link")).unwrap();
        assert_eq!(logs.set_aside(&path("link")), Ok(None), "it was told before");
        assert_eq!(fs_err::read_to_string(path("b.log~")).unwrap(), "second");
        assert!(path("link").is_symlink());
        assert_eq!(logs.set_aside(Path::new("/dev/null")), Ok(None));
    }
}
