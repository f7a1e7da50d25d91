//! Files that are found, not named.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::account::{Group, group, user_name};
use crate::writers::Writers;

/// The number of links that the kernel follows.
const MOST_LINKS: usize = 40;

/// No file that `read_trusted` reads is larger.
const MOST: u64 = 1 << 16;

/// The result of looking for a file.
#[derive(Debug)]
pub enum Found {
    Nothing,
    /// Something that does not count.
    LeftOut(Distrust),
    /// A file that counts, open for reading.
    File(File),
}

/// Why something that was found does not count.
#[derive(Debug)]
pub enum Distrust {
    /// It is another user's.
    Owner(u32),
    /// A link on the way to it is another user's.
    LinkOf(u32),
    /// It is a folder, a pipe, a device or a socket.
    NoFile,
    /// Others can write to it, and may change it again.
    WritableBy(Writers),
    /// The system does not let us look.
    Unreadable(io::Error),
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(uid) => write!(f, "it belongs to {}, not to you or root", User(*uid)),
            Self::LinkOf(uid) => {
                write!(f, "it is a link of {}, not of yours or root's", User(*uid))
            }
            Self::NoFile => f.write_str("it is not a regular file"),
            Self::WritableBy(Writers::Group(gid)) => {
                write!(f, "{} can write to it", GroupName(*gid))
            }
            Self::WritableBy(Writers::AccessList) => {
                f.write_str("other users may be able to write to it, by its access list")
            }
            Self::WritableBy(_) => f.write_str("every user can write to it"),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

impl Distrust {
    /// The command that makes the file count, without its path.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::WritableBy(Writers::Group(_)) => Some("chmod g-w"),
            Self::WritableBy(Writers::Everybody) => Some("chmod go-w"),
            Self::WritableBy(Writers::AccessList) => Some("setfacl -b"),
            _ => None,
        }
    }
}

struct User(u32);

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match user_name(self.0) {
            Some(name) => write!(f, "{name} (user {})", self.0),
            None => write!(f, "user {}", self.0),
        }
    }
}

struct GroupName(u32);

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match group(self.0) {
            Group::Known { name, .. } => write!(f, "the group {name} ({})", self.0),
            Group::Unknown | Group::Unclear => write!(f, "the group {}", self.0),
        }
    }
}

/// Finds a file at a path that the user did not name. The error is that of a file that counts and cannot be
/// read: what a person wrote is not passed over in silence.
pub fn find_file(path: &Path) -> io::Result<Found> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        // A look that neither waits nor follows: a device is not touched, and what cannot be
        // read can still be judged.
        let found = match open(&path, libc::O_PATH) {
            Ok(found) => found,
            Err(error) if is_nothing(&error) => return Ok(Found::Nothing),
            Err(error) => return Ok(Found::LeftOut(Distrust::Unreadable(error))),
        };
        let metadata = found.metadata()?;
        if metadata.is_symlink() {
            if !is_ours(metadata.uid()) {
                return Ok(Found::LeftOut(Distrust::LinkOf(metadata.uid())));
            }
            path = target(&found, &path)?;
            continue;
        }
        if let Err(distrust) = judge(&metadata) {
            return Ok(Found::LeftOut(distrust));
        }
        return match open(&path, libc::O_NONBLOCK | libc::O_NOCTTY) {
            // The path may name another file by now.
            Ok(file) => Ok(match judge_open(&file)? {
                Ok(()) => Found::File(file),
                Err(distrust) => Found::LeftOut(distrust),
            }),
            // Root may keep a file to itself.
            Err(error) if metadata.uid() != us() => Ok(Found::LeftOut(Distrust::Unreadable(error))),
            Err(error) => {
                let text = format!("cannot read {}: {error}", path.display());
                Err(io::Error::new(error.kind(), text))
            }
        };
    }
    let error = io::Error::from_raw_os_error(libc::ELOOP);
    Ok(Found::LeftOut(Distrust::Unreadable(error)))
}

/// Refuses a path that is another user's link.
pub fn check_link(path: &Path) -> Result<(), Distrust> {
    // Whatever else is wrong with it is found when it is opened.
    let found = open(path, libc::O_PATH).and_then(|found| found.metadata());
    match found {
        Ok(metadata) if metadata.is_symlink() && !is_ours(metadata.uid()) => {
            Err(Distrust::LinkOf(metadata.uid()))
        }
        _ => Ok(()),
    }
}

/// Whether this user is trusted: we ourselves, and root.
pub fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == us()
}

/// Whether no user but root, and the one who runs this program, could have written it. The rule
/// for what root keeps of a shared node: there, no group is private.
pub fn is_trusted(metadata: &Metadata) -> bool {
    is_ours(metadata.uid()) && metadata.mode() & 0o022 == 0
}

/// Reads a small file that is trusted by that rule.
pub fn read_trusted(path: &Path) -> io::Result<String> {
    let file = match find_file(path)? {
        Found::File(file) => file,
        Found::Nothing => return Err(io::Error::from(io::ErrorKind::NotFound)),
        Found::LeftOut(distrust) => return Err(io::Error::other(distrust.to_string())),
    };
    if !is_trusted(&file.metadata()?) {
        return Err(io::Error::other("a user other than root could have written it"));
    }
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::other("it is too large"));
    }
    Ok(text)
}

fn us() -> u32 {
    // SAFETY: it cannot fail, and touches no memory.
    unsafe { libc::geteuid() }
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Judges a file by its owner and kind.
fn judge(metadata: &Metadata) -> Result<(), Distrust> {
    if !is_ours(metadata.uid()) {
        return Err(Distrust::Owner(metadata.uid()));
    }
    if !metadata.is_file() {
        return Err(Distrust::NoFile);
    }
    Ok(())
}

/// Judges an open file by its owner, its kind and who can write to it.
fn judge_open(file: &File) -> io::Result<Result<(), Distrust>> {
    let metadata = file.metadata()?;
    let judged = judge(&metadata).and_then(|()| match Writers::of(file.as_fd(), &metadata) {
        Writers::Nobody => Ok(()),
        others => Err(Distrust::WritableBy(others)),
    });
    Ok(judged)
}

/// The path that an open link leads to.
fn target(link: &File, path: &Path) -> io::Result<PathBuf> {
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the name ends in a zero, and the length is that of the buffer.
    let length = unsafe {
        libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    let Ok(length) = usize::try_from(length) else {
        return Err(io::Error::last_os_error());
    };
    target.truncate(length);
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(folder.join(OsString::from_vec(target)))
}

/// Whether there is nothing to find, or a folder that we may not look into.
fn is_nothing(error: &io::Error) -> bool {
    let nothing = [libc::ENOENT, libc::ENOTDIR, libc::EACCES, libc::ENAMETOOLONG];
    error.raw_os_error().is_some_and(|errno| nothing.contains(&errno))
}

#[cfg(test)]
mod tests;
