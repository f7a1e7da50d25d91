//! A state folder that was opened to other users from outside.
//!
//! At each mount of a volume with `fsGroup` the kubelet gives everything on it to a group, adds
//! that group's rights and sets setgid on folders: what was 0700 is 2770. The state folder is
//! known by the id in it, and made private again:
//!
//! ```text
//!  2770 ──▶ 1700 ──▶ everything in it is this user's and private ──▶ 0700
//!            │  ▲
//!            └──┘ something in it is not: refused, by each command until it is removed
//! ```

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chmodat, fchmod, fstat, open, openat, statat,
};
use rustix::io::Errno;

use super::{Home, named};
use crate::StoreError;
use crate::home_id::NAME as ID;

/// The rights of users other than the owner.
const OTHERS: u32 = 0o077;
/// The mode of a state folder whose contents are not checked yet. No other user can write to it,
/// and the sticky bit, which has no effect there, keeps it from being believed: also after this
/// process was killed.
const UNCHECKED: u32 = 0o1700;
/// Folders in a state folder are no deeper.
const DEEPEST: usize = 16;

/// A state folder that was open to other users and is private again.
#[derive(Debug, thiserror::Error)]
#[error(
    "warning: the state folder `{}` was open to other users{}: it and its contents are private \
     again\n\
     hint: in a pod, `fsGroup` opens it at each start", path.display(), in_brackets(*mode)
)]
pub struct ReopenedHome {
    path: PathBuf,
    mode: u32,
}

fn in_brackets(mode: u32) -> String {
    if mode & OTHERS == 0 { String::new() } else { format!(" (mode {mode:o})") }
}

impl Home {
    /// Makes the state folder that the environment names private again, if it is one of this
    /// user, by the id in it, and other users have access.
    pub fn make_private_again() -> Result<Option<ReopenedHome>, StoreError> {
        // What is wrong with the path is told by whatever needs the folder.
        Self::path_of_environment().map_or(Ok(None), |place| make_private_again(&place.path))
    }
}

fn make_private_again(path: &Path) -> Result<Option<ReopenedHome>, StoreError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // What cannot be opened is told by whatever needs it.
    let Ok(folder) = open(path, flags, Mode::empty()) else {
        return Ok(None);
    };
    let stat = fstat(&folder).map_err(io::Error::from)?;
    let mode = stat.st_mode & 0o7777;
    let is_checked = mode & OTHERS == 0 && mode != UNCHECKED;
    if !is_ours(&stat) || is_checked || !holds_id(&folder) {
        return Ok(None);
    }
    set_mode(&folder, path, UNCHECKED)?;
    make_all_private(&folder, path, 0)?;
    set_mode(&folder, path, 0o700)?;
    Ok(Some(ReopenedHome { path: path.to_owned(), mode }))
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether this user has put an id there.
pub(super) fn holds_id(folder: &OwnedFd) -> bool {
    let found = statat(folder, ID, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|stat| {
        is_ours(&stat) && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
    })
}

/// The system's error with the path that cannot be made private.
fn failed(errno: Errno, path: &Path) -> StoreError {
    named(errno, "make private", path).into()
}

fn set_mode(folder: &OwnedFd, path: &Path, mode: u32) -> Result<(), StoreError> {
    fchmod(folder, Mode::from_raw_mode(mode)).map_err(|errno| failed(errno, path))?;
    // Some file systems keep their modes without a word.
    let mode = fstat(folder).map_err(|errno| failed(errno, path))?.st_mode & 0o777;
    if mode & OTHERS != 0 {
        return Err(StoreError::OpenHome { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Makes everything in a folder private that is private itself: no other user can change what is
/// in it any more. An entry that another user may have put there is an error.
fn make_all_private(folder: &OwnedFd, path: &Path, depth: usize) -> Result<(), StoreError> {
    for entry in Dir::read_from(folder).map_err(|errno| failed(errno, path))? {
        let entry = entry.map_err(|errno| failed(errno, path))?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            make_entry_private(folder, name, path, depth)?;
        }
    }
    Ok(())
}

fn make_entry_private(
    folder: &OwnedFd,
    name: &CStr,
    path: &Path,
    depth: usize,
) -> Result<(), StoreError> {
    let path = path.join(String::from_utf8_lossy(name.to_bytes()).as_ref());
    let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        // Another process of this user has removed it.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno, &path)),
    };
    if !is_ours(&stat) || depth == DEEPEST {
        return Err(StoreError::PlantedInHome { path, owner: stat.st_uid });
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = openat(folder, name, flags, Mode::empty());
            let inner = inner.map_err(|errno| failed(errno, &path))?;
            set_mode(&inner, &path, 0o700)?;
            make_all_private(&inner, &path, depth + 1)
        }
        // Its rights are also those of a file elsewhere, which another user may have linked here.
        FileType::RegularFile if stat.st_nlink > 1 => Err(StoreError::LinkedIntoHome { path }),
        FileType::RegularFile if stat.st_mode & 0o7077 != 0 => {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o700);
            match chmodat(folder.as_fd(), name, mode, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(failed(errno, &path)),
            }
        }
        _ => Ok(()),
    }
}

/// Where the state folder is.
pub(super) struct HomePlace {
    pub(super) path: PathBuf,
    /// Whether it is below the folder that was named, where others may put links.
    pub(super) is_below: bool,
}

/// The folder to use when this one is named: itself, or a private one below it if it is the root
/// of a mount that is open to others or belongs to another user, as that of a volume in a
/// container, which cannot be made private.
pub(super) fn place(path: PathBuf) -> HomePlace {
    let as_it_is = |path| HomePlace { path, is_below: false };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = open(&path, flags, Mode::empty()) else {
        return as_it_is(path);
    };
    let is_usable = fstat(&folder)
        .is_ok_and(|stat| is_ours(&stat) && (stat.st_mode & OTHERS == 0 || holds_id(&folder)));
    if is_usable || !is_mount_root(&path) {
        return as_it_is(path);
    }
    HomePlace { path: below(&path), is_below: true }
}

/// The private folder of this user below a folder.
pub(crate) fn below(path: &Path) -> PathBuf {
    path.join(format!("packhorse-{}", rustix::process::geteuid().as_raw()))
}

fn is_mount_root(path: &Path) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags, statx};

    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
