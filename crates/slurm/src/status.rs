//! How a run on the cluster is at this moment, without staying with it.

use std::time::{Duration, Instant};

use packhorse_model::{AttemptPlace, RunId, Timestamp};
use packhorse_session::stored_run;
use packhorse_store::{Home, Reader, StoreError};

use crate::SlurmError;
use crate::commands::{scancel, squeue};
use crate::folder::SubmittedJob;
use crate::follow::waiting_in_words;
use crate::followed_run::{FollowedRun, SETTLING, shared_folder};
use crate::outcome_reader::Looking;
use crate::queue::{ElementPhase, QueuedElement, latest_rows};
use crate::sbatch::{adopt_unrecorded, unrecorded};
use crate::stop_file::StopOrder;

/// Whoever cancels a run waits so long for the end of its jobs.
const PATIENCE: Duration = Duration::from_mins(1);
/// Meanwhile Slurm is asked first so soon, and then less and less often.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How a run on the cluster is.
#[derive(Debug)]
pub struct ClusterView {
    pub run: RunId,
    pub jobs: Vec<SubmittedJob>,
    /// What Slurm's queue says of its elements, if Slurm answers: the number of the element,
    /// and its row.
    pub queue: Result<Vec<(u32, QueuedElement)>, SlurmError>,
    /// How many elements there are.
    pub elements: u32,
    /// Tasks that run: their numbers, and where.
    pub running: Vec<RunningOnNode>,
    /// Whether it is known to be over.
    pub is_over: bool,
}

/// A task that runs on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningOnNode {
    /// Its number in the run.
    pub number: u32,
    pub attempt: u32,
    /// Since when.
    pub since: Option<Timestamp>,
    pub node: Option<String>,
    /// Its GPUs there.
    pub gpus: Vec<String>,
}

