mod after_death;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_proc::{ProcessKey, ProcessTable};
use rustix::fs::{AtFlags, Dir, unlinkat};
use rustix::io::Errno;

use self::after_death::{Sight, left_running};
use crate::folder::{FolderStamp, LeaseFolder, UserFolder};
use crate::folder_watch::{FolderWatch, Look};
use crate::given_up::gives_up;
use crate::lease::{self, LeaseFile};
use crate::lease_name::{LeaseName, UserFolderName};
use crate::process::{self, ProcessState, SystemId, is_shortage};
use crate::{Lease, LeaseError, LeaseOwner};

/// How many leases of one user count that hold nothing, and how many that hold something can
/// be followed.
const MOST_OF_A_USER: usize = 256;

/// How many files of one folder are looked at.
const MOST_FILES: usize = 4096;

/// When it is looked again at what nobody can watch, or could not see.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a process has to move to a new folder before its lease there is missed. It moves
/// as soon as it notices, which may take a moment on a busy machine.
const TIME_TO_MOVE: Duration = Duration::from_secs(1);

/// How often to read events that arrive while events are processed.
const ROUNDS: usize = 8;

/// What is known about other processes' leases. If the folders are watched, events keep it up
/// to date; otherwise the folders are looked at for every [`refresh`](Self::refresh).
#[derive(Debug)]
pub(crate) struct OtherLeases {
    pub(crate) me: LeaseName,
    /// This process's state folder and run.
    run: RunKey,
    pub(crate) system: SystemId,
    pub(crate) watch: FolderWatch,
    users: BTreeMap<UserFolderName, KnownFolder>,
    /// When the folders of users were listed, if nothing can have changed since.
    listed: Option<FolderStamp>,
    known: BTreeMap<LeaseName, KnownLease>,
    /// Leases of dead processes that left nothing running, and that we could not remove.
    over: BTreeSet<LeaseName>,
    /// All processes, if they were needed a moment ago.
    processes: Option<ProcessTable>,
    /// Something could not be looked at, so everything has to be looked at again, then.
    missed: Option<Instant>,
    /// Grows whenever a lease changes.
    pub(crate) revision: u64,
    /// Whether anybody has given something up since this was last set to false.
    pub(crate) freed: bool,
}

type RunKey = (String, Option<packhorse_model::RunId>);

#[derive(Debug)]
struct KnownFolder {
    folder: Arc<UserFolder>,
    listed: Option<FolderStamp>,
}

#[derive(Debug)]
struct KnownLease {
    folder: Arc<UserFolder>,
    lease: Lease,
    leaders: Vec<ProcessKey>,
    /// The process that holds it; if that is dead, those that it left running.
    processes: Vec<(u32, OwnedFd)>,
    /// When it has to be looked at again, because nobody is watched whose end would tell.
    look_again: Option<Instant>,
    /// The folder that it was in is gone, and its process lives: until when it counts,
    /// wherever it is.
    moves_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseChanges {
    /// Others' leases have changed.
    pub(crate) others: bool,
    /// Something may have happened to our own file.
    pub(crate) own: bool,
}

impl OtherLeases {
    /// Reads the folders.
    pub(crate) fn new(folder: &LeaseFolder, owner: &LeaseOwner) -> Result<Self, LeaseError> {
        let mut others = Self {
            me: process::me()?,
            run: run_of(owner),
            system: SystemId::read()?,
            watch: FolderWatch::new()?,
            users: BTreeMap::new(),
            listed: None,
            known: BTreeMap::new(),
            over: BTreeSet::new(),
            processes: None,
            missed: None,
            revision: 0,
            freed: false,
        };
        match others.scan(folder) {
            Err(error) if !error.hides_others() => return Err(error),
            // Whoever wants to decide is told.
            Err(_) => others.missed = Some(Instant::now()),
            Ok(()) => {}
        }
        Ok(others)
    }

