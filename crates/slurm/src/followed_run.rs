//! A run on the cluster as it is seen from here: what its outcome files tell goes into the
//! person's store, and what Slurm's queue tells says which of its elements are alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs_err as fs;
use packhorse_model::{
    DEFAULT_REQUEUES, Event, EventKind, Record, RunId, RunSpec, RunSummary, Timestamp,
};
use packhorse_session::stored_run;
use packhorse_store::{Home, Reader, RunLock, Writer};

use crate::SlurmError;
use crate::arrays::{ArraySubmission, arrays};
use crate::commands::limits;
use crate::folder::{SharedFolder, SubmittedJob, json};
use crate::outcome_reader::{FilePosition, OutcomeFiles, OutcomeNews};
use crate::planning::rows;
use crate::progress::Progress;
use crate::queue::{ElementPhase, QueuedElement};
use crate::submit::{has_dependency, wait_for_room};

/// How far everything was read is written down so often.
const SAVING: Duration = Duration::from_secs(10);
/// How late others see what a node has written.
pub(crate) const SETTLING: Duration = Duration::from_secs(3);
/// How much of what a job's script wrote is told.
const TOLD_LINES: usize = 3;

/// The file in the run's own folder that says how far outcomes were read.
const POSITIONS: &str = "slurm-positions.json";

/// States of jobs that ended through no fault of theirs, and that Slurm does not start again.
const NOT_THEIR_FAULT: [&str; 4] = ["PREEMPTED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL"];

/// A run on the cluster. See the [module](self).
pub(crate) struct FollowedRun {
    home: Home,
    /// Nobody else writes into the store what becomes of it.
    lock: RunLock,
    run: RunId,
    pub(crate) spec: RunSpec,
    started: Timestamp,
    pub(crate) folder: SharedFolder,
    files: OutcomeFiles,
    pub(crate) progress: Progress,
    writer: Writer,
    /// The place of the last record.
    sent: u64,
    saved: Instant,
    /// What Slurm said last of each element.
    pub(crate) elements: BTreeMap<u32, QueuedElement>,
    /// Since when an element does not run that has not said that it is over: others see late
    /// what it has written.
    gone: BTreeMap<u32, Instant>,
    /// Elements whose end was told.
    told: BTreeSet<u32>,
    /// How often each was submitted again.
    again: BTreeMap<u32, u32>,
}

impl FollowedRun {
    /// Takes a run that was handed to Slurm, and goes on reading where somebody stopped.
    pub(crate) fn open(home: &Home, lock: RunLock) -> Result<Self, SlurmError> {
        let run = lock.run();
        let reader = Reader::open(home)?;
        let stored = stored_run(&reader, run)?;
        let (spec, folder) = shared_folder(&reader, run)?;
        let total = u32::try_from(stored.counts.total()).unwrap_or(u32::MAX);
        let mut progress = Progress::new(run, total, &reader.outcomes(run)?);
        for (number, attempt) in reader.open_attempts(run)? {
            let id = packhorse_model::TaskId::new(run, number);
            let command = reader.task(id)?.map(|(task, _)| task.spec.command);
            let since = attempt.started.unwrap_or(stored.started);
            progress.was_running(
                number,
                (attempt.attempt, since),
                Arc::new(command.unwrap_or_default()),
                attempt.device.as_deref(),
            );
        }
        Ok(Self {
            files: OutcomeFiles::new(&folder, positions(home, run)),
            writer: Writer::start(home)?,
            home: home.clone(),
            lock,
            run,
            spec,
            started: stored.started,
            folder,
            progress,
            sent: 0,
            saved: Instant::now(),
            elements: BTreeMap::new(),
            gone: BTreeMap::new(),
            told: BTreeSet::new(),
            again: BTreeMap::new(),
        })
    }

    /// Which run it is.
    pub(crate) fn id(&self) -> RunId {
        self.run
    }

