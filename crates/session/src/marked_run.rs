//! The run that the marker of a folder names: whether it may still be at work there.
//!
//! | evidence | seen from |
//! |---|---|
//! | the run's lock in its state folder | every process that has that folder, in any container or machine |
//! | the run is on a cluster | the same |
//! | processes with the run's mark | this process namespace alone |
//!
//! Where a run of another state folder has no processes here, nothing tells whether it is over.
//! A job on a cluster cannot look into the state folder of its own run: to it, each other run is
//! one of another state folder, unless it was told that the run is over.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use packhorse_model::{FolderInDoubt, Marker, RunId, RunSpec, TaskId, Timestamp};
use packhorse_proc::{ProcessTable, RunProcesses};
use packhorse_store::{Home, Reader, Uuid};

use crate::SessionError;
use crate::grid::TestState;

/// The kernel has no longer name of a machine.
const LONGEST_HOST: usize = 64;

/// Whether a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunStanding {
    /// Nothing of it is left.
    Over,
    AtWork,
    /// Its state folder is not at hand, and it has no processes here.
    Unknown,
}

/// The run of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnRun {
    pub(crate) id: RunId,
    pub(crate) uuid: Uuid,
}

/// A state folder in which runs are looked up.
pub(crate) struct KnownHome {
    id: String,
    /// The folder itself; `None` in a job on a cluster, which only knows its id.
    home: Option<Home>,
    /// The run of this process, if it has begun.
    run: Option<OwnRun>,
    /// The UUIDs of runs that are known to be over.
    ended_runs: Vec<String>,
}

impl KnownHome {
    /// The state folder of the run of this process.
    pub(crate) fn of_run(id: &str, home: Option<Home>, run: OwnRun, spec: &RunSpec) -> Self {
        Self { id: id.to_owned(), home, run: Some(run), ended_runs: spec.ended_runs.clone() }
    }

    fn locate() -> Result<Self, SessionError> {
        let home = Home::locate()?;
        Ok(Self { id: home.id()?, home: Some(home), run: None, ended_runs: Vec::new() })
    }

    /// Whether a marker is that of a task of the run of this process.
    pub(crate) fn is_of_own_run(&self, marker: &Marker) -> bool {
        self.run.is_some_and(|own| {
            marker.home == self.id
                && marker.task.is_some_and(|task| task.run == own.id)
                && is_uuid(&marker.run, own.uuid)
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The UUID of the run of this process.
    pub(crate) fn run_uuid(&self) -> String {
        self.run.map(|run| run.uuid.to_string()).unwrap_or_default()
    }

    /// Looks whether the run of a test is at work.
    pub(crate) fn standing(&self, test: &RunningTest) -> Result<RunStanding, SessionError> {
        let run = test.task.run;
        let home = self.home.as_ref().filter(|home| self.is_of(home, test));
        if let Some(home) = home
            && (home.is_running(run)? || is_on_cluster(home, run))
        {
            return Ok(RunStanding::AtWork);
        }
        let processes = RunProcesses { home: &test.home, run: &run.to_string(), leaders: &[] };
        let is_over =
            home.is_some() || (test.home == self.id && self.ended_runs.contains(&test.run));
        Ok(match ProcessTable::read().of(processes).is_empty() {
            false => RunStanding::AtWork,
            true if is_over => RunStanding::Over,
            true => RunStanding::Unknown,
        })
    }

    /// Whether the run of a test is one of the state folder, and not one of a copy of it, such
    /// as an image of a container that has a state folder in it.
    fn is_of(&self, home: &Home, test: &RunningTest) -> bool {
        let run = test.task.run;
        if test.home != self.id {
            return false;
        }
        if let Some(own) = self.run.filter(|own| own.id == run) {
            return is_uuid(&test.run, own.uuid);
        }
        let stored = Reader::open(home).and_then(|reader| reader.run_uuid(run));
        match stored {
            Ok(Some(uuid)) => is_uuid(&test.run, uuid),
            // It may have been killed before it was stored.
            _ => home.run_dir(run).exists(),
        }
    }
}

/// Whether a marker names this run. Those of earlier versions do not name theirs.
fn is_uuid(marked: &str, uuid: Uuid) -> bool {
    marked.is_empty() || marked == uuid.to_string()
}

fn is_on_cluster(home: &Home, run: RunId) -> bool {
    let known = Reader::open(home).and_then(|reader| reader.is_on_cluster(run));
    known.unwrap_or(false)
}

/// A test whose marker says that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningTest {
    pub task: TaskId,
    /// The id of the state folder that its run is in.
    pub home: String,
    /// The UUID of its run.
    pub run: String,
    /// The machine or container.
    pub host: String,
    pub started: Option<Timestamp>,
}

impl RunningTest {
    /// What the marker says, if it says that its test runs.
    pub(crate) fn of(marker: &Marker) -> Option<Self> {
        let task = marker.task.filter(|_| marker.outcome == Marker::RUNNING)?;
        Some(Self {
            task,
            home: marker.home.clone(),
            run: marker.run.clone(),
            host: marker.host.clone(),
            started: marker.started,
        })
    }

    /// Says where and since when it runs: `task 3.1 of another state folder or machine runs
    /// there, on node7 since 2026-11-19 22:10:05`.
    pub fn describe(&self) -> String {
        let mut text = format!("task {} of another state folder or machine runs there", self.task);
        if !self.host.is_empty() {
            // The marker may be anybody's.
            text += ", on ";
            text.extend(self.host.chars().take(LONGEST_HOST));
        }
        let started = self.started.and_then(|time| jiff::Timestamp::from_microsecond(time.0).ok());
        if let Some(started) = started {
            let started = started.to_zoned(TimeZone::system());
            text += &started.strftime(" since %Y-%m-%d %H:%M:%S").to_string();
        }
        text
    }
}

/// Sorts out the tests whose markers say that they run.
#[derive(Default)]
pub struct RunningTests {
    /// The state folder of this process, once it is needed.
    own: Option<KnownHome>,
    /// By the state folder, the number and the UUID of a run.
    runs: BTreeMap<(String, RunId, String), RunStanding>,
    at_work: Option<(RunningTest, String)>,
    /// The first of those that are left alone, and how many there are.
    left_alone: Option<(RunningTest, String)>,
    left_alone_count: u64,
}

/// Why a test does not run although it is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// Its run is at work.
    InUse,
    /// Nothing tells whether its run is at work.
    LeftAlone,
}

impl Occupancy {
    pub fn words(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::LeftAlone => "left alone",
        }
    }
}