    /// Watches the folders from now on.
    pub(crate) fn listen(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        if self.watch.is_listening() {
            return Ok(());
        }
        self.watch.listen(folder, self.users.keys())?;
        // There are no events for what came before.
        self.scan_anew(folder)
    }

    /// Uses this folder from now on. Those who were in the one before will come, too.
    pub(crate) fn follow(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        self.users.clear();
        let until = Instant::now() + TIME_TO_MOVE;
        for known in self.known.values_mut() {
            if known.lease.left.is_none() {
                known.moves_until.get_or_insert(until);
            }
        }
        if self.watch.is_listening() {
            self.watch.listen(folder, [].iter())?;
        }
        self.scan_anew(folder)
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.known.values().map(|known| &known.lease)
    }

    /// Updates what is known.
    pub(crate) fn refresh(&mut self, folder: &LeaseFolder) -> Result<LeaseChanges, LeaseError> {
        let missed = std::mem::take(&mut self.missed);
        let looked = self.read_changes(folder, missed.is_some());
        if looked.is_err() {
            // What happened meanwhile will not be told again.
            self.look_again_later();
        }
        looked
    }

    fn read_changes(
        &mut self,
        folder: &LeaseFolder,
        anew: bool,
    ) -> Result<LeaseChanges, LeaseError> {
        let before = self.revision;
        let mut changes = LeaseChanges::default();
        self.look_again(Instant::now())?;
        for round in 1..=ROUNDS {
            self.processes = None;
            let mut events = self.watch.take_events();
            if round == 1 && anew {
                events.look = Look::Everywhere;
            } else if round == 1 && !self.watch.is_listening() {
                events.look = events.look.max(Look::Changes);
            }
            if events.is_empty() {
                break;
            }
            if round == ROUNDS {
                // Somebody makes events faster than they can be read. Only what is in the
                // folders now matters.
                events.look = Look::Everywhere;
            }
            changes.others |= events.woken_up;
            let ours = |(_, name): &(_, LeaseName)| *name == self.me;
            changes.own |= events.own || events.look > Look::Nowhere;
            changes.own |= events.leases.iter().any(ours);
            for pid in events.ended {
                self.ended(pid)?;
            }
            match events.look {
                Look::Nowhere => {}
                Look::Changes => self.scan(folder)?,
                Look::Everywhere => self.scan_anew(folder)?,
            }
            for (user, name) in events.leases {
                if let Some(user) = self.users.get(&user) {
                    let user = Arc::clone(&user.folder);
                    self.read_file(&user, name)?;
                }
            }
        }
        changes.others |= self.revision != before;
        Ok(changes)
    }

    /// When something has to be looked at again, though nothing may happen until then.
    pub(crate) fn due(&self) -> Option<Instant> {
        let leases = self.known.values();
        let leases = leases.flat_map(|known| known.look_again.into_iter().chain(known.moves_until));
        leases.chain(self.missed).min()
    }

    /// Everything is looked at again before long.
    pub(crate) fn look_again_later(&mut self) {
        self.missed = Some(Instant::now() + LOOK_AGAIN);
    }

    /// Takes note of nothing but who has ended, while the folder cannot be looked at. That is
    /// tried again before long.
    pub(crate) fn pass_over_events(&mut self) {
        self.look_again_later();
        // Whoever cannot be looked at now is looked at later as well.
        let _ = self.look_again(Instant::now());
        for _ in 0..ROUNDS {
            let events = self.watch.take_events();
            if events.is_empty() {
                break;
            }
            for pid in events.ended {
                let _ = self.ended(pid);
            }
        }
    }

    /// Reads all folders, whatever is known of them.
    fn scan_anew(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        self.listed = None;
        for user in self.users.values_mut() {
            user.listed = None;
        }
        let scanned = self.scan(folder);
        if scanned.is_err() {
            self.look_again_later();
        }
        scanned
    }

