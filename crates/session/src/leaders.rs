//! Who leads the attempts of a run, on record: if the run is killed, what it leaves running is
//! known even without the mark in its environment.
//!
//! While attempts come and go, only those that have run for a while go on record, so that
//! many short ones cost nothing: what is left of those is soon over anyway. The first ones
//! after a pause, such as those of a run that has just begun, go on record at once.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use packhorse_model::RunId;
use packhorse_proc::{ProcessKey, RunProcesses, boot_id};
use packhorse_store::Home;
use packhorse_supervisor::end_leftovers;
use packhorse_trust::write_private;

use crate::SessionError;
use crate::executor::Executor;

/// How long an attempt has run when it goes on record.
const SETTLED: Duration = Duration::from_millis(200);
/// How long after a change the record is looked at.
const PAUSE: Duration = Duration::from_millis(250);
/// How long after a change it is looked at if there was none for a while. Whatever runs then
/// goes on record.
const SOON: Duration = Duration::from_millis(25);

/// How long after a failure others are told again.
const AGAIN: Duration = Duration::from_secs(1);

/// The file in the folder of a run: this boot of the machine, then a number and a start time
/// in each line.
const NAME: &str = "leaders";

/// The record of a run while it goes on.
pub(crate) struct LeaderRecord {
    path: PathBuf,
    written: Vec<ProcessKey>,
    /// When to look who leads, if that has changed.
    due: Option<Instant>,
    /// When it was last looked at, if ever.
    looked: Option<Instant>,
    /// For how long those have run that go on record at the next look.
    settled: Duration,
    /// Others could not be told of those on record.
    is_untold: bool,
}

impl LeaderRecord {
    pub(crate) fn new(home: &Home, run: RunId) -> Self {
        Self {
            path: home.run_dir(run).join(NAME),
            written: Vec::new(),
            due: None,
            looked: None,
            settled: SETTLED,
            is_untold: false,
        }
    }

    /// Takes note that an attempt has started or ended.
    pub(crate) fn changed(&mut self, now: Instant) {
        if self.due.is_some() {
            return;
        }
        let is_rested = self.looked.is_none_or(|looked| now >= looked + PAUSE);
        let (pause, settled) = if is_rested { (SOON, Duration::ZERO) } else { (PAUSE, SETTLED) };
        self.due = Some(now + pause);
        self.settled = settled;
    }

    /// When [`LeaderRecord::update`] is wanted, if it is.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Who leads now, if it is time to look and that has changed: to be told to others, and
    /// then [written down](Self::write).
    pub(crate) fn update(
        &mut self,
        executor: &dyn Executor,
        now: Instant,
    ) -> Option<Vec<ProcessKey>> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let leaders = executor.leaders();
        let least = std::mem::replace(&mut self.settled, SETTLED);
        let is_settled = |age: Duration| age >= least;
        let is_complete = leaders.iter().all(|&(_, age)| is_settled(age));
        self.due = (!is_complete).then(|| now + PAUSE);
        self.looked = Some(now);
        let settled = leaders.into_iter().filter(|&(_, age)| is_settled(age));
        let mut settled: Vec<ProcessKey> =
            settled.filter_map(|(pid, _)| ProcessKey::of(pid)).collect();
        settled.sort_unstable();
        let is_untold = std::mem::take(&mut self.is_untold);
        (is_untold || settled != self.written).then_some(settled)
    }

    /// Takes note that others could not be told: it is tried again.
    pub(crate) fn not_told(&mut self, now: Instant) {
        self.is_untold = true;
        self.due.get_or_insert(now + AGAIN);
    }

    /// Writes down who leads.
    pub(crate) fn write(&mut self, leaders: Vec<ProcessKey>) {
        // If that fails, those are found that still have their mark.
        let _ = match &leaders[..] {
            [] => fs::remove_file(&self.path),
            leaders => write(&self.path, leaders),
        };
        self.written = leaders;
    }
}

