//! Leases whose processes are dead: what they left running still counts.
//!
//! ```text
//!   alive ── its end ──▶ nothing seen of it ── 50 ms ──▶ still nothing: removed
//!                    └─▶ something lives ──── its end ──▶ nothing: removed
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_proc::{ProcEntry, ProcessKey, ProcessTable, RunProcesses};

use super::{KnownLease, LOOK_AGAIN, MOST_FILES, OtherLeases, remove, run_of, unread};
use crate::folder::UserFolder;
use crate::lease::{self, LeaseFile};
use crate::lease_name::LeaseName;
use crate::process::{self, ProcessState};
use crate::{Lease, LeaseError};

/// How many of the processes that a dead one left running are watched. When they have
/// ended, it is looked for others.
const MOST_WATCHED: usize = 64;

/// How many of all that one user's processes left running are watched, but for one of each:
/// each takes a descriptor, and nobody is to use up those of others.
const MOST_WATCHED_OF_A_USER: usize = 256;

/// How many leases of dead processes are remembered that could not be removed. Of more, all
/// are looked at again.
const MOST_OVER: usize = MOST_FILES;

/// How long after the death of a process it is looked once more whether it left anything
/// running: a child that has been forked and has yet to execute its program has no mark.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How often a lease was looked at after its process has died.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    First,
    Last,
}

impl OtherLeases {
    /// Looks again at the leases for which it is time.
    pub(super) fn look_again(&mut self, now: Instant) -> Result<(), LeaseError> {
        let has_not_come = |known: &KnownLease| known.moves_until.is_some_and(|at| at <= now);
        let missing = self.known.iter().filter(|(_, known)| has_not_come(known));
        for name in missing.map(|(name, _)| *name).collect::<Vec<_>>() {
            self.forget(name);
        }
        let is_due = |known: &KnownLease| known.look_again.is_some_and(|at| at <= now);
        let due = self.known.iter().filter(|(_, known)| is_due(known));
        let due: Vec<LeaseName> = due.map(|(name, _)| *name).collect();
        self.processes = None;
        for name in due {
            self.examine(name)?;
        }
        Ok(())
    }

    /// Finds out who of a lease's processes is still there.
    fn examine(&mut self, name: LeaseName) -> Result<(), LeaseError> {
        let Some(mut known) = self.known.remove(&name) else {
            return Ok(());
        };
        for (_, process) in &known.processes {
            self.watch.remove(process);
        }
        let sight = match known.lease.left {
            None => Sight::First,
            Some(_) => Sight::Last,
        };
        self.revision += 1;
        // What it waits for, nobody waits for any more.
        self.freed = true;
        // One that ended by itself has removed it.
        match lease::read(&known.folder, name, &self.system) {
            LeaseFile::Lease(lease, leaders) => {
                self.note(known.folder, name, lease, leaders, sight);
            }
            LeaseFile::Unread(errno) => {
                known.processes.clear();
                known.look_again = Some(Instant::now() + LOOK_AGAIN);
                self.known.insert(name, known);
                return Err(unread(errno));
            }
            LeaseFile::Stale | LeaseFile::Nothing => {}
        }
        Ok(())
    }

    /// A process that holds a lease, or was left running by one that did, has ended.
    pub(super) fn ended(&mut self, pid: u32) -> Result<(), LeaseError> {
        self.processes = None;
        let is_its = |known: &&LeaseName| {
            let mut processes = self.known[known].processes.iter();
            processes.any(|(process, _)| *process == pid)
        };
        for name in self.known.keys().filter(is_its).copied().collect::<Vec<_>>() {
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
            if known.processes.is_empty() {
                self.examine(name)?;
            }
        }
        Ok(())
    }

    /// Takes note of a lease whose process is dead: it counts while anything lives that the
    /// process left running.
    pub(super) fn look_for_left(
        &mut self,
        folder: Arc<UserFolder>,
        name: LeaseName,
        mut lease: Lease,
        leaders: Vec<ProcessKey>,
        sight: Sight,
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
        let is_over = is_mine || self.known.values().any(goes_on);
        let left = if is_over {
            Vec::new()
        } else {
            let processes = self.processes.get_or_insert_with(ProcessTable::read);
            left_running(processes, &lease, &leaders)
        };
        let theirs = self.known.values().filter(|it| it.lease.uid == name.uid);
        let watched: usize = theirs.map(|it| it.processes.len()).sum();
        let most = MOST_WATCHED_OF_A_USER.saturating_sub(watched);
        let mut is_short = false;
        let watch = |&process: &ProcessKey| match handle_of(process, name.uid) {
            ProcessState::Alive(handle) if self.watch.add(&handle, process.pid).is_ok() => {
                Some((process.pid, handle))
            }
            state => {
                is_short |= matches!(state, ProcessState::Alive(_) | ProcessState::Unopened);
                None
            }
        };
        let processes = left.iter().filter_map(watch);
        let processes: Vec<_> = processes.take(most.clamp(1, MOST_WATCHED)).collect();
        // Whoever cannot open anything sees nobody.
        is_short |= !is_over && matches!(process::find(self.me), ProcessState::Unopened);
        let look_again = if !processes.is_empty() {
            None
        } else if is_short {
            Some(LOOK_AGAIN)
        } else {
            let is_early = sight == Sight::First && !is_over && !lease.held.is_empty();
            is_early.then_some(LAST_LOOK)
        };
        if processes.is_empty() && look_again.is_none() {
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
            look_again: look_again.map(|time| Instant::now() + time),
            moves_until: None,
        };
        self.known.insert(name, known);
        self.revision += 1;
    }
}

