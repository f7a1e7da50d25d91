use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use packhorse_proc::{ProcEntry, ProcessKey, ProcessTable, RunProcesses};
use rustix::fs::{AtFlags, Dir, unlinkat};

use crate::folder::{FolderStamp, LeaseFolder, UserFolder};
use crate::folder_watch::{FolderWatch, Look};
use crate::given_up::gives_up;
use crate::lease::{self, LeaseFile};
use crate::lease_name::{LeaseName, UserFolderName};
use crate::process::{self, ProcessState, SystemId};
use crate::{Lease, LeaseError, LeaseOwner};

/// How many leases of one user count.
const MOST_OF_A_USER: usize = 256;

/// How many files of one folder are looked at.
const MOST_FILES: usize = 4096;

/// How many of the processes that a dead one left running are watched. When they have
/// ended, it is looked for others.
const MOST_WATCHED: usize = 64;

/// How many of all that one user's processes left running are watched, but for one of each:
/// each takes a descriptor, and nobody is to use up those of others.
const MOST_WATCHED_OF_A_USER: usize = 256;

/// How many leases of dead processes are remembered that could not be removed. Of more, all
/// are looked at again.
const MOST_OVER: usize = MOST_FILES;

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
    /// The process that holds it; if that is dead, those that it left running. Not empty.
    processes: Vec<(u32, OwnedFd)>,
}

