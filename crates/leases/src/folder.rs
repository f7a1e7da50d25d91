use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, Stat, fchmod, fstat, mkdir, mkdirat, open, openat, statat,
};
use rustix::io::Errno;

use crate::LeaseError;
use crate::lease_name::UserFolderName;
use crate::process::is_shortage;

/// The folder that all runs on this machine use, unless they are told otherwise: in memory,
/// gone after a reboot.
pub const DEFAULT_FOLDER: &str = "/dev/shm/packhorse";

/// Everybody may add folders; nobody may remove those of others.
const SHARED: Mode = Mode::from_raw_mode(0o1777);
/// Everybody may look; only the owner may add files.
const OWN: Mode = Mode::from_raw_mode(0o755);
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;

/// How many folders of one user count. Two processes that start at the same moment may
/// make one each.
const MOST_FOLDERS: usize = 4;

/// What was changed no longer ago than this may change again without a trace: the kernel's
/// clock for files has ticks.
const TICK: Duration = Duration::from_millis(50);

/// The folder of leases, open.
#[derive(Clone, Debug)]
pub(crate) struct LeaseFolder {
    pub(crate) path: PathBuf,
    /// Shared with those who may need it longer than the folder.
    pub(crate) fd: Arc<OwnedFd>,
    /// Its device and inode numbers.
    pub(crate) identity: (u64, u64),
}

impl LeaseFolder {
    /// Opens the folder, and creates it if there is none.
    pub(crate) fn open_or_create(path: &Path) -> Result<Self, LeaseError> {
        // Sticky from the start, whatever the umask removes.
        match mkdir(path, SHARED) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(LeaseError::system(errno, "create folder", path)),
        }
        let folder = Self::open(path)?;
        folder.ok_or_else(|| LeaseError::system(Errno::NOENT, "open folder", path))
    }

    /// Opens the folder if there is one.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, LeaseError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let path = path.to_owned();
                return Err(LeaseError::NotAFolder { path });
            }
            Err(errno) => return Err(LeaseError::system(errno, "open folder", path)),
        };
        let stat = fstat(&fd).map_err(|errno| LeaseError::system(errno, "look at", path))?;
        let sticky = stat.st_mode & STICKY != 0;
        if stat.st_mode & OTHERS_WRITE != 0 && !sticky {
            let path = path.to_owned();
            return Err(LeaseError::NotSticky { path });
        }
        // Restore what the umask removed when we created it. A folder of ours that is not
        // sticky is private.
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if ours && sticky && Mode::from_raw_mode(stat.st_mode) != SHARED {
            fchmod(&fd, SHARED).map_err(|errno| LeaseError::system(errno, "open to all", path))?;
        }
        Ok(Some(Self { path: path.to_owned(), fd: Arc::new(fd), identity: identity(&stat) }))
    }

    /// The folders of all users, those of one user next to each other.
    pub(crate) fn users(&self) -> Result<Vec<UserFolderName>, LeaseError> {
        let failed = |errno| LeaseError::system(errno, "list folder", &self.path);
        let mut found = Vec::new();
        for entry in Dir::read_from(self).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            found.extend(UserFolderName::parse(entry.file_name().to_bytes()));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Those of the folders that their owners alone write to, and as many of each as count.
    pub(crate) fn open_users(
        &self,
        names: &[UserFolderName],
    ) -> Result<Vec<UserFolder>, LeaseError> {
        let mut open: Vec<UserFolder> = Vec::new();
        for &name in names {
            let theirs = open.iter().rev().take(MOST_FOLDERS);
            if theirs.filter(|it| it.name.uid == name.uid).count() < MOST_FOLDERS {
                open.extend(UserFolder::open(self, name)?);
            }
        }
        Ok(open)
    }

    /// The folder of this process's user. Its name cannot be guessed before it is there, so
    /// nobody can put something in its place.
    pub(crate) fn own(&self) -> Result<UserFolder, LeaseError> {
        let uid = rustix::process::geteuid().as_raw();
        let mut names = self.users()?;
        names.retain(|name| name.uid == uid);
        if let Some(own) = self.open_users(&names)?.into_iter().next() {
            return Ok(own);
        }
        let name = UserFolderName::random(uid)?;
        let path = self.path.join(name.to_string());
        mkdirat(self, name.to_string(), OWN)
            .map_err(|errno| LeaseError::system(errno, "create folder", &path))?;
        let own = UserFolder::open(self, name)?;
        let own = own.ok_or_else(|| LeaseError::system(Errno::NOENT, "open folder", &path))?;
        // Restore what the umask removed.
        fchmod(&own, OWN).map_err(|errno| LeaseError::system(errno, "open to all", &path))?;
        Ok(own)
    }

    /// Whether its path still leads to this folder.
    pub(crate) fn is_in_place(&self) -> bool {
        let found = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| identity(&stat) == self.identity)
    }
}