impl Drop for LeaderRecord {
    /// The run is over, and nothing is left of it.
    fn drop(&mut self) {
        if !self.written.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn write(path: &Path, leaders: &[ProcessKey]) -> std::io::Result<()> {
    let mut text = boot_id()?;
    for ProcessKey { pid, start_time } in leaders {
        text += &format!("\n{pid} {start_time}");
    }
    let draft = path.with_extension("new");
    write_private(&draft, text)?;
    fs::rename(&draft, path)
}

/// Those on record of a run that nobody is at work on. None if there is no record of this
/// boot.
fn read(path: &Path) -> Option<Vec<ProcessKey>> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    if lines.next()? != boot_id().ok()? {
        return None;
    }
    let leader = |line: &str| {
        let (pid, start_time) = line.split_once(' ')?;
        let (pid, start_time) = (pid.parse().ok()?, start_time.parse().ok()?);
        Some(ProcessKey { pid, start_time })
    };
    Some(lines.filter_map(leader).collect())
}

/// Ends what a run left running that nobody is at work on. They have so long to end before
/// they are killed. Returns how many there were.
pub(crate) fn end_left_running(
    home: &Home,
    run: RunId,
    grace: Duration,
) -> Result<usize, SessionError> {
    let path = home.run_dir(run).join(NAME);
    let left = RunProcesses {
        home: &home.id()?,
        run: &run.to_string(),
        leaders: &read(&path).unwrap_or_default(),
    };
    let ended = end_leftovers(left, grace);
    // Nobody is left whom it could be about.
    let _ = fs::remove_file(path);
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};

    use packhorse_engine::StartAttempt;
    use packhorse_gpu::mps::Daemon;
    use packhorse_model::{ProcessEvent, StopMode, TaskId};

    use super::*;

    #[test]
    fn the_first_attempts_go_on_record_soon_and_many_short_ones_seldom() {
        let mut record = LeaderRecord {
            path: PathBuf::new(),
            written: Vec::new(),
            due: None,
            looked: None,
            settled: SETTLED,
            is_untold: false,
        };
        let start = Instant::now();
        record.changed(start);
        // Others do not put it off.
        record.changed(start + Duration::from_millis(20));
        assert_eq!(record.due(), Some(start + SOON));
        assert_eq!(record.settled, Duration::ZERO);

        record.due = None;
        record.looked = Some(start);
        let next = start + Duration::from_millis(1);
        record.changed(next);
        assert_eq!(record.due(), Some(next + PAUSE));
        assert_eq!(record.settled, SETTLED);

        record.due = None;
        let later = start + PAUSE * 2;
        record.changed(later);
        assert_eq!(record.due(), Some(later + SOON));
    }

    /// Runs nothing.
    struct NoExecutor;

    impl AsFd for NoExecutor {
        fn as_fd(&self) -> BorrowedFd<'_> {
            unreachable!("nobody waits for it")
        }
    }

    impl Executor for NoExecutor {
        fn start(&mut self, _: StartAttempt, _: Option<&Daemon>) -> Option<ProcessEvent> {
            None
        }
        fn stop(&mut self, _: TaskId, _: StopMode) {}
        fn abandon(&mut self, _: TaskId) {}
        fn drain(&mut self, _: &mut Vec<ProcessEvent>) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_others_could_not_be_told_is_told_again_though_nothing_has_changed() {
        let mut record = LeaderRecord {
            path: PathBuf::new(),
            written: Vec::new(),
            due: None,
            looked: None,
            settled: SETTLED,
            is_untold: false,
        };
        let now = Instant::now();
        record.changed(now);
        assert_eq!(record.update(&NoExecutor, now + SOON), None, "as before");
        record.not_told(now);
        assert_eq!(record.due(), Some(now + AGAIN));
        assert_eq!(record.update(&NoExecutor, now), None, "later");
        assert_eq!(record.update(&NoExecutor, now + AGAIN), Some(Vec::new()));
        assert_eq!(record.due(), None);
    }
}