    /// Reads every file of all folders that have changed.
    fn scan(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        self.list_users(folder)?;
        for name in self.users.keys().copied().collect::<Vec<_>>() {
            let Some(user) = self.users.get_mut(&name) else {
                continue;
            };
            let stamp = FolderStamp::of(&*user.folder);
            if stamp.is_some() && stamp == user.listed {
                continue;
            }
            let found = names(&user.folder)?;
            user.listed = stamp;
            let user = Arc::clone(&user.folder);
            let gone = self
                .known
                .iter()
                .filter(|(_, known)| known.folder.name == name && known.moves_until.is_none());
            let gone = gone.map(|(name, _)| *name);
            for name in gone.filter(|name| !found.contains(name)).collect::<Vec<_>>() {
                self.forget(name);
            }
            self.over.retain(|over| over.uid != name.uid || found.contains(over));
            for name in found {
                self.read_file(&user, name)?;
            }
        }
        Ok(())
    }

    /// Finds the folders of users that came or went.
    fn list_users(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        let stamp = FolderStamp::of(folder);
        if stamp.is_some() && stamp == self.listed {
            return Ok(());
        }
        let open = folder.open_users(&folder.users()?)?;
        self.listed = stamp;
        let names: BTreeSet<UserFolderName> = open.iter().map(|user| user.name).collect();
        self.users.retain(|name, _| names.contains(name));
        let gone = self.known.iter();
        let gone = gone.filter(|(_, known)| {
            !names.contains(&known.folder.name) && known.moves_until.is_none()
        });
        for name in gone.map(|(name, _)| *name).collect::<Vec<_>>() {
            self.forget(name);
        }
        for user in open {
            if self.users.contains_key(&user.name) {
                continue;
            }
            if self.watch.is_listening() && self.watch.listen_to(folder, user.name).is_err() {
                // From now on everything is looked at every time, and whoever listens has
                // to know.
                self.watch.unlisten();
                self.watch.wake_up();
            }
            let known = KnownFolder { folder: Arc::new(user), listed: None };
            self.users.insert(known.folder.name, known);
        }
        Ok(())
    }

    /// Reads one file.
    fn read_file(&mut self, folder: &Arc<UserFolder>, name: LeaseName) -> Result<(), LeaseError> {
        if name == self.me || self.over.contains(&name) {
            return Ok(());
        }
        let (lease, leaders) = match lease::read(folder, name, &self.system) {
            LeaseFile::Lease(lease, leaders) => (lease, leaders),
            LeaseFile::Stale => {
                remove(folder, name);
                self.forget(name);
                return Ok(());
            }
            LeaseFile::Nothing => {
                self.forget(name);
                return Ok(());
            }
            LeaseFile::Unread(errno) => return Err(unread(errno)),
        };
        if let Some(known) = self.known.get_mut(&name) {
            let lease = Lease { left: known.lease.left.take(), ..lease };
            known.leaders = leaders;
            if known.moves_until.take().is_some() {
                known.folder = Arc::clone(folder);
            }
            if known.lease != lease {
                self.revision += 1;
                self.freed |= gives_up(&known.lease, &lease);
            }
            known.lease = lease;
            return Ok(());
        }
        let holds = !lease.held.is_empty();
        if !holds && self.count_of(name.uid, holds) >= MOST_OF_A_USER {
            return Ok(());
        }
        self.note(Arc::clone(folder), name, lease, leaders, Sight::First);
        if holds && self.count_of(name.uid, holds) > MOST_OF_A_USER {
            // What it holds must not be taken for free.
            self.forget(name);
            let (uid, most) = (name.uid, MOST_OF_A_USER);
            return Err(LeaseError::TooMany { uid, most });
        }
        Ok(())
    }

    /// How many leases of a user are known that hold something, or nothing. Those of dead
    /// processes of which nothing was seen yet are soon gone.
    fn count_of(&self, uid: u32, holds: bool) -> usize {
        let known = self.known.values().map(|known| &known.lease);
        let theirs = known.filter(|lease| lease.uid == uid && lease.held.is_empty() != holds);
        let is_soon_gone = |lease: &&Lease| lease.left.as_ref().is_some_and(Vec::is_empty);
        theirs.filter(|lease| !is_soon_gone(lease)).count()
    }