impl AsFd for LeaseFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The folder of one user, open.
#[derive(Debug)]
pub(crate) struct UserFolder {
    pub(crate) name: UserFolderName,
    fd: OwnedFd,
}

impl UserFolder {
    /// `None` if there is none, or if others may write to it.
    fn open(folder: &LeaseFolder, name: UserFolderName) -> Result<Option<Self>, LeaseError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(folder, name.to_string(), flags, Mode::empty()) {
            Ok(fd) => fd,
            // Whoever is not seen must not be taken for somebody who holds nothing.
            Err(errno) if is_shortage(errno) => {
                return Err(LeaseError::system(errno, "open folder", &folder.path));
            }
            Err(_) => return Ok(None),
        };
        let is_theirs = fstat(&fd)
            .is_ok_and(|stat| stat.st_uid == name.uid && stat.st_mode & OTHERS_WRITE == 0);
        Ok(is_theirs.then_some(Self { name, fd }))
    }
}

impl AsFd for UserFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// When a folder was last changed, taken before it is listed: the list holds as long as this
/// does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderStamp(i64, u64);

impl FolderStamp {
    /// `None` if it was changed a moment ago.
    pub(crate) fn of(folder: impl AsFd) -> Option<Self> {
        let stat = fstat(folder).ok()?;
        let (seconds, nanos) = (stat.st_mtime, stat.st_mtime_nsec);
        let since = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
        let changed = SystemTime::UNIX_EPOCH.checked_add(since)?;
        let age = SystemTime::now().duration_since(changed).ok()?;
        (age > TICK).then_some(Self(seconds, nanos))
    }
}

const fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs_err::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs_err::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_folder_is_open_to_all_and_sticky() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        assert!(LeaseFolder::open(&path).unwrap().is_none());
        assert!(!path.exists(), "opening creates nothing");
        LeaseFolder::open_or_create(&path).unwrap();
        assert_eq!(mode(&path), 0o1777);
    }

    #[test]
    fn a_folder_that_was_left_half_created_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o1755);
        LeaseFolder::open_or_create(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o1777);
    }

    #[test]
    fn a_folder_of_ones_own_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o700);
        LeaseFolder::open_or_create(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o700);
    }

    #[test]
    fn a_folder_where_anybody_could_remove_anything_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for open in [0o777, 0o770, 0o702] {
            set_mode(dir.path(), open);
            let error = LeaseFolder::open_or_create(dir.path()).unwrap_err();
            assert!(matches!(error, LeaseError::NotSticky { .. }), "{error}");
            assert!(error.to_string().contains("hint:"), "{error}");
            assert_eq!(mode(dir.path()), open);
        }
    }

    #[test]
    fn a_link_or_a_file_in_the_folders_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        LeaseFolder::open_or_create(&real).unwrap();
        let link = dir.path().join("link");
        symlink(&real, &link).unwrap();
        let file = dir.path().join("file");
        fs_err::write(&file, "").unwrap();
        for path in [link, file] {
            let error = LeaseFolder::open_or_create(&path).unwrap_err();
            assert!(matches!(error, LeaseError::NotAFolder { .. }), "{error}");
        }
    }

    #[test]
    fn it_is_noticed_when_another_folder_has_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        let folder = LeaseFolder::open_or_create(&path).unwrap();
        assert!(folder.is_in_place());
        fs_err::rename(&path, dir.path().join("away")).unwrap();
        assert!(!folder.is_in_place());
        LeaseFolder::open_or_create(&path).unwrap();
        assert!(!folder.is_in_place());
    }
}
