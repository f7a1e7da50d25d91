//! The run that the marker of a folder names: whether it may still be at work there.
//!
//! | evidence | seen from |
//! |---|---|
//! | the run's lock in its state folder | every process that has that folder, in any container or machine |
//! | the run is on a cluster | the same |
//! | processes with the run's mark | this process namespace alone |
//!
//! Where a run of another state folder has no processes here, nothing tells whether it is over.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use packhorse_model::{Marker, RunId, TaskId, Timestamp};
use packhorse_proc::{ProcessTable, RunProcesses};
use packhorse_store::{Home, Reader};

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

/// A state folder in which runs are looked up.
pub(crate) struct KnownHome {
    id: String,
    /// The folder itself; `None` in a job on a cluster, which only knows its id.
    home: Option<Home>,
}

impl KnownHome {
    pub(crate) fn new(id: &str, home: Option<Home>) -> Self {
        Self { id: id.to_owned(), home }
    }

    fn locate() -> Result<Self, SessionError> {
        let home = Home::locate()?;
        Ok(Self { id: home.id()?, home: Some(home) })
    }

    /// Whether a marker is that of a task of this run.
    pub(crate) fn has_run(&self, marker: &Marker, run: RunId) -> bool {
        marker.home == self.id && marker.task.is_some_and(|by| by.run == run)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Looks whether a run of the state folder with the id `home` is at work.
    pub(crate) fn standing(&self, home: &str, run: RunId) -> Result<RunStanding, SessionError> {
        let is_own = self.id == home;
        if is_own
            && let Some(home) = &self.home
            && (home.is_running(run)? || is_on_cluster(home, run))
        {
            return Ok(RunStanding::AtWork);
        }
        let processes = RunProcesses { home, run: &run.to_string(), leaders: &[] };
        Ok(match ProcessTable::read().of(processes).is_empty() {
            false => RunStanding::AtWork,
            true if is_own => RunStanding::Over,
            true => RunStanding::Unknown,
        })
    }
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
    /// The machine or container.
    pub host: String,
    pub started: Option<Timestamp>,
}

impl RunningTest {
    /// What the marker says, if it says that its test runs.
    pub(crate) fn of(marker: &Marker) -> Option<Self> {
        let task = marker.task.filter(|_| marker.outcome == Marker::RUNNING)?;
        let (home, host) = (marker.home.clone(), marker.host.clone());
        Some(Self { task, home, host, started: marker.started })
    }

    /// Says where and since when it runs: `task 3.1 of another state folder runs there, on
    /// node7 since 2026-11-19 22:10:05`.
    pub fn describe(&self) -> String {
        let mut text = format!("task {} of another state folder runs there", self.task);
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
    runs: BTreeMap<(String, RunId), RunStanding>,
    at_work: Option<(RunningTest, String)>,
    /// The first of those that are left alone, and how many there are.
    left_alone: Option<(RunningTest, String)>,
    left_alone_count: u64,
}

impl RunningTests {
    /// Returns whether a test in this state is to be left alone: its run is at work, or nothing
    /// tells whether it is and it is not `forced`.
    pub fn note(
        &mut self,
        state: &TestState,
        folder: impl FnOnce() -> String,
        forced: bool,
    ) -> Result<bool, SessionError> {
        let TestState::Running(test) = state else {
            return Ok(false);
        };
        match self.standing(test)? {
            RunStanding::Over => return Ok(false),
            RunStanding::AtWork => {
                self.at_work.get_or_insert_with(|| (test.clone(), folder()));
            }
            RunStanding::Unknown if forced => return Ok(false),
            RunStanding::Unknown => {
                self.left_alone_count += 1;
                self.left_alone.get_or_insert_with(|| (test.clone(), folder()));
            }
        }
        Ok(true)
    }

    fn standing(&mut self, test: &RunningTest) -> Result<RunStanding, SessionError> {
        let key = (test.home.clone(), test.task.run);
        if let Some(known) = self.runs.get(&key) {
            return Ok(*known);
        }
        let own = match &mut self.own {
            Some(own) => own,
            none => none.insert(KnownHome::locate()?),
        };
        let standing = own.standing(&test.home, test.task.run)?;
        self.runs.insert(key, standing);
        Ok(standing)
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
