use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, statat, unlinkat};

use crate::folder::Folder;
use crate::lease::{self, Reading};
use crate::name::Name;
use crate::process::{self, Here, Life};
use crate::watch::Watch;
use crate::{Error, Lease};

/// No user has more processes that count.
const MOST_OF_A_USER: usize = 256;

/// How often news that come while news are taken in are taken in as well.
const ROUNDS: usize = 8;

/// What is known of other processes' leases. If the folder is listened to, it is
/// kept up to date by news; else the folder is read whenever somebody asks.
#[derive(Debug)]
pub(crate) struct Others {
    me: Name,
    here: Here,
    watch: Watch,
    known: BTreeMap<Name, Known>,
    revision: u64,
}

#[derive(Debug)]
struct Known {
    process: OwnedFd,
    lease: Lease,
}

/// What the news came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    /// Other leases are not what they were.
    pub(crate) others: bool,
    /// Something has happened to our own file.
    pub(crate) mine: bool,
}

impl Others {
    /// Reads the folder.
    pub(crate) fn new(me: Name, here: Here, folder: &Folder) -> Result<Self, Error> {
        let mut others = Self {
            me,
            here,
            watch: Watch::new()?,
            known: BTreeMap::new(),
            revision: 0,
        };
        others.scan(folder)?;
        Ok(others)
    }

    /// Wakes up for news from now on.
    pub(crate) fn listen(&mut self, folder: &Folder) -> Result<(), Error> {
        if self.watch.is_listening() {
            return Ok(());
        }
        self.watch.listen(folder)?;
        // What came before is no news.
        self.scan(folder)
    }

    /// Looks at this folder from now on.
    pub(crate) fn follow(&mut self, folder: &Folder) -> Result<(), Error> {
        if self.watch.is_listening() {
            self.watch.listen(folder)?;
        }
        self.scan(folder)
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.known.values().map(|known| &known.lease)
    }

    /// Grows whenever a lease is not what it was.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Takes in what has happened.
    pub(crate) fn refresh(&mut self, folder: &Folder) -> Result<Change, Error> {
        let before = self.revision;
        let mut change = Change::default();
        for round in 1.. {
            let mut news = self.watch.news();
            news.lost |= round == 1 && !self.watch.is_listening();
            if news.is_empty() {
                break;
            }
            // Somebody makes news faster than they can be read. What is in the
            // folder now is all that matters.
            let flood = round == ROUNDS;
            news.lost |= flood;
            change.others |= news.rung;
            change.mine |= news.lost || news.leases.contains(&self.me);
            for pid in news.ended {
                self.ended(folder, pid);
            }
            if news.lost {
                self.scan(folder)?;
            } else {
                for name in news.leases {
                    self.look(folder, name);
                }
            }
            if flood {
                break;
            }
        }
        change.others |= self.revision != before;
        Ok(change)
    }

    fn ended(&mut self, folder: &Folder, pid: u32) {
        let theirs = self.known.keys().filter(|name| name.pid == pid);
        for name in theirs.copied().collect::<Vec<_>>() {
            self.forget(name);
            remove(folder, name);
        }
    }

    /// Reads every file of the folder.
    fn scan(&mut self, folder: &Folder) -> Result<(), Error> {
        let found = names(folder)?;
        let gone = self.known.keys().filter(|name| !found.contains(name));
        for name in gone.copied().collect::<Vec<_>>() {
            self.forget(name);
        }
        for name in found {
            self.look(folder, name);
        }
        Ok(())
    }

    /// Reads one file.
    fn look(&mut self, folder: &Folder, name: Name) {
        if name == self.me {
            return;
        }
        let lease = match lease::read(folder, name, &self.here) {
            Reading::Lease(lease) => lease,
            Reading::Stale => {
                remove(folder, name);
                return self.forget(name);
            }
            Reading::Nothing => return self.forget(name),
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
            Life::Alive(process) => {
                if self.watch.add(&process, name.pid).is_ok() {
                    self.known.insert(name, Known { process, lease });
                    self.revision += 1;
                }
            }
            Life::Over => remove(folder, name),
            Life::Unknown => {}
        }
    }

    fn forget(&mut self, name: Name) {
        if let Some(known) = self.known.remove(&name) {
            self.watch.remove(&known.process);
            self.revision += 1;
        }
    }
}

/// The leases that count at this moment. Nothing is changed or removed.
pub(crate) fn living(folder: &Folder, here: &Here) -> Result<Vec<Lease>, Error> {
    let counts = |name| match lease::read(folder, name, here) {
        Reading::Lease(lease) if matches!(process::find(name), Life::Alive(_)) => Some(lease),
        _ => None,
    };
    Ok(names(folder)?.into_iter().filter_map(counts).collect())
}

/// The names in the folder that belong to whom they say, and of each user no
/// more than can count.
fn names(folder: &Folder) -> Result<Vec<Name>, Error> {
    let failed = |errno| Error::system(errno, "list folder", folder.path());
    let mut found = Vec::new();
    let mut of_a_user = HashMap::<u32, usize>::new();
    for file in Dir::read_from(folder).map_err(failed)? {
        let file = file.map_err(failed)?;
        let Some(name) = Name::parse(file.file_name().to_bytes()) else {
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

/// Removes what a dead process left, if we may.
fn remove(folder: &Folder, name: Name) {
    let _ = unlinkat(folder, name.to_string(), AtFlags::empty());
}