impl ClusterView {
    /// How many elements are in a phase.
    pub fn count(&self, phase: ElementPhase) -> u32 {
        let rows = self.queue.as_ref().map_or(&[][..], Vec::as_slice);
        let count = rows.iter().filter(|(_, row)| row.phase() == phase).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Why elements wait, in words; nothing if none does.
    pub fn why_waiting(&self) -> Option<String> {
        let rows = self.queue.as_ref().ok()?.iter();
        let rows: Vec<QueuedElement> = rows.map(|(_, row)| row.clone()).collect();
        waiting_in_words(&rows)
    }
}

/// The run that is meant: the latest on Slurm that is not over if none is named, else the
/// latest on Slurm.
pub fn find_cluster_run(reader: &Reader, text: Option<&str>) -> Result<RunId, SlurmError> {
    if let Some(text) = text {
        return Ok(packhorse_session::find_run(reader, Some(text))?.id);
    }
    let first = |open| Ok::<_, SlurmError>(reader.cluster_runs(open)?.first().copied());
    let run = match first(true)? {
        Some(run) => Some(run),
        None => first(false)?,
    };
    run.ok_or(SlurmError::NoRun)
}

/// Brings the person's store up to date with what the outcome files of a run tell. Whoever
/// follows it does that already.
///
/// With `ask`, Slurm is asked as well whether anything of it is alive; if nothing is, the run
/// is over.
pub fn refresh(home: &Home, run: RunId, ask: AskSlurm) -> Result<(), SlurmError> {
    let reader = Reader::open(home)?;
    if !reader.is_on_cluster(run)? {
        return Ok(());
    }
    let lock = match home.lock_run(run) {
        Ok(lock) => lock,
        Err(StoreError::StillRunning { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    drop(reader);
    let mut followed = FollowedRun::open(home, lock)?;
    followed.look(Instant::now(), Looking::Everything)?;
    let is_over = followed.progress.is_done()
        || (ask == AskSlurm::Yes && is_gone(&mut followed).unwrap_or(false));
    if is_over {
        followed.close(None)?;
    } else {
        followed.leave()?;
    }
    Ok(())
}

/// Whether Slurm is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskSlurm {
    /// Once, or twice if nothing seems to be alive.
    Yes,
    /// Not at all.
    No,
}

/// Whether nothing of a run is in Slurm's queue, nor will be: it is asked twice, since an
/// element that goes on in another job is in neither for a moment. If so, everything is read
/// that it has written.
pub(crate) fn is_gone(followed: &mut FollowedRun) -> Result<bool, SlurmError> {
    for pause_before in [Duration::ZERO, SETTLING] {
        pause(pause_before);
        adopt_unrecorded(&followed.folder)?;
        let queue = squeue(&followed.jobs())?;
        followed.note_queue(&queue)?;
        if !followed.is_idle() {
            return Ok(false);
        }
    }
    followed.look_at_last(Instant::now())?;
    Ok(true)
}

/// Waits for so long.
#[expect(
    clippy::disallowed_methods,
    reason = "neither Slurm nor a network file system tells when something has changed"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The same for all runs that are not known to be over. What cannot be read is left.
pub fn refresh_all(home: &Home) {
    let runs = Reader::open(home).and_then(|reader| reader.cluster_runs(true));
    for run in runs.unwrap_or_default() {
        let _ = refresh(home, run, AskSlurm::No);
    }
}

/// How a run is now.
pub fn view(home: &Home, run: RunId) -> Result<ClusterView, SlurmError> {
    let reader = Reader::open(home)?;
    let folder = shared_folder(&reader, run)?;
    let jobs = folder.jobs()?;
    let is_over = !reader.is_on_cluster(run)?;
    let queue = if is_over { Ok(Vec::new()) } else { squeue(&jobs) };
    let queue = queue.map(|rows| {
        let elements = latest_rows(std::collections::BTreeMap::new(), &jobs, &rows);
        elements.into_iter().collect()
    });
    let open = if is_over { Vec::new() } else { reader.open_attempts(run)? };
    let running = open.into_iter().map(|(number, attempt)| {
        let place = attempt.device.as_deref().map(AttemptPlace::parse).unwrap_or_default();
        RunningOnNode {
            number,
            attempt: attempt.attempt,
            since: attempt.started,
            node: place.node,
            gpus: place.gpus,
        }
    });
    let mut running: Vec<RunningOnNode> = running.collect();
    running.sort_by(|one, other| {
        let key = |it: &RunningOnNode| (it.node.clone(), it.gpus.clone(), it.number);
        key(one).cmp(&key(other))
    });
    let elements = folder.elements()?.len();
    Ok(ClusterView {
        run,
        elements: u32::try_from(elements).unwrap_or(u32::MAX),
        jobs,
        queue,
        running,
        is_over,
    })
}

/// What has come of cancelling a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was over already.
    WasOver,
    /// It is over now.
    Over,
    /// Slurm was told, and somebody follows it.
    Followed,
    /// Slurm was told, and jobs are still ending: their names, and their nodes.
    Ending(Vec<(String, String)>),
}

/// Takes all jobs of a run out of Slurm's queue, and waits a while until they are gone.
pub fn cancel(home: &Home, run: RunId) -> Result<Cancelled, SlurmError> {
    let reader = Reader::open(home)?;
    stored_run(&reader, run)?;
    if reader.run_spec(run)?.unwrap_or_default().slurm.is_none() {
        return Err(SlurmError::NotOnSlurm(run));
    }
    let folder = shared_folder(&reader, run);
    let mut jobs = Vec::new();
    if let Ok(folder) = &folder {
        jobs = unrecorded(folder)?;
    }
    if !reader.is_on_cluster(run)? && jobs.is_empty() {
        return Ok(Cancelled::WasOver);
    }
    drop(reader);
    if let Ok(folder) = &folder {
        // First, so that nothing starts that is not there yet.
        StopOrder::Cancelled.write(folder)?;
        jobs.extend(folder.jobs()?);
        scancel(&[], &jobs)?;
    }
    let lock = match home.lock_run(run) {
        Ok(lock) => lock,
        Err(StoreError::StillRunning { .. }) => return Ok(Cancelled::Followed),
        Err(error) => return Err(error.into()),
    };
    match folder {
        Ok(_) => wait_for_end(FollowedRun::open(home, lock)?),
        // Nobody knows what became of it.
        Err(SlurmError::FolderGone { .. }) => {
            let mut writer = packhorse_store::Writer::start(home)?;
            let at = Timestamp::now();
            let exit = packhorse_model::Exit::Signal(15).code();
            writer.send(packhorse_model::Record::RunEnded { run, at, exit });
            writer.finish()?;
            Ok(Cancelled::Over)
        }
        Err(error) => Err(error),
    }
}

/// Waits until nothing of a cancelled run is in the queue. What has come back into it
/// meanwhile is cancelled, too.
fn wait_for_end(mut followed: FollowedRun) -> Result<Cancelled, SlurmError> {
    adopt_unrecorded(&followed.folder)?;
    let begun = Instant::now();
    let mut cancelled = followed.jobs();
    let mut pause_after = SHORTEST_PAUSE;
    loop {
        let jobs = followed.jobs();
        followed.note_queue(&squeue(&jobs)?)?;
        if followed.is_idle() && jobs == cancelled {
            followed.look_at_last(Instant::now())?;
            followed.close(Some(15))?;
            return Ok(Cancelled::Over);
        }
        let mut rows = followed.elements.values();
        if jobs != cancelled || rows.any(|row| row.phase() == ElementPhase::Pending) {
            scancel(&[], &jobs)?;
            cancelled = jobs;
        }
        if begun.elapsed() > PATIENCE {
            let rows = followed.elements.values();
            let ending = rows.filter(|row| row.phase() != ElementPhase::Over);
            let ending = ending.map(|row| (format!("{}_{}", row.job, row.index), row.node.clone()));
            let ending = ending.collect();
            followed.leave()?;
            return Ok(Cancelled::Ending(ending));
        }
        pause(pause_after);
        pause_after = (pause_after * 2).min(LONGEST_PAUSE);
    }
}