/// What has changed.
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
            revision: 0,
            freed: false,
        };
        others.scan(folder)?;
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

    /// Uses this folder from now on.
    pub(crate) fn follow(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        self.users.clear();
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
        let before = self.revision;
        let mut changes = LeaseChanges::default();
        for round in 1..=ROUNDS {
            self.processes = None;
            let mut events = self.watch.take_events();
            if round == 1 && !self.watch.is_listening() {
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
                self.ended(pid);
            }
            match events.look {
                Look::Nowhere => {}
                Look::Changes => self.scan(folder)?,
                Look::Everywhere => self.scan_anew(folder)?,
            }
            for (user, name) in events.leases {
                if let Some(user) = self.users.get(&user) {
                    let user = Arc::clone(&user.folder);
                    self.read_file(&user, name);
                }
            }
        }
        changes.others |= self.revision != before;
        Ok(changes)
    }

    /// A process that holds a lease, or was left running by one that did, has ended.
    fn ended(&mut self, pid: u32) {
        self.processes = None;
        let is_its = |known: &&LeaseName| {
            let mut processes = self.known[known].processes.iter();
            processes.any(|(process, _)| *process == pid)
        };
        for name in self
            .known
            .keys()
            .filter(is_its)
            .copied()
            .collect::<Vec<_>>()
        {
            let Some(known) = self.known.get_mut(&name) else {
                continue;
            };
            known.processes.retain(|(process, handle)| {
                let has_ended = *process == pid;
                if has_ended {
                    self.watch.remove(handle);
                }
                !has_ended
            });
            if known.processes.is_empty()
                && let Some(known) = self.known.remove(&name)
            {
                self.revision += 1;
                self.freed = true;
                // One that ended by itself has removed it.
                self.read_file(&known.folder, name);
            }
        }
    }

    /// Takes note of a lease whose process is dead: it counts while anything lives that the
    /// process left running.
    fn look_for_left(
        &mut self,
        folder: Arc<UserFolder>,
        name: LeaseName,
        mut lease: Lease,
        leaders: Vec<ProcessKey>,
    ) {
        let run = run_of(&lease.owner);
        // Whoever goes on with the run has ended what was left of it, and holds a lease of
        // its own for what it started.
        let goes_on = |known: &KnownLease| {
            known.lease.left.is_none()
                && known.lease.uid == name.uid
                && run_of(&known.lease.owner) == run
        };
        let is_mine = run == self.run && name.uid == self.me.uid;
        let left = if is_mine || self.known.values().any(goes_on) {
            Vec::new()
        } else {
            let processes = self.processes.get_or_insert_with(ProcessTable::read);
            left_running(processes, &lease, &leaders)
        };
        let theirs = self.known.values().filter(|it| it.lease.uid == name.uid);
        let watched: usize = theirs.map(|it| it.processes.len()).sum();
        let most = MOST_WATCHED_OF_A_USER.saturating_sub(watched);
        let watch = |&process: &ProcessKey| {
            let handle = handle_of(process, name.uid)?;
            let is_watched = self.watch.add(&handle, process.pid).is_ok();
            is_watched.then_some((process.pid, handle))
        };
        let processes = left.iter().filter_map(watch);
        let processes: Vec<_> = processes.take(most.clamp(1, MOST_WATCHED)).collect();
        if processes.is_empty() {
            if self.over.len() >= MOST_OVER {
                self.over.clear();
            }
            self.over.insert(name);
            return remove(&folder, name);
        }
        lease.left = Some(left.iter().map(|process| process.pid).collect());
        let known = KnownLease {
            folder,
            lease,
            leaders,
            processes,
        };
        self.known.insert(name, known);
        self.revision += 1;
    }

    /// Reads all folders, whatever is known of them.
    fn scan_anew(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        self.listed = None;
        for user in self.users.values_mut() {
            user.listed = None;
        }
        self.scan(folder)
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
            user.listed = stamp;
            let user = Arc::clone(&user.folder);
            let found = names(&user);
            let gone = self
                .known
                .iter()
                .filter(|(_, known)| known.folder.name == name);
            let gone = gone.map(|(name, _)| *name);
            for name in gone
                .filter(|name| !found.contains(name))
                .collect::<Vec<_>>()
            {
                self.forget(name);
            }
            self.over
                .retain(|over| over.uid != name.uid || found.contains(over));
            for name in found.into_iter().take(MOST_OF_A_USER) {
                self.read_file(&user, name);
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
        self.listed = stamp;
        let open = folder.open_users(&folder.users()?);
        let names: BTreeSet<UserFolderName> = open.iter().map(|user| user.name).collect();
        self.users.retain(|name, _| names.contains(name));
        let gone = self.known.iter();
        let gone = gone.filter(|(_, known)| !names.contains(&known.folder.name));
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
            let known = KnownFolder {
                folder: Arc::new(user),
                listed: None,
            };
            self.users.insert(known.folder.name, known);
        }
        Ok(())
    }

    /// Reads one file.
    fn read_file(&mut self, folder: &Arc<UserFolder>, name: LeaseName) {
        if name == self.me || self.over.contains(&name) {
            return;
        }
        let (lease, leaders) = match lease::read(folder, name, &self.system) {
            LeaseFile::Lease(lease, leaders) => (lease, leaders),
            LeaseFile::Stale => {
                remove(folder, name);
                return self.forget(name);
            }
            LeaseFile::Nothing => return self.forget(name),
        };
        if let Some(known) = self.known.get_mut(&name) {
            let lease = Lease {
                left: known.lease.left.take(),
                ..lease
            };
            known.leaders = leaders;
            if known.lease != lease {
                self.revision += 1;
                self.freed |= gives_up(&known.lease, &lease);
            }
            known.lease = lease;
            return;
        }
        let theirs = self.known.keys().filter(|known| known.uid == name.uid);
        if theirs.count() >= MOST_OF_A_USER {
            return;
        }
        let folder = Arc::clone(folder);
        match process::find(name) {
            ProcessState::Alive(process) => {
                if self.watch.add(&process, name.pid).is_ok() {
                    let known = KnownLease {
                        folder,
                        lease,
                        leaders,
                        processes: vec![(name.pid, process)],
                    };
                    self.known.insert(name, known);
                    self.revision += 1;
                }
            }
            ProcessState::Ended => self.look_for_left(folder, name, lease, leaders),
            ProcessState::Unknown => {}
        }
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

fn run_of(owner: &LeaseOwner) -> RunKey {
    (owner.home.clone(), owner.run)
}

/// What a dead process left running, as far as it can be seen: all of it is its user's.
fn left_running(
    processes: &ProcessTable,
    lease: &Lease,
    leaders: &[ProcessKey],
) -> Vec<ProcessKey> {
    let run = lease
        .owner
        .run
        .map_or_else(String::new, |run| run.to_string());
    let left = RunProcesses {
        home: &lease.owner.home,
        run: &run,
        leaders,
    };
    let is_theirs = |process: &ProcessKey| {
        let user = ProcEntry::of(process.pid).effective_user();
        user.is_ok_and(|uid| uid == lease.uid)
    };
    let left = processes.of(left).into_iter();
    left.filter(is_theirs).collect()
}

/// A handle of a user's process, if it is alive.
fn handle_of(process: ProcessKey, uid: u32) -> Option<OwnedFd> {
    let name = LeaseName {
        uid,
        pid: process.pid,
        start: process.start_time,
    };
    match process::find(name) {
        ProcessState::Alive(handle) => Some(handle),
        _ => None,
    }
}

/// The leases that count now. Changes and removes nothing.
pub(crate) fn living(folder: &LeaseFolder, system: &SystemId) -> Result<Vec<Lease>, LeaseError> {
    let mut living = Vec::new();
    let mut dead = Vec::new();
    for user in folder.open_users(&folder.users()?) {
        for name in names(&user).into_iter().take(MOST_OF_A_USER) {
            let LeaseFile::Lease(lease, leaders) = lease::read(&user, name, system) else {
                continue;
            };
            match process::find(name) {
                ProcessState::Alive(_) => living.push(lease),
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
fn names(folder: &UserFolder) -> Vec<LeaseName> {
    // Whoever removes a folder of their own, or makes it unreadable, holds nothing.
    let Ok(files) = Dir::read_from(folder) else {
        return Vec::new();
    };
    let files = files.take(MOST_FILES).flatten();
    files
        .filter_map(|file| LeaseName::parse(folder.name.uid, file.file_name().to_bytes()))
        .collect()
}

/// Removes the lease of a dead process, if we may.
fn remove(folder: &UserFolder, name: LeaseName) {
    let _ = unlinkat(folder, name.to_string(), AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;

    use super::*;
    use crate::LeaseContent;

    #[test]
    fn however_many_dead_ones_there_were_not_all_are_remembered() {
        let place = tempfile::tempdir().unwrap();
        let folder = LeaseFolder::open(place.path()).unwrap().unwrap();
        let mut others = OtherLeases::new(&folder, &LeaseOwner::default()).unwrap();
        let user = UserFolderName::random(others.me.uid).unwrap();
        let path = place.path().join(user.to_string());
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o755).create(&path).unwrap();
        let user = Arc::new(folder.open_users(&[user]).remove(0));
        let content = LeaseContent::default();
        let text = lease::write(&others.system, &LeaseOwner::default(), &content, &[]).unwrap();
        for number in 0..2 * MOST_OVER as u64 {
            // This number was never given to a process that started then.
            let name = LeaseName {
                start: u64::MAX - number,
                ..others.me
            };
            fs_err::write(path.join(name.to_string()), &text).unwrap();
            others.read_file(&user, name);
            assert!(others.over.len() <= MOST_OVER);
        }
        assert!(!others.over.is_empty());
        assert_eq!(others.leases().count(), 0);
    }
}
