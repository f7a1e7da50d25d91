use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::folder::LeaseFolder;
use crate::lock::{FolderLock, LockResult, holder};
use crate::other_leases::{self, OtherLeases};
use crate::process::SystemId;
use crate::{Lease, LeaseError, LeaseOwner, LeasedDevice, lease};

/// How long to wait for others to decide, which takes them microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// What this process and the other Packhorse processes of this machine hold. A process has at
/// most one.
///
/// If it [listens](Self::listen), its descriptor becomes readable when others' leases have
/// changed, and stays so until [`lock`](Self::lock). Dropping it withdraws this process's lease.
#[derive(Debug)]
pub struct Leases {
    owner: LeaseOwner,
    folder: LeaseFolder,
    lock: FolderLock,
    others: OtherLeases,
    /// What is in our file; `None` if there is none.
    published: Option<Vec<u8>>,
    /// Whether the missing lock has been reported.
    warned: bool,
}

/// The right to decide, until it is dropped. Others wait meanwhile.
#[derive(Debug)]
pub struct LeasesGuard<'a> {
    leases: &'a mut Leases,
    taken: LockResult,
}

impl Leases {
    /// Opens the folder of leases, and creates it if there is none.
    pub fn open(folder: &Path, owner: LeaseOwner) -> Result<Self, LeaseError> {
        let folder = LeaseFolder::open_or_create(&std::path::absolute(folder)?)?;
        Ok(Self {
            others: OtherLeases::new(&folder)?,
            owner,
            lock: FolderLock::new(&folder),
            folder,
            published: None,
            warned: false,
        })
    }

    /// From now on, changes to others' leases make the descriptor readable. Earlier changes are
    /// noticed by the next [`lock`](Self::lock), as they would be without this.
    pub fn listen(&mut self) -> Result<(), LeaseError> {
        self.others.listen(&self.folder)
    }

    /// Waits until nobody else decides, but not for ever, and updates what is known about
    /// others.
    pub fn lock(&mut self) -> Result<LeasesGuard<'_>, LeaseError> {
        self.follow_folder()?;
        let taken = self.lock.take(PATIENCE);
        let guard = LeasesGuard {
            leases: self,
            taken,
        };
        guard.leases.update()?;
        Ok(guard)
    }

    /// Somebody may remove the folder, for example a system that removes a user's files from
    /// memory on logout. All processes move to the new one.
    fn follow_folder(&mut self) -> Result<(), LeaseError> {
        if self.folder.is_in_place() {
            return Ok(());
        }
        let folder = LeaseFolder::open_or_create(&self.folder.path)?;
        self.others.follow(&folder)?;
        self.lock = FolderLock::new(&folder);
        self.folder = folder;
        self.write(self.published.as_deref())
    }

    /// Updates what is known about others, and puts our file back if somebody removed it.
    /// Returns whether others' leases have changed.
    fn update(&mut self) -> Result<bool, LeaseError> {
        let changes = self.others.refresh(&self.folder)?;
        if !changes.own || self.published.is_none() || self.is_published() {
            return Ok(changes.others);
        }
        self.write(self.published.as_deref())?;
        Ok(self.others.refresh(&self.folder)?.others || changes.others)
    }

    fn publish(&mut self, held: &[LeasedDevice]) -> Result<(), LeaseError> {
        let bytes = match held {
            [] => None,
            held => Some(lease::write(&self.others.system, &self.owner, held)?),
        };
        if bytes == self.published {
            return Ok(());
        }
        self.write(bytes.as_deref())?;
        self.published = bytes;
        // The event of our own file is read here, so that it wakes nobody. If there were other
        // events too, they must.
        if self.update()? {
            self.others.watch.wake_up();
        }
        Ok(())
    }

    /// Writes our file, or removes it.
    fn write(&self, bytes: Option<&[u8]>) -> Result<(), LeaseError> {
        let written = match bytes {
            Some(bytes) => self.write_file(bytes),
            None => self.remove_file(),
        };
        written.map_err(|errno| {
            let path = self.folder.path.join(self.others.me.to_string());
            LeaseError::system(errno, "write lease", &path)
        })
    }

    /// Renames the file when it is complete, so that readers see all of it or nothing.
    fn write_file(&self, bytes: &[u8]) -> Result<(), Errno> {
        let draft = self.others.me.draft();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let open = || openat(&self.folder, &draft, flags, mode);
        let file = open().or_else(|errno| {
            // Left over from when the file system was full.
            if errno == Errno::EXIST {
                unlinkat(&self.folder, &draft, AtFlags::empty())?;
                return open();
            }
            Err(errno)
        })?;
        // Others must be able to read it, whatever the umask says.
        fchmod(&file, mode)?;
        if rustix::io::write(&file, bytes)? < bytes.len() {
            return Err(Errno::NOSPC);
        }
        renameat(
            &self.folder,
            &draft,
            &self.folder,
            self.others.me.to_string(),
        )
    }

    fn remove_file(&self) -> Result<(), Errno> {
        match unlinkat(&self.folder, self.others.me.to_string(), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    fn is_published(&self) -> bool {
        let name = self.others.me.to_string();
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| stat.st_uid == self.others.me.uid)
    }
}

impl LeasesGuard<'_> {
    /// What others hold.
    pub fn others(&self) -> impl Iterator<Item = &Lease> {
        self.leases.others.leases()
    }

    /// A number that grows whenever [`others`](Self::others) changes.
    pub const fn revision(&self) -> u64 {
        self.leases.others.revision
    }

    /// Tells others everything that this process holds from now on. Writes nothing if that has
    /// not changed.
    pub fn publish(&mut self, held: &[LeasedDevice]) -> Result<(), LeaseError> {
        self.leases.publish(held)
    }

    /// Why others may decide at the same time, if they may. Returned once, and again only if all
    /// was well in between.
    pub fn warning(&mut self) -> Option<LeaseError> {
        let leases = &mut *self.leases;
        let path = leases.folder.path.clone();
        let warning = match self.taken {
            LockResult::Acquired => None,
            LockResult::Busy => Some(LeaseError::Locked {
                path,
                holder: holder(leases.folder.identity),
            }),
            LockResult::Unavailable(errno) => Some(LeaseError::NoLock {
                path,
                reason: errno.into(),
            }),
        };
        let warned = std::mem::replace(&mut leases.warned, warning.is_some());
        warning.filter(|_| !warned)
    }
}

impl Drop for LeasesGuard<'_> {
    fn drop(&mut self) {
        if self.taken == LockResult::Acquired {
            self.leases.lock.release();
        }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        if self.published.is_some() {
            let _ = self.remove_file();
        }
    }
}

impl AsFd for Leases {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.others.watch.as_fd()
    }
}

/// What every process of this machine holds now. Locks, creates and removes nothing; if there is
/// no folder, there are no leases.
pub fn read_leases(folder: &Path) -> Result<Vec<Lease>, LeaseError> {
    match LeaseFolder::open(folder)? {
        Some(folder) => other_leases::living(&folder, &SystemId::read()?),
        None => Ok(Vec::new()),
    }
}
