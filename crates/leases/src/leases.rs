use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::folder::Folder;
use crate::lock::{Lock, Taken, holder};
use crate::name::Name;
use crate::others::{self, Others};
use crate::process::{self, Here};
use crate::{About, Error, Held, Lease, lease};

/// How long to wait for others to decide: they take microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// What other Packhorse processes of this machine hold, and what this one does.
/// One for each process.
///
/// As a file descriptor it becomes readable when others' leases have changed, if
/// it [listens](Self::listen), and stays so until [`refresh`](Self::refresh) or
/// [`lock`](Self::lock).
/// Dropping it withdraws this process's lease.
#[derive(Debug)]
pub struct Leases {
    me: Name,
    here: Here,
    about: About,
    folder: Folder,
    lock: Lock,
    others: Others,
    /// What is in our file; `None` if there is none.
    published: Option<Vec<u8>>,
    /// Whether it has been said that there is no lock.
    said: bool,
}

/// The right to decide. Others wait while it is there.
#[derive(Debug)]
pub struct Guard<'a> {
    leases: &'a mut Leases,
    taken: Taken,
}

impl Leases {
    /// Opens the folder of leases, making it if there is none.
    pub fn open(folder: &Path, about: About) -> Result<Self, Error> {
        let folder = Folder::open_or_make(&std::path::absolute(folder)?)?;
        let (me, here) = (process::me()?, Here::read()?);
        Ok(Self {
            me,
            others: Others::new(me, here.clone(), &folder)?,
            here,
            about,
            lock: Lock::new(folder.fd()),
            folder,
            published: None,
            said: false,
        })
    }

    /// From now on others' doings make the descriptor readable. What they did
    /// before is taken in with the next [`refresh`](Self::refresh) or
    /// [`lock`](Self::lock), as it would be without this.
    pub fn listen(&mut self) -> Result<(), Error> {
        self.others.listen(&self.folder)
    }

    /// Takes in what others have done. Returns whether that changed anything.
    pub fn refresh(&mut self) -> Result<bool, Error> {
        let moved = self.keep_place()?;
        Ok(self.take_in()? || moved)
    }

    /// Waits until nobody else decides, but not for ever, and takes in what
    /// others have done.
    pub fn lock(&mut self) -> Result<Guard<'_>, Error> {
        self.keep_place()?;
        let taken = self.lock.take(PATIENCE);
        let guard = Guard {
            leases: self,
            taken,
        };
        guard.leases.take_in()?;
        Ok(guard)
    }

    /// Folders are cleaned up: by people, and by systems that remove a user's
    /// files from memory when he logs out. All go on in the new one.
    fn keep_place(&mut self) -> Result<bool, Error> {
        if self.folder.is_in_place() {
            return Ok(false);
        }
        let folder = Folder::open_or_make(self.folder.path())?;
        self.others.follow(&folder)?;
        self.lock = Lock::new(folder.fd());
        self.folder = folder;
        self.write(self.published.as_deref())?;
        Ok(true)
    }

    /// Takes in the news, and puts our file back if somebody removed it.
    fn take_in(&mut self) -> Result<bool, Error> {
        let change = self.others.refresh(&self.folder)?;
        if !change.mine || self.published.is_none() || self.is_published() {
            return Ok(change.others);
        }
        self.write(self.published.as_deref())?;
        Ok(self.others.refresh(&self.folder)?.others || change.others)
    }

    fn publish(&mut self, held: &[Held]) -> Result<(), Error> {
        let bytes = match held {
            [] => None,
            held => Some(lease::write(&self.here, &self.about, held)?),
        };
        if bytes == self.published {
            return Ok(());
        }
        self.write(bytes.as_deref())?;
        self.published = bytes;
        // Our own file is no news: the event is read before anybody wakes up
        // for it. If it was not alone, somebody has to.
        if self.take_in()? {
            self.others.watch().ring();
        }
        Ok(())
    }

    /// Writes our file, or removes it if there is nothing to write.
    fn write(&self, bytes: Option<&[u8]>) -> Result<(), Error> {
        let written = match bytes {
            Some(bytes) => self.write_file(bytes),
            None => self.remove_file(),
        };
        written.map_err(|errno| {
            let path = self.folder.path().join(self.me.to_string());
            Error::system(errno, "write lease", &path)
        })
    }

    /// Whoever reads finds all of it or none: it is renamed when it is whole.
    fn write_file(&self, bytes: &[u8]) -> Result<(), Errno> {
        let draft = self.me.draft();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let open = || openat(&self.folder, &draft, flags, mode);
        let file = open().or_else(|errno| {
            // Left over from when the disk was full.
            if errno == Errno::EXIST {
                unlinkat(&self.folder, &draft, AtFlags::empty())?;
                return open();
            }
            Err(errno)
        })?;
        // Whatever the umask says: it is there to be read.
        fchmod(&file, mode)?;
        if rustix::io::write(&file, bytes)? < bytes.len() {
            return Err(Errno::NOSPC);
        }
        renameat(&self.folder, &draft, &self.folder, self.me.to_string())
    }

    fn remove_file(&self) -> Result<(), Errno> {
        match unlinkat(&self.folder, self.me.to_string(), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    fn is_published(&self) -> bool {
        let name = self.me.to_string();
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| stat.st_uid == self.me.uid)
    }
}

impl Guard<'_> {
    /// What others hold.
    pub fn others(&self) -> impl Iterator<Item = &Lease> {
        self.leases.others.leases()
    }

    /// A number that grows whenever [`others`](Self::others) changes, for those
    /// who would rather not look again.
    pub const fn revision(&self) -> u64 {
        self.leases.others.revision()
    }

    /// Tells others what this process holds from now on, in all. Nothing is
    /// written if it is what was told before.
    pub fn publish(&mut self, held: &[Held]) -> Result<(), Error> {
        self.leases.publish(held)
    }

    /// What is wrong if others may decide at this same moment. Told once, and
    /// again only if it was well in between.
    pub fn warning(&mut self) -> Option<Error> {
        let leases = &mut *self.leases;
        let path = leases.folder.path().to_owned();
        let warning = match self.taken {
            Taken::Yes => None,
            Taken::Kept => Some(Error::Locked {
                path,
                holder: holder(leases.folder.identity()),
            }),
            Taken::Never(errno) => Some(Error::NoLock {
                path,
                reason: errno.into(),
            }),
        };
        let said = std::mem::replace(&mut leases.said, warning.is_some());
        warning.filter(|_| !said)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.taken == Taken::Yes {
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
        self.others.watch().as_fd()
    }
}

/// What every process of this machine holds at this moment, for people to see.
/// Nothing is locked, made or removed; without the folder there is nothing.
pub fn holders(folder: &Path) -> Result<Vec<Lease>, Error> {
    match Folder::open(folder)? {
        Some(folder) => others::living(&folder, &Here::read()?),
        None => Ok(Vec::new()),
    }
}