    /// Its arrays.
    pub(crate) fn jobs(&self) -> Vec<SubmittedJob> {
        self.folder.jobs().unwrap_or_default()
    }

    /// When its files are to be looked at again.
    pub(crate) fn due(&self) -> Instant {
        self.files.due()
    }

    /// Looks at the files that are due, or at all of them. Returns what there is to show.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        everything: bool,
    ) -> Result<Vec<Event>, SlurmError> {
        let progress = &mut self.progress;
        let looked = self
            .files
            .look(now, everything, |(element, _), news| match news {
                OutcomeNews::Event(event) => progress.note(element, *event),
                OutcomeNews::Peak(peak) => progress.records.push(Record::Peak(peak)),
            });
        looked?;
        self.progress.record_metrics();
        self.send();
        if now > self.saved + SAVING && self.writer.committed() >= self.sent {
            self.saved = now;
            self.save()?;
        }
        Ok(std::mem::take(&mut self.progress.events))
    }

    fn send(&mut self) {
        for record in self.progress.records.drain(..) {
            self.sent = self.writer.send(record);
            wait_for_room(&self.writer);
        }
    }

    /// Writes down how far everything was read. What is read again changes nothing.
    fn save(&self) -> Result<(), SlurmError> {
        let positions: Vec<_> = self.files.positions().into_iter().collect();
        let path = self.home.run_dir(self.run).join(POSITIONS);
        let draft = path.with_extension("new");
        fs::write(&draft, json(&positions))?;
        Ok(fs::rename(draft, path)?)
    }

    /// Takes note of what Slurm says of its queue. Returns what there is to show.
    pub(crate) fn note_queue(&mut self, queue: &[QueuedElement]) -> Result<Vec<Event>, SlurmError> {
        let jobs = self.folder.jobs()?;
        let mut elements = BTreeMap::new();
        // A later array is what counts.
        for job in &jobs {
            for row in queue.iter().filter(|row| row.job == job.job) {
                elements.insert(job.base + row.index, row.clone());
            }
        }
        let now = Instant::now();
        let known: BTreeSet<u32> = jobs.iter().flat_map(SubmittedJob::each).collect();
        for &element in &known {
            let row = elements.get(&element);
            let is_running = row.is_some_and(|row| row.phase() == ElementPhase::Running);
            if is_running || self.files.is_over(element) == Some(true) {
                self.gone.remove(&element);
            } else {
                self.gone.entry(element).or_insert(now);
            }
        }
        self.elements = elements;
        self.close_gone(now)?;
        self.send();
        Ok(std::mem::take(&mut self.progress.events))
    }

    /// Closes what elements have taken with them that are gone for a while.
    fn close_gone(&mut self, now: Instant) -> Result<(), SlurmError> {
        let gone = self.gone.iter();
        let gone = gone.filter(|(_, since)| now >= **since + SETTLING);
        let gone: Vec<u32> = gone.map(|(&element, _)| element).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.progress.events = self.look(now, true)?;
        for element in gone {
            if self.files.is_over(element) == Some(true) {
                continue;
            }
            self.progress.element_gone(element, Timestamp::now());
            if let Some(row) = self.elements.get(&element).cloned() {
                self.tell_end(element, &row, Timestamp::now());
            }
        }
        Ok(())
    }

    /// Whether an element is gone of which not all is read yet.
    pub(crate) fn has_gone(&self) -> bool {
        let mut gone = self.gone.keys();
        gone.any(|element| !self.told.contains(element))
    }

    /// Tells of an element that has ended without saying so itself.
    fn tell_end(&mut self, element: u32, row: &QueuedElement, now: Timestamp) {
        let is_over = row.phase() == ElementPhase::Over;
        if !is_over || self.files.is_over(element) == Some(true) || row.state == "CANCELLED" {
            return;
        }
        if !self.told.insert(element) {
            return;
        }
        let (job, index) = (row.job, row.index);
        let node = match row.node.as_str() {
            "" => String::new(),
            node => format!(" on {node}"),
        };
        let state = &row.state;
        let mut message = format!("job {job}_{index}{node} has ended: {state}");
        let wrote = self.folder.file(&format!("slurm/{job}_{index}.out"));
        if let Ok(text) = fs::read(wrote) {
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            let last = lines.len().saturating_sub(TOLD_LINES);
            for line in &lines[last..] {
                message += &format!("\n  {line}");
            }
        }
        self.progress.events.push(Event {
            time: now,
            kind: EventKind::Warning {
                task: None,
                message,
            },
        });
    }

    /// Whether none of its elements waits or runs, as far as Slurm has said.
    pub(crate) fn is_idle(&self) -> bool {
        let mut elements = self.elements.values();
        elements.all(|row| row.phase() == ElementPhase::Over)
    }

    /// Submits elements again that ended through no fault of theirs, and that Slurm does not
    /// start again itself. How many.
    pub(crate) fn submit_lost(&mut self) -> Result<usize, SlurmError> {
        let slurm = self.spec.slurm.clone().unwrap_or_default();
        let most = slurm.requeues.unwrap_or(DEFAULT_REQUEUES);
        let lost = self.elements.iter().filter(|(element, row)| {
            let times = self.again.get(element).copied().unwrap_or(0);
            NOT_THEIR_FAULT.contains(&row.state.as_str())
                && self.files.is_over(**element) != Some(true)
                && times < most
        });
        let lost: Vec<u32> = lost.map(|(&element, _)| element).collect();
        if lost.is_empty() {
            return Ok(0);
        }
        for &element in &lost {
            *self.again.entry(element).or_default() += 1;
            self.told.remove(&element);
            self.elements.remove(&element);
        }
        let submission = ArraySubmission {
            folder: &self.folder,
            at_once: slurm.jobs.map(std::num::NonZeroU32::get),
            has_dependency: has_dependency(&slurm),
        };
        let size = limits(slurm.partition.as_deref()).max_array_size;
        submission.submit(&arrays(&rows(lost.clone()), size))?;
        Ok(lost.len())
    }

    /// Writes what is left to be written. What was read will not be read again.
    pub(crate) fn leave(mut self) -> Result<RunLock, SlurmError> {
        self.send();
        self.writer.finish()?;
        self.save()?;
        Ok(self.lock)
    }

    /// Nothing more will happen: writes that down, too. Returns how it came out, and what
    /// there is to show before.
    pub(crate) fn close(
        mut self,
        signal: Option<u8>,
    ) -> Result<(RunSummary, Vec<Event>, RunLock), SlurmError> {
        let now = Timestamp::now();
        let summary = self.progress.close(now, now.since(self.started), signal);
        let events = std::mem::take(&mut self.progress.events);
        let lock = self.leave()?;
        Ok((summary, events, lock))
    }
}

/// What a run on Slurm is, and its folder.
pub(crate) fn shared_folder(
    reader: &Reader,
    run: RunId,
) -> Result<(RunSpec, SharedFolder), SlurmError> {
    let spec = reader.run_spec(run)?.unwrap_or_default();
    let path = spec.slurm.as_ref().and_then(|slurm| slurm.folder.clone());
    let path = path.ok_or(SlurmError::NotOnSlurm(run))?;
    if !path.is_dir() {
        return Err(SlurmError::FolderGone { run, path });
    }
    Ok((spec, SharedFolder::open(path)))
}

/// How far outcomes were read before. If nobody knows, they are read again.
fn positions(home: &Home, run: RunId) -> BTreeMap<(u32, u32), FilePosition> {
    let text = fs::read_to_string(home.run_dir(run).join(POSITIONS));
    let read: Option<Vec<_>> = text.ok().and_then(|text| serde_json::from_str(&text).ok());
    read.unwrap_or_default().into_iter().collect()
}
