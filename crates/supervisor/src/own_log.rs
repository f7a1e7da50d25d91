//! The log of an attempt in a place that its task wants, where other runs may have theirs.
//!
//! The file is made and locked before the attempt starts, and the lock lasts as long as anything
//! can write to the file through us: tasks that write to it themselves inherit the lock. What an
//! earlier run has left there gets another name, which replaces nothing: `train.log~`,
//! `train.log~2`. Beside the attempt's place in the run's folder of logs is kept which file it
//! was, so that the log is found under its later name, and another file is not taken for it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use fs_err::File;
use packhorse_model::printable;
use packhorse_trust::{ensure_private_folder, write_private};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, fstat, renameat_with};
use rustix::io::{Errno, retry_on_intr};
use rustix::stdio::{stderr, stdout};

use crate::log::{Owner, create};

/// The extension of the file that tells which file the log is.
const IDENTITY: &str = "own";

/// How often the place is looked at again that another run changes at the same time.
const ROUNDS: usize = 100;

/// The file for a log.
pub(crate) struct ClaimedLog {
    pub(crate) file: File,
    /// What the log of an earlier run is called now.
    pub(crate) backup: Option<PathBuf>,
}

/// Why there is no file for a log.
pub(crate) enum ClaimError {
    /// The log of another task would be spoilt.
    Refused(String),
    /// It cannot be made.
    Io(io::Error),
}

impl From<io::Error> for ClaimError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Makes the file for a log, which is empty, and locks it.
pub(crate) fn claim(path: &Path) -> Result<ClaimedLog, ClaimError> {
    let mut backup = None;
    // The lock on what was renamed is held until the new file is locked.
    let mut earlier = None;
    for _ in 0..ROUNDS {
        let file = create(path, Owner::Task)?;
        let made = file.metadata()?;
        if !made.is_file() || is_system_path(path) || is_our_output(&made) {
            return Ok(ClaimedLog { file, backup });
        }
        // Where the file system has no locks, nothing is lost either: what is renamed can still
        // be written to.
        if retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive))
            == Err(Errno::WOULDBLOCK)
        {
            return Err(ClaimError::Refused(in_use(path)));
        }
        let Ok(found) = fs_err::metadata(path) else {
            continue;
        };
        if (found.dev(), found.ino()) != (made.dev(), made.ino()) {
            continue;
        }
        if found.len() == 0 {
            return Ok(ClaimedLog { file, backup });
        }
        backup = Some(set_aside(path).map_err(|error| {
            ClaimError::Refused(format!(
                "its log would empty that of an earlier run: {error}; \
                 move that away, or choose another `log`"
            ))
        })?);
        earlier = Some(file);
    }
    drop(earlier);
    Err(ClaimError::Refused(in_use(path)))
}

fn in_use(path: &Path) -> String {
    let path = path.to_string_lossy();
    format!(
        "another task still writes to its log `{}`\n\
         hint: wait until that task has ended, or choose another `log`",
        printable(&path)
    )
}

/// Gives a log another name, and returns that.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    // Where a link leads there is room for it; the link stays.
    let log = fs_err::canonicalize(path)?;
    for number in 1_u32.. {
        let mut backup = log.clone().into_os_string();
        backup.push("~");
        if number > 1 {
            backup.push(number.to_string());
        }
        let backup = PathBuf::from(backup);
        match renameat_with(CWD, &log, CWD, &backup, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(backup),
            Err(Errno::EXIST) => {}
            // NFS, for one, cannot do that in one step.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                if fs_err::symlink_metadata(&backup).is_err() {
                    fs_err::rename(&log, &backup)?;
                    return Ok(backup);
                }
            }
            Err(errno) => {
                let text = format!("cannot rename `{}`: {errno}", log.display());
                return Err(io::Error::new(errno.kind(), text));
            }
        }
    }
    Err(io::Error::other(format!("`{}` has too many earlier logs beside it", log.display())))
}

/// Whether it names a descriptor or a device whatever the file system has: `/dev/stdout`.
pub fn is_system_path(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm") || path.starts_with("/proc")
}

/// Whether what we write goes into this file.
fn is_our_output(file: &std::fs::Metadata) -> bool {
    let is = |stat: rustix::io::Result<rustix::fs::Stat>| {
        stat.is_ok_and(|stat| stat.st_dev == file.dev() && stat.st_ino == file.ino())
    };
    is(fstat(stdout().as_fd())) || is(fstat(stderr().as_fd()))
}

/// What tells a file from others, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    inode: u64,
    /// When it was made, in nanoseconds; 0 where the file system does not tell. An inode's number
    /// is used again.
    born: u128,
}

impl FileIdentity {
    fn of(file: &std::fs::Metadata) -> Self {
        let born = file.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Self { inode: file.ino(), born: born.map_or(0, |born| born.as_nanos()) }
    }
}

/// What is kept of an attempt's own log.
enum KnownLog {
    File(FileIdentity),
    /// Nothing was written. The file may be another run's by now.
    Empty,
}

