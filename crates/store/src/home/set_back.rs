//! A state folder that was opened to others from outside.
//!
//! At each mount of a volume with `fsGroup` the kubelet gives everything on it to a group, adds
//! that group's rights and sets setgid on folders: what was 0700 is 2770. The state folder is
//! known by the id in it, and made private again.

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

/// What others may do.
const OTHERS: u32 = 0o077;
/// Folders in a state folder are no deeper.
const DEEPEST: usize = 16;

/// A state folder that was open to others and is private again.
#[derive(Debug, thiserror::Error)]
#[error(
    "warning: the state folder `{}` was open to other users (mode {mode:o}): it and what is in it \
     is private again\n\
     hint: in a pod, `fsGroup` opens it at each start", path.display()
)]
pub struct SetBackHome {
    path: PathBuf,
    mode: u32,
}

impl Home {
    /// Makes the state folder that the environment names private again, if it is one of this
    /// user, by the id in it, and others have access.
    pub fn set_back() -> Result<Option<SetBackHome>, StoreError> {
        // What is wrong with the path is told by whatever needs the folder.
        Self::path_of_environment().map_or(Ok(None), |place| set_back(&place.path))
    }
}

fn set_back(path: &Path) -> Result<Option<SetBackHome>, StoreError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // What cannot be opened is told by whatever needs it.
    let Ok(folder) = open(path, flags, Mode::empty()) else {
        return Ok(None);
    };
    let stat = fstat(&folder).map_err(io::Error::from)?;
    if !is_ours(&stat) || stat.st_mode & OTHERS == 0 || !holds_id(&folder) {
        return Ok(None);
    }
    close(&folder, path, 0)?;
    Ok(Some(SetBackHome { path: path.to_owned(), mode: stat.st_mode & 0o7777 }))
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

/// Takes a folder and all in it from others, from the top down: in what is closed already they
/// can change nothing any more. What is not ours was put there by others and is not believed.
fn close(folder: &OwnedFd, path: &Path, depth: usize) -> Result<(), StoreError> {
    let failed = |errno| named(errno, "close to other users", path);
    fchmod(folder, Mode::RWXU).map_err(failed)?;
    // Some file systems keep their modes without a word.
    let mode = fstat(folder).map_err(failed)?.st_mode & 0o777;
    if mode & OTHERS != 0 {
        return Err(StoreError::OpenHome { path: path.to_owned(), mode });
    }
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            close_entry(folder, name, path, depth)?;
        }
    }
    Ok(())
}

fn close_entry(folder: &OwnedFd, name: &CStr, path: &Path, depth: usize) -> Result<(), StoreError> {
    let path = path.join(String::from_utf8_lossy(name.to_bytes()).as_ref());
    let failed = |errno| named(errno, "close to other users", &path);
    let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        // Another process of ours has removed it.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno).into()),
    };
    if !is_ours(&stat) || depth == DEEPEST {
        return Err(StoreError::PlantedInHome { path, owner: stat.st_uid });
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = openat(folder, name, flags, Mode::empty()).map_err(failed)?;
            close(&inner, &path, depth + 1)
        }
        FileType::RegularFile if stat.st_mode & 0o7077 != 0 => {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o700);
            match chmodat(folder.as_fd(), name, mode, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(failed(errno).into()),
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