/// What a dead process left running, as far as it can be seen: all of it is its user's.
pub(super) fn left_running(
    processes: &ProcessTable,
    lease: &Lease,
    leaders: &[ProcessKey],
) -> Vec<ProcessKey> {
    let run = lease.owner.run.map_or_else(String::new, |run| run.to_string());
    let left = RunProcesses { home: &lease.owner.home, run: &run, leaders };
    let is_theirs = |process: &ProcessKey| {
        let user = ProcEntry::of(process.pid).effective_user();
        user.is_ok_and(|uid| uid == lease.uid)
    };
    let left = processes.of(left).into_iter();
    left.filter(is_theirs).collect()
}

/// A handle of a user's process, if it is alive.
fn handle_of(process: ProcessKey, uid: u32) -> ProcessState {
    process::find(LeaseName { uid, pid: process.pid, start: process.start_time })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;
    use std::path::PathBuf;
    use std::process::Command;

    use packhorse_model::{Bytes, LeasedDevice, Milli, RunId};
    use packhorse_proc::{MARK_HOME, MARK_RUN};

    use super::*;
    use crate::folder::LeaseFolder;
    use crate::lease_name::UserFolderName;
    use crate::{LeaseContent, LeaseOwner};

    /// What is known of others, and a folder of ours that leases can be put into.
    struct TestLeases {
        others: OtherLeases,
        folder: Arc<UserFolder>,
        path: PathBuf,
        _place: tempfile::TempDir,
    }

    impl TestLeases {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let folder = LeaseFolder::open(place.path()).unwrap().unwrap();
            let others = OtherLeases::new(&folder, &LeaseOwner::default()).unwrap();
            let user = UserFolderName::random(others.me.uid).unwrap();
            let path = place.path().join(user.to_string());
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o755).create(&path).unwrap();
            let folder = Arc::new(folder.open_users(&[user]).unwrap().remove(0));
            Self { others, folder, path, _place: place }
        }

        /// Puts a lease there of one who is dead: our number was never given to a process
        /// that started then. Reads it, and returns its path.
        fn read_dead(&mut self, start: u64, owner: &LeaseOwner, held: &[LeasedDevice]) -> PathBuf {
            let content = LeaseContent { held: held.to_vec(), claim: None };
            let text = lease::write(&self.others.system, owner, &content, &[]).unwrap();
            let name = LeaseName { start, ..self.others.me };
            let path = self.path.join(name.to_string());
            fs_err::write(&path, &text).unwrap();
            self.others.read_file(&self.folder, name).unwrap();
            path
        }
    }

    #[test]
    fn however_many_dead_ones_there_were_not_all_are_remembered() {
        let mut test = TestLeases::new();
        for number in 0..2 * MOST_OVER as u64 {
            test.read_dead(u64::MAX - number, &LeaseOwner::default(), &[]);
            assert!(test.others.over.len() <= MOST_OVER);
        }
        assert!(!test.others.over.is_empty());
        assert_eq!(test.others.leases().count(), 0);
    }

    #[test]
    fn a_child_that_had_no_mark_when_its_run_was_killed_is_found_before_its_gpu_is_given_away() {
        let mut test = TestLeases::new();
        let owner = LeaseOwner {
            run: Some(RunId(7)),
            home: format!("test-{}", std::process::id()),
            ..LeaseOwner::default()
        };
        let gpu = LeasedDevice {
            device: "GPU-1".into(),
            memory: Bytes(0),
            share: Milli(1000),
            attempts: 1,
            whole: true,
        };
        // It is dead, and there is nobody who carries its mark.
        let file = test.read_dead(u64::MAX, &owner, &[gpu]);
        assert_eq!(test.others.leases().count(), 1, "it may have forked");
        // Now its child executes its program, and has the mark.
        let mut child = Command::new("sleep")
            .arg("1000")
            .env(MARK_HOME, &owner.home)
            .env(MARK_RUN, "7")
            .spawn()
            .unwrap();
        let due = test.others.due().unwrap();
        test.others.look_again(due).unwrap();
        let left: Vec<_> = test.others.leases().map(|it| it.left.clone()).collect();
        assert_eq!(left, [Some(vec![child.id()])]);
        assert_eq!(test.others.due(), None, "its end is heard of");
        child.kill().unwrap();
        child.wait().unwrap();
        test.others.ended(child.id()).unwrap();
        assert_eq!(test.others.leases().count(), 0);
        assert!(!file.exists());
    }
}