impl RunningTests {
    /// Looks whether another run keeps a test in this state from running, and remembers it if so.
    pub fn find_occupancy(
        &mut self,
        state: &TestState,
        folder: impl FnOnce() -> String,
        in_doubt: FolderInDoubt,
    ) -> Result<Option<Occupancy>, SessionError> {
        let TestState::Running(test) = state else {
            return Ok(None);
        };
        Ok(match self.standing(test)? {
            RunStanding::Over => None,
            RunStanding::AtWork => {
                self.at_work.get_or_insert_with(|| (test.clone(), folder()));
                Some(Occupancy::InUse)
            }
            RunStanding::Unknown if in_doubt == FolderInDoubt::Take => None,
            RunStanding::Unknown => {
                self.left_alone_count += 1;
                self.left_alone.get_or_insert_with(|| (test.clone(), folder()));
                Some(Occupancy::LeftAlone)
            }
        })
    }

    fn standing(&mut self, test: &RunningTest) -> Result<RunStanding, SessionError> {
        let key = (test.home.clone(), test.task.run, test.run.clone());
        if let Some(known) = self.runs.get(&key) {
            return Ok(*known);
        }
        let own = match &mut self.own {
            Some(own) => own,
            none => none.insert(KnownHome::locate()?),
        };
        let standing = own.standing(test)?;
        self.runs.insert(key, standing);
        Ok(standing)
    }

    /// The UUIDs of the runs that were found to be over.
    pub fn ended_runs(&self) -> Vec<String> {
        let ended = self.runs.iter().filter(|(_, standing)| **standing == RunStanding::Over);
        ended.map(|((_, _, uuid), _)| uuid.clone()).filter(|uuid| !uuid.is_empty()).collect()
    }

    /// The first test whose run is at work, and the folder of its results.
    pub fn at_work(&self) -> Option<(&RunningTest, &str)> {
        self.at_work.as_ref().map(|(test, folder)| (test, folder.as_str()))
    }

    /// The first test of which nothing tells whether it runs, and the folder of its results.
    pub fn left_alone(&self) -> Option<(&RunningTest, &str)> {
        self.left_alone.as_ref().map(|(test, folder)| (test, folder.as_str()))
    }

    /// How many tests there are of which nothing tells whether they run.
    pub fn left_alone_count(&self) -> u64 {
        self.left_alone_count
    }
}