    /// Takes note of a lease, if it counts.
    fn note(
        &mut self,
        folder: Arc<UserFolder>,
        name: LeaseName,
        lease: Lease,
        leaders: Vec<ProcessKey>,
        sight: Sight,
    ) {
        let process = match process::find(name) {
            ProcessState::Alive(process) => Some(process),
            // Better to wait for somebody who is dead than to take what is somebody's.
            ProcessState::Unopened => None,
            ProcessState::Ended => return self.look_for_left(folder, name, lease, leaders, sight),
            ProcessState::Unknown => return,
        };
        let is_watched = |process: &OwnedFd| self.watch.add(process, name.pid).is_ok();
        let process = process.filter(is_watched);
        let look_again = process.is_none().then(|| Instant::now() + LOOK_AGAIN);
        let known = KnownLease {
            folder,
            lease,
            leaders,
            processes: process.map(|it| (name.pid, it)).into_iter().collect(),
            look_again,
            moves_until: None,
        };
        self.known.insert(name, known);
        self.revision += 1;
    }

    fn forget(&mut self, name: LeaseName) {
        if let Some(known) = self.known.remove(&name) {
            for (_, process) in &known.processes {
                self.watch.remove(process);
            }
            self.revision += 1;
            self.freed = true;
        }
    }
}

fn unread(errno: Errno) -> LeaseError {
    let reason = errno.into();
    LeaseError::Shortage { reason }
}

fn run_of(owner: &LeaseOwner) -> RunKey {
    (owner.home.clone(), owner.run)
}

/// The leases that count now. Changes and removes nothing.
pub(crate) fn living(folder: &LeaseFolder, system: &SystemId) -> Result<Vec<Lease>, LeaseError> {
    let mut living = Vec::new();
    let mut dead = Vec::new();
    for user in folder.open_users(&folder.users()?)? {
        for name in names(&user)? {
            let (lease, leaders) = match lease::read(&user, name, system) {
                LeaseFile::Lease(lease, leaders) => (lease, leaders),
                LeaseFile::Stale | LeaseFile::Nothing => continue,
                LeaseFile::Unread(errno) => return Err(unread(errno)),
            };
            match process::find(name) {
                ProcessState::Alive(_) | ProcessState::Unopened => living.push(lease),
                ProcessState::Ended => dead.push((lease, leaders)),
                ProcessState::Unknown => {}
            }
        }
    }
    let processes = OnceCell::new();
    for (lease, leaders) in dead {
        let is_same =
            |other: &Lease| other.uid == lease.uid && run_of(&other.owner) == run_of(&lease.owner);
        if living.iter().any(is_same) {
            continue;
        }
        let left = left_running(processes.get_or_init(ProcessTable::read), &lease, &leaders);
        if !left.is_empty() {
            let left = Some(left.into_iter().map(|process| process.pid).collect());
            living.push(Lease { left, ..lease });
        }
    }
    Ok(living)
}

/// The names of leases in a folder.
fn names(folder: &UserFolder) -> Result<Vec<LeaseName>, LeaseError> {
    let files = match Dir::read_from(folder) {
        Ok(files) => files,
        Err(errno) if is_shortage(errno) => return Err(unread(errno)),
        // Whoever removes a folder of their own, or makes it unreadable, holds nothing.
        Err(_) => return Ok(Vec::new()),
    };
    let files = files.take(MOST_FILES).flatten();
    let names =
        files.filter_map(|file| LeaseName::parse(folder.name.uid, file.file_name().to_bytes()));
    Ok(names.collect())
}

/// Removes the lease of a dead process, if we may.
fn remove(folder: &UserFolder, name: LeaseName) {
    let _ = unlinkat(folder, name.to_string(), AtFlags::empty());
}
