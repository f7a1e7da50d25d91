use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_proc::ProcessKey;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::folder::{LeaseFolder, UserFolder};
use crate::lease_name::LeaseName;
use crate::lock::{FolderLock, LockResult, holder};
use crate::other_leases::{self, OtherLeases};
use crate::process::SystemId;
use crate::{Lease, LeaseContent, LeaseError, LeaseOwner, lease};

/// How often our file is put back before somebody else gets a turn.
const TRIES: u32 = 3;

/// How long to wait for others to decide, which takes them microseconds. Nobody notices it.
const MOMENT: Duration = Duration::from_millis(50);

/// What this process and the other Packhorse processes of this machine hold. A process has at
/// most one.
///
/// If it [listens](Self::listen), its descriptor becomes readable when others' leases have
/// changed, and stays so until [`try_lock`](Self::try_lock). Dropping it withdraws this process's lease.
#[derive(Debug)]
pub struct Leases {
    owner: LeaseOwner,
    folder: LeaseFolder,
    /// The folder of our user, once we have written to it.
    own: Option<UserFolder>,
    lock: FolderLock,
    /// An eventfd that rings when it is our turn.
    bell: Arc<OwnedFd>,
    others: OtherLeases,
    content: LeaseContent,
    /// The first processes of our attempts.
    leaders: Vec<ProcessKey>,
    /// What is in our file; `None` if there is none.
    published: Option<Vec<u8>>,
    /// Whether our file is watched.
    guarded: bool,
    /// Our file could not be watched when it was written: it may be gone.
    is_unwatched: bool,
    /// Whether the missing lock has been reported.
    warned: bool,
}

/// The right to decide, until it is dropped. Others wait meanwhile.
#[derive(Debug)]
pub struct LeasesGuard<'a> {
    leases: &'a mut Leases,
    taken: LockResult,
}

/// Whose turn it is to decide.
#[derive(Debug)]
pub enum FolderTurn<'a> {
    Ours(LeasesGuard<'a>),
    /// Somebody else's. It has to be asked for again when the [bell](Leases::bell) rings, and
    /// at this time if it has not.
    Awaited(Instant),
}