impl KnownLog {
    /// Reads what is kept for the attempt with this place in the run's folder of logs.
    fn read(log: &Path) -> Option<Self> {
        let text = fs_err::read_to_string(log.with_extension(IDENTITY)).ok()?;
        let mut words = text.split_ascii_whitespace();
        Some(match (words.next()?, words.next()) {
            ("empty", None) => Self::Empty,
            (inode, Some(born)) => {
                Self::File(FileIdentity { inode: inode.parse().ok()?, born: born.parse().ok()? })
            }
            _ => return None,
        })
    }

    fn write(&self, log: &Path) -> io::Result<()> {
        let text = match self {
            Self::File(FileIdentity { inode, born }) => format!("{inode} {born}\n"),
            Self::Empty => "empty\n".to_owned(),
        };
        log.parent().map_or(Ok(()), ensure_private_folder)?;
        write_private(&log.with_extension(IDENTITY), text.as_bytes())
    }
}

/// Keeps which file the log of an attempt is. `log` is the attempt's place in the run's folder
/// of logs.
pub(crate) fn keep_identity(log: &Path, file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(());
    }
    KnownLog::File(FileIdentity::of(&found)).write(log)
}

/// Keeps that nothing was written to the log of an attempt, if so.
pub(crate) fn keep_emptiness(log: &Path, file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    if !found.is_file() || found.len() > 0 { Ok(()) } else { KnownLog::Empty.write(log) }
}

/// Finds the log of an attempt: at `log`, or else where its task wanted it, or under the name
/// that a later run gave it.
pub fn find_log(log: &Path, own: Option<&Path>) -> io::Result<PathBuf> {
    let Some(own) = own else {
        return Ok(log.to_owned());
    };
    let known = match KnownLog::read(log) {
        Some(KnownLog::File(known)) => known,
        Some(KnownLog::Empty) => return Err(io::ErrorKind::NotFound.into()),
        None => return Ok(own.to_owned()),
    };
    let is_it = |path: &Path| {
        fs_err::metadata(path).map(|found| found.is_file() && FileIdentity::of(&found) == known)
    };
    let found = is_it(own);
    if matches!(found, Ok(true)) {
        return Ok(own.to_owned());
    }
    if let Some(backup) = backups(own)?.find(|backup| matches!(is_it(backup), Ok(true))) {
        return Ok(backup);
    }
    found?;
    Err(io::Error::other(format!(
        "the log `{}` is not there any more: another file has its name\n\
         hint: `cat` shows that file, which may be the log of a later run",
        own.display()
    )))
}

/// Names that logs at a place may have been given.
fn backups(own: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let real = fs_err::canonicalize(own).unwrap_or_else(|_| own.to_owned());
    let mut start = real.file_name().unwrap_or_default().to_owned();
    start.push("~");
    let folder = real.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs_err::read_dir(folder.unwrap_or(Path::new(".")))?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).filter(move |path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(start.as_encoded_bytes())
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn claimed(path: &Path) -> ClaimedLog {
        claim(path).ok().unwrap()
    }

    #[test]
    fn a_log_is_not_claimed_while_it_is_written_and_then_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // A link leads to the new log as it led to the old.
        std::os::unix::fs::symlink("a.log", path("link")).unwrap();
        for (text, backup) in [("first", None), ("second", Some("a.log~")), ("", Some("a.log~2"))] {
            let mut one = claimed(&path("link"));
            assert_eq!(one.backup, backup.map(path));
            assert!(matches!(claim(&path("a.log")), Err(ClaimError::Refused(_))));
            one.file.write_all(text.as_bytes()).unwrap();
        }
        // Nothing was written, so there is nothing to keep.
        assert_eq!(claimed(&path("link")).backup, None);
        assert!(path("link").is_symlink());
        let read = |name: &str| fs_err::read_to_string(path(name)).unwrap();
        assert_eq!((read("a.log~"), read("a.log~2")), ("first".into(), "second".into()));
        for _ in 0..2 {
            let log = claimed(Path::new("/dev/null"));
            assert_eq!(log.backup, None);
        }
    }

    #[test]
    fn a_log_is_found_under_its_later_name_and_no_other_is_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let own = path("a.log");
        for run in ["1", "2", "3"] {
            let mut log = claimed(&own);
            keep_identity(&path(run), &log.file).unwrap();
            if run != "2" {
                log.file.write_all(run.as_bytes()).unwrap();
            }
            keep_emptiness(&path(run), &log.file).unwrap();
        }
        let find = |run: &str| find_log(&path(run), Some(&own)).map_err(|error| error.kind());
        // The second wrote nothing, and the third has the same file.
        assert_eq!(find("1"), Ok(path("a.log~")));
        assert_eq!(find("2"), Err(io::ErrorKind::NotFound));
        assert_eq!(find("3"), Ok(own.clone()));
        fs_err::remove_file(path("a.log~")).unwrap();
        assert_eq!(find("1"), Err(io::ErrorKind::Other));
        // Of a run of which nothing is kept.
        assert_eq!(find("4"), Ok(own.clone()));
        assert_eq!(find_log(&path("4"), None).unwrap(), path("4"));
    }
}
