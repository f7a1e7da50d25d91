use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, statat, unlinkat};

use crate::folder::LeaseFolder;
use crate::folder_watch::FolderWatch;
use crate::lease::{self, LeaseFile};
use crate::lease_name::LeaseName;
use crate::process::{self, ProcessState, SystemId};
use crate::{Lease, LeaseError};

/// How many leases of one user count.
const MOST_OF_A_USER: usize = 256;

/// How often to read events that arrive while events are processed.
const ROUNDS: usize = 8;

/// What is known about other processes' leases. If the folder is watched, events keep it up to
/// date; otherwise the folder is read for every [`refresh`](Self::refresh).
#[derive(Debug)]
pub(crate) struct OtherLeases {
    pub(crate) me: LeaseName,
    pub(crate) system: SystemId,
    pub(crate) watch: FolderWatch,
    known: BTreeMap<LeaseName, KnownLease>,
    /// Grows whenever a lease changes.
    pub(crate) revision: u64,
}

#[derive(Debug)]
struct KnownLease {
    process: OwnedFd,
    lease: Lease,
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
    /// Reads the folder.
    pub(crate) fn new(folder: &LeaseFolder) -> Result<Self, LeaseError> {
        let mut others = Self {
            me: process::me()?,
            system: SystemId::read()?,
            watch: FolderWatch::new()?,
            known: BTreeMap::new(),
            revision: 0,
        };
        others.scan(folder)?;
        Ok(others)
    }

    /// Watches the folder from now on.
    pub(crate) fn listen(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        if self.watch.is_listening() {
            return Ok(());
        }
        self.watch.listen(folder)?;
        // There are no events for what came before.
        self.scan(folder)
    }

    /// Uses this folder from now on.
    pub(crate) fn follow(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        if self.watch.is_listening() {
            self.watch.listen(folder)?;
        }
        self.scan(folder)
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.known.values().map(|known| &known.lease)
    }

    /// Updates what is known.
    pub(crate) fn refresh(&mut self, folder: &LeaseFolder) -> Result<LeaseChanges, LeaseError> {
        let before = self.revision;
        let mut changes = LeaseChanges::default();
        for round in 1..=ROUNDS {
            let mut events = self.watch.take_events();
            events.overflowed |= round == 1 && !self.watch.is_listening();
            if events.is_empty() {
                break;
            }
            // Somebody makes events faster than they can be read. Only what is in the folder
            // now matters.
            events.overflowed |= round == ROUNDS;
            changes.others |= events.woken_up;
            changes.own |= events.overflowed || events.leases.contains(&self.me);
            for pid in events.ended {
                self.ended(folder, pid);
            }
            if events.overflowed {
                self.scan(folder)?;
            } else {
                for name in events.leases {
                    self.read_file(folder, name);
                }
            }
        }
        changes.others |= self.revision != before;
        Ok(changes)
    }

    fn ended(&mut self, folder: &LeaseFolder, pid: u32) {
        let theirs = self.known.keys().filter(|name| name.pid == pid);
        for name in theirs.copied().collect::<Vec<_>>() {
            self.forget(name);
            remove(folder, name);
        }
    }

    /// Reads every file of the folder.
    fn scan(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        let found = names(folder)?;
        let gone = self.known.keys().filter(|name| !found.contains(name));
        for name in gone.copied().collect::<Vec<_>>() {
            self.forget(name);
        }
        for name in found {
            self.read_file(folder, name);
        }
        Ok(())
    }

    /// Reads one file.
    fn read_file(&mut self, folder: &LeaseFolder, name: LeaseName) {
        if name == self.me {
            return;
        }
        let lease = match lease::read(folder, name, &self.system) {
            LeaseFile::Lease(lease) => lease,
            LeaseFile::Stale => {
                remove(folder, name);
                return self.forget(name);
            }
            LeaseFile::Nothing => return self.forget(name),
        };
        if let Some(known) = self.known.get_mut(&name) {
            if known.lease != lease {
                known.lease = lease;
                self.revision += 1;
            }
            return;
        }
        let theirs = self.known.keys().filter(|known| known.uid == name.uid);
        if theirs.count() >= MOST_OF_A_USER {
            return;
        }
        match process::find(name) {
            ProcessState::Alive(process) => {
                if self.watch.add(&process, name.pid).is_ok() {
                    self.known.insert(name, KnownLease { process, lease });
                    self.revision += 1;
                }
            }
            ProcessState::Ended => remove(folder, name),
            ProcessState::Unknown => {}
        }
    }

    fn forget(&mut self, name: LeaseName) {
        if let Some(known) = self.known.remove(&name) {
            self.watch.remove(&known.process);
            self.revision += 1;
        }
    }
}

/// The leases that count now. Changes and removes nothing.
pub(crate) fn living(folder: &LeaseFolder, system: &SystemId) -> Result<Vec<Lease>, LeaseError> {
    let counts = |name| match lease::read(folder, name, system) {
        LeaseFile::Lease(lease) if matches!(process::find(name), ProcessState::Alive(_)) => {
            Some(lease)
        }
        _ => None,
    };
    Ok(names(folder)?.into_iter().filter_map(counts).collect())
}

/// The names in the folder whose files belong to the user in the name, at most as many of each
/// user as count.
fn names(folder: &LeaseFolder) -> Result<Vec<LeaseName>, LeaseError> {
    let failed = |errno| LeaseError::system(errno, "list folder", &folder.path);
    let mut found = Vec::new();
    let mut of_a_user = HashMap::<u32, usize>::new();
    for file in Dir::read_from(folder).map_err(failed)? {
        let file = file.map_err(failed)?;
        let Some(name) = LeaseName::parse(file.file_name().to_bytes()) else {
            continue;
        };
        let stat = statat(folder, file.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        if !stat.is_ok_and(|stat| stat.st_uid == name.uid) {
            continue;
        }
        let count = of_a_user.entry(name.uid).or_default();
        *count += 1;
        if *count <= MOST_OF_A_USER {
            found.push(name);
        }
    }
    Ok(found)
}

/// Removes the lease of a dead process, if we may.
fn remove(folder: &LeaseFolder, name: LeaseName) {
    let _ = unlinkat(folder, name.to_string(), AtFlags::empty());
}