impl Leases {
    /// Opens the folder of leases, and creates it if there is none.
    pub fn open(folder: &Path, owner: LeaseOwner) -> Result<Self, LeaseError> {
        let folder = LeaseFolder::open_or_create(&std::path::absolute(folder)?)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(io::Error::from)?);
        let mut others = OtherLeases::new(&folder, &owner)?;
        others.watch.set_timer(others.due());
        Ok(Self {
            lock: FolderLock::new(&folder, Arc::clone(&bell)),
            bell,
            others,
            owner,
            own: None,
            folder,
            content: LeaseContent::default(),
            leaders: Vec::new(),
            published: None,
            guarded: false,
            is_unwatched: false,
            warned: false,
        })
    }

    /// From now on, changes to others' leases make the descriptor readable. Earlier changes are
    /// noticed by the next [`try_lock`](Self::try_lock), as they would be without this.
    pub fn listen(&mut self) -> Result<(), LeaseError> {
        let listening = self.others.listen(&self.folder);
        // What could not be looked at is looked at again.
        self.others.watch.set_timer(self.others.due());
        listening
    }

    /// Whether changes to others' leases make the descriptor readable. What was so may end
    /// by itself, when there are more folders than may be watched.
    pub fn is_listening(&self) -> bool {
        self.others.watch.is_listening()
    }

    /// Changes to others' leases do not make the descriptor readable any more.
    pub fn unlisten(&mut self) {
        self.others.watch.unlisten();
    }

    /// Whether anybody has given something up that was not
    /// [seen](LeasesGuard::set_seen) yet. Waits for nobody, and makes the descriptor readable no more.
    pub fn has_freed(&mut self) -> Result<bool, LeaseError> {
        self.follow_folder()?;
        self.update()?;
        Ok(self.others.freed)
    }

    /// Tells others who leads our attempts, so that what we leave behind is known if we are
    /// killed. From now on the descriptor also becomes readable when somebody removes our
    /// lease, and it is back after the next [`try_lock`](Self::try_lock).
    pub fn guard(&mut self, leaders: Vec<ProcessKey>) -> Result<(), LeaseError> {
        self.leaders = leaders;
        if !std::mem::replace(&mut self.guarded, true) {
            self.guard_file();
        }
        let content = self.content.clone();
        self.lower(&content)
    }

    /// Tells others that this process holds less than they know, or waits for something else.
    /// Needs no lock: whoever decides at the same moment sees the one or the other. Nor does it
    /// matter what others hold: where too many hold something, it is what helps.
    pub fn lower(&mut self, content: &LeaseContent) -> Result<(), LeaseError> {
        let updated = self.follow_folder().and_then(|()| self.update());
        match updated {
            Err(error) if !error.hides_others() => Err(error),
            _ => self.publish(content),
        }
    }

    /// The right to decide, with what is known about others up to date, unless somebody else
    /// decides, and is not done within a moment. It is not refused for ever: see
    /// [`warning`](LeasesGuard::warning).
    pub fn try_lock(&mut self) -> Result<FolderTurn<'_>, LeaseError> {
        loop {
            self.follow_folder()?;
            match self.lock.take(MOMENT) {
                LockResult::Awaited => {
                    let due = self.lock.due().unwrap_or_else(Instant::now);
                    return Ok(FolderTurn::Awaited(due));
                }
                taken if self.update_locked(taken)? => {
                    let leases = self;
                    return Ok(FolderTurn::Ours(LeasesGuard { leases, taken }));
                }
                _ => {}
            }
        }
    }

    /// Becomes readable when it is our turn to decide, if we have asked for that. Not while
    /// others do theirs: each of many who wait would be woken by each of the others.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes note that the bell has rung.
    pub fn hear_bell(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
    }

    /// The same for those who have nothing else to do: waits until it is there.
    pub fn lock(&mut self) -> Result<LeasesGuard<'_>, LeaseError> {
        loop {
            self.follow_folder()?;
            match self.lock.take(MOMENT) {
                LockResult::Awaited => self.lock.wait(),
                taken if self.update_locked(taken)? => {
                    let leases = self;
                    return Ok(LeasesGuard { leases, taken });
                }
                _ => {}
            }
        }
    }

    /// Updates what is known about others under the lock. Whether that is still the lock of
    /// all: if the folder was removed in this very moment, others have locked another one.
    fn update_locked(&mut self, taken: LockResult) -> Result<bool, LeaseError> {
        let locked = self.folder.identity;
        // Whoever was in a folder that is gone is not to be forgotten because of that.
        let updated = if self.folder.is_in_place() {
            self.update().map(|_| self.folder.is_in_place())
        } else {
            Ok(false)
        };
        let updated = updated.map(|in_place| in_place && self.folder.identity == locked);
        if !matches!(updated, Ok(true)) && taken == LockResult::Acquired {
            self.lock.release();
        }
        updated
    }

    /// Somebody may remove the folder, for example a system that removes a user's files from
    /// memory on logout. All processes move to the new one.
    fn follow_folder(&mut self) -> Result<(), LeaseError> {
        if self.folder.is_in_place() {
            return Ok(());
        }
        let moved = self.move_to_new_folder();
        if moved.is_err() {
            // Nobody tells when it can be done, and the descriptor must not stay readable.
            self.others.pass_over_events();
            self.others.watch.set_timer(self.others.due());
        }
        moved
    }

    fn move_to_new_folder(&mut self) -> Result<(), LeaseError> {
        let folder = LeaseFolder::open_or_create(&self.folder.path)?;
        let followed = self.others.follow(&folder);
        if followed.as_ref().is_err_and(|error| !error.hides_others()) {
            return followed;
        }
        self.lock = FolderLock::new(&folder, Arc::clone(&self.bell));
        self.folder = folder;
        self.others.watch.set_timer(self.others.due());
        // Others are to see us, whether we see them or not.
        self.restore().and(followed)
    }

    /// Puts our file back, if there is to be one.
    fn restore(&mut self) -> Result<(), LeaseError> {
        self.own = None;
        let written = self.write_published();
        if written.is_err() {
            // Nobody would tell that it is still missing.
            self.is_unwatched = true;
            self.others.look_again_later();
            self.others.watch.set_timer(self.others.due());
        } else if !self.guarded {
            self.is_unwatched = false;
        }
        written
    }

    /// Updates what is known about others, and puts our file back if somebody removed it.
    /// Returns whether others' leases have changed.
    fn update(&mut self) -> Result<bool, LeaseError> {
        let updated = self.update_and_restore();
        // What could not be looked at is looked at again.
        self.others.watch.set_timer(self.others.due());
        updated
    }

    fn update_and_restore(&mut self) -> Result<bool, LeaseError> {
        let mut others = false;
        // Somebody may remove it again in the moment that it takes.
        for _ in 0..TRIES {
            let changes = self.others.refresh(&self.folder)?;
            others |= changes.others;
            let is_touched = changes.own || self.is_unwatched;
            if !is_touched || self.published.is_none() || self.is_published() {
                return Ok(others);
            }
            if self.folder.is_in_place() {
                self.restore()?;
            } else {
                self.follow_folder()?;
            }
        }
        self.others.watch.wake_up();
        Ok(others)
    }

    fn publish(&mut self, content: &LeaseContent) -> Result<(), LeaseError> {
        let bytes = if *content == LeaseContent::default() {
            None
        } else {
            let system = &self.others.system;
            Some(lease::write(system, &self.owner, content, &self.leaders)?)
        };
        if bytes == self.published {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.published, bytes);
        if let Err(error) = self.write_published() {
            self.published = before;
            return Err(error);
        }
        self.content.clone_from(content);
        // The event of our own file is read here, so that it wakes nobody. If there were other
        // events too, they must.
        match self.update() {
            Ok(true) => {
                self.others.freed = true;
                self.others.watch.wake_up();
            }
            Ok(false) => {}
            // They have been told, and will be looked at again.
            Err(error) if error.hides_others() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes our file as it should be, or removes it.
    fn write_published(&mut self) -> Result<(), LeaseError> {
        let written = match &self.published {
            Some(bytes) => {
                let own = match self.own.take() {
                    Some(own) => own,
                    None => self.folder.own()?,
                };
                let mut written = write_file(self.own.insert(own), self.others.me, bytes);
                if written == Err(Errno::NOENT) {
                    // Somebody has removed the folder as well.
                    let own = self.own.insert(self.folder.own()?);
                    written = write_file(own, self.others.me, bytes);
                }
                written
            }
            None => self.remove_file(),
        };
        if written.is_ok() && self.guarded {
            self.guard_file();
        }
        written.map_err(|errno| LeaseError::system(errno, "write lease", &self.path()))
    }

    /// Where our file is, or would be.
    fn path(&self) -> PathBuf {
        let folder = self.own.as_ref().map(|own| own.name.to_string());
        let folder = self.folder.path.join(folder.unwrap_or_default());
        folder.join(self.others.me.to_string())
    }

    /// Watches our file, if there is one.
    fn guard_file(&mut self) {
        let path = self.path();
        if self.published.is_none() {
            self.others.watch.unguard();
        } else {
            self.is_unwatched = self.others.watch.guard(&path).is_err();
            if self.is_unwatched {
                // It is gone already, or nobody can watch it: the next look will tell.
                self.others.watch.wake_up();
            }
        }
    }

    fn remove_file(&self) -> Result<(), Errno> {
        let Some(own) = &self.own else {
            return Ok(());
        };
        match unlinkat(own, self.others.me.to_string(), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// Whether our file is where others look for it.
    fn is_published(&self) -> bool {
        let found = statat(CWD, self.path(), AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| stat.st_uid == self.others.me.uid)
    }
}

impl LeasesGuard<'_> {
    /// What others hold.
    pub fn others(&self) -> impl Iterator<Item = &Lease> {
        self.leases.others.leases()
    }

    /// Takes note that [`others`](Self::others) were looked at.
    pub const fn set_seen(&mut self) {
        self.leases.others.freed = false;
    }

    /// A number that grows whenever [`others`](Self::others) changes.
    pub const fn revision(&self) -> u64 {
        self.leases.others.revision
    }

    /// Tells others everything that this process holds and waits for from now on. Writes
    /// nothing if that has not changed.
    pub fn publish(&mut self, content: &LeaseContent) -> Result<(), LeaseError> {
        self.leases.publish(content)
    }

    /// Why others may decide at the same time, if they may. Returned once, and again only if all
    /// was well in between.
    pub fn warning(&mut self) -> Option<LeaseError> {
        let leases = &mut *self.leases;
        let path = leases.folder.path.clone();
        let warning = match self.taken {
            LockResult::Acquired | LockResult::Awaited => None,
            LockResult::Busy => {
                Some(LeaseError::Locked { path, holder: holder(leases.folder.identity) })
            }
            LockResult::Unavailable(errno) => {
                Some(LeaseError::NoLock { path, reason: errno.into() })
            }
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

/// Renames the file when it is complete, so that readers see all of it or nothing.
fn write_file(folder: &UserFolder, me: LeaseName, bytes: &[u8]) -> Result<(), Errno> {
    let draft = me.draft();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let open = || openat(folder, &draft, flags, mode);
    let file = open().or_else(|errno| {
        // Left over from when the file system was full.
        if errno == Errno::EXIST {
            unlinkat(folder, &draft, AtFlags::empty())?;
            return open();
        }
        Err(errno)
    })?;
    // Others must be able to read it, whatever the umask says.
    fchmod(&file, mode)?;
    if rustix::io::write(&file, bytes)? < bytes.len() {
        return Err(Errno::NOSPC);
    }
    renameat(folder, &draft, folder, me.to_string())
}

/// What every process of this machine holds now. Locks, creates and removes nothing; if there is
/// no folder, there are no leases.
pub fn read_leases(folder: &Path) -> Result<Vec<Lease>, LeaseError> {
    match LeaseFolder::open(folder)? {
        Some(folder) => other_leases::living(&folder, &SystemId::read()?),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_a_folder_that_is_gone_is_not_that_of_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("leases");
        let mut leases = Leases::open(&path, LeaseOwner::default()).unwrap();
        let taken = leases.lock.take(MOMENT);
        assert_eq!(taken, LockResult::Acquired);
        // It holds nothing, so it misses nothing there.
        fs_err::rename(&path, place.path().join("away")).unwrap();
        fs_err::create_dir(&path).unwrap();
        assert!(!leases.update_locked(taken).unwrap());
        leases.follow_folder().unwrap();
        let taken = leases.lock.take(MOMENT);
        assert_eq!(taken, LockResult::Acquired);
        assert!(leases.update_locked(taken).unwrap());
    }
}
