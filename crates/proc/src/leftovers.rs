//! What a run that is gone has left running.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::{ProcEntry, ProcStat, pids};

/// The variable that tells the state folders of several people or tests apart, so that
/// run 3 of one is never taken for run 3 of another.
pub const MARK_HOME: &str = "PACKHORSE_HOME_ID";
/// The variable that tells every process which run it belongs to.
pub const MARK_RUN: &str = "PACKHORSE_RUN";

/// A process, which no later one of the same number is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessKey {
    pub pid: u32,
    /// When it was started, as in [`ProcStat`].
    pub start_time: u64,
}

/// What the processes of a run are known by.
#[derive(Clone, Copy, Debug)]
pub struct RunProcesses<'a> {
    /// The id of the state folder that the run is in.
    pub home: &'a str,
    /// The run's number.
    pub run: &'a str,
    /// The first processes of its attempts, as far as they are on record: they are known
    /// even without their environment.
    pub leaders: &'a [ProcessKey],
}

/// All processes at one moment, by their numbers.
#[derive(Debug)]
pub struct ProcessTable(BTreeMap<u32, TableEntry>);

#[derive(Debug)]
struct TableEntry {
    process: ProcessKey,
    stat: ProcStat,
    /// Its environment, if it has a mark and we may see it. Read when it is needed.
    environment: OnceCell<Vec<u8>>,
}

impl ProcessTable {
    /// Looks at all processes but this one.
    pub fn read() -> Self {
        let me = std::process::id();
        let others = pids().filter(|&pid| pid != me);
        let others = others.filter_map(|pid| Some((pid, ProcEntry::of(pid).stat().ok()?)));
        let alive = others.filter(|(_, stat)| !stat.has_ended());
        let entry = |(pid, stat)| {
            let entry = TableEntry {
                process: ProcessKey::new(pid, &stat),
                stat,
                environment: OnceCell::new(),
            };
            (pid, entry)
        };
        Self(alive.map(entry).collect())
    }

    /// The processes of a run: those with its mark in their environment where we may see
    /// that, those that are on record, who is in a group or session of theirs, and all
    /// descendants of these.
    pub fn of(&self, run: RunProcesses<'_>) -> Vec<ProcessKey> {
        // Nobody else gets a leader's number while its group has members.
        let is_meant = |leader: &&ProcessKey| {
            let found = self.0.get(&leader.pid);
            found.is_none_or(|entry| entry.process == **leader)
        };
        let leaders = run.leaders.iter().filter(is_meant);
        let leaders: BTreeMap<u32, u64> = leaders.map(|it| (it.pid, it.start_time)).collect();
        let mut rest: Vec<&TableEntry> = self.0.values().collect();
        let mut found = Vec::new();
        rest.retain(|entry| {
            let is_its = entry.is_led(&leaders) || entry.has_mark(run);
            found.extend(is_its.then_some(entry.process));
            !is_its
        });
        // Each round finds the children of those that the last one found.
        let mut new = found.len();
        while new > 0 {
            let before = found.len();
            let known: BTreeSet<u32> = found.iter().map(|process| process.pid).collect();
            rest.retain(|entry| {
                let is_child = known.contains(&entry.stat.parent);
                found.extend(is_child.then_some(entry.process));
                !is_child
            });
            new = found.len() - before;
        }
        found
    }
}

impl TableEntry {
    /// Whether one of these, given by number and start time, leads it.
    fn is_led(&self, leaders: &BTreeMap<u32, u64>) -> bool {
        let is_in = [self.process.pid, self.stat.group, self.stat.session];
        is_in.iter().any(|pid| {
            let leader = leaders.get(pid);
            leader.is_some_and(|&start_time| self.stat.start_time >= start_time)
        })
    }

    fn has_mark(&self, run: RunProcesses<'_>) -> bool {
        let environment = self.environment.get_or_init(|| {
            let read = ProcEntry::of(self.process.pid).environment();
            let mut read = read.unwrap_or_default();
            if crate::variable(&read, MARK_HOME).is_none() {
                read = Vec::new();
            }
            read
        });
        is_marked(environment, MARK_HOME, run.home) && is_marked(environment, MARK_RUN, run.run)
    }
}

impl ProcessKey {
    /// Who has this number now, if anybody.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = ProcEntry::of(pid).stat().ok()?;
        Some(Self::new(pid, &stat))
    }

    const fn new(pid: u32, stat: &ProcStat) -> Self {
        Self { pid, start_time: stat.start_time }
    }
}

/// Whether one of the variables is this, however many of the same name there are.
fn is_marked(environment: &[u8], name: &str, value: &str) -> bool {
    environment.split(|&byte| byte == 0).any(|entry| {
        let rest = entry.strip_prefix(name.as_bytes());
        let found = rest.and_then(|rest| rest.strip_prefix(b"="));
        found == Some(value.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_is_there_twice_is_a_mark() {
        let environment = b"A=1\0PACKHORSE_RUN=2\0PACKHORSE_RUN=3\0PACKHORSE_RUN=3\0";
        for run in ["2", "3"] {
            assert!(is_marked(environment, MARK_RUN, run));
        }
        for (name, value) in [(MARK_RUN, ""), (MARK_RUN, "33"), ("PACKHORSE_RU", "N=3")] {
            assert!(!is_marked(environment, name, value));
        }
        assert!(!is_marked(b"", MARK_RUN, "3"));
        assert!(!is_marked(b"PACKHORSE_RUN", MARK_RUN, ""));
    }

    #[test]
    fn processes_are_found_by_their_leader_unless_its_number_means_another() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exec env -i sleep 1000"])
            .spawn()
            .unwrap();
        let leader = ProcessKey::of(child.id()).unwrap();
        let earlier = ProcessKey { start_time: leader.start_time - 1, ..leader };
        let found = |leader| {
            let run = RunProcesses { home: "nobody's", run: "1", leaders: &[leader] };
            ProcessTable::read().of(run)
        };
        let all = [found(leader), found(earlier)];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(all, [vec![leader], vec![]]);
    }
}
