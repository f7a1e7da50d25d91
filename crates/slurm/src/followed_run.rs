//! A run on the cluster as it is seen from here: what its outcome files tell goes into the
//! person's store, and what Slurm's queue tells says which of its elements are alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs_err as fs;
use packhorse_model::{Event, EventKind, Record, RunId, RunSummary, Timestamp};
use packhorse_session::stored_run;
use packhorse_store::{Home, Reader, RunLock, Writer};
use packhorse_trust::write_private;

use crate::SlurmError;
use crate::commands::output_file;
use crate::folder::{RunFile, SharedFolder, SubmittedJob, json};
use crate::outcome_reader::{FilePosition, Looking, OutcomeFiles, OutcomeNews};
use crate::progress::Progress;
use crate::queue::{ElementPhase, QueuedElement, latest_rows};
use crate::sbatch::adopt_unrecorded;
use crate::stop_file::is_stopped;
use crate::submit::wait_for_room;
use crate::task_file::elements_of;

/// How far everything was read is written down so often.
const SAVING: Duration = Duration::from_secs(10);
/// How late others see what a node has written.
pub(crate) const SETTLING: Duration = Duration::from_secs(3);
/// How much of what a job's script wrote is told.
const TOLD_LINES: usize = 3;

/// Of so many jobs that end at the same time that is told.
const TOLD_JOBS: usize = 3;

/// The file in the run's own folder that says how far outcomes were read.
const POSITIONS: &str = "slurm-positions.json";

/// A run on the cluster. See the [module](self).
pub(crate) struct FollowedRun {
    home: Home,
    /// Nobody else writes into the store what becomes of it.
    lock: RunLock,
    run: RunId,
    /// What its jobs know of it.
    pub(crate) file: RunFile,
    started: Timestamp,
    pub(crate) folder: SharedFolder,
    pub(crate) files: OutcomeFiles,
    pub(crate) progress: Progress,
    writer: Writer,
    /// The place of the last record.
    sent: u64,
    saved: Instant,
    /// What was submitted, as it was when Slurm was last asked.
    pub(crate) submitted: Vec<SubmittedJob>,
    /// What Slurm said last of each element.
    pub(crate) elements: BTreeMap<u32, QueuedElement>,
    /// Elements that do not run any more.
    pub(crate) gone: BTreeMap<u32, GoneElement>,
    /// How often each was submitted again.
    pub(crate) again: BTreeMap<u32, Again>,
    /// Whether an element has said that it is over since this was last looked at.
    has_ended: bool,
    /// Jobs that were found since somebody last asked, and that nobody had written down.
    adopted: Vec<SubmittedJob>,
}

/// An element that does not run any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoneElement {
    /// Since when that is known: others see late what it has written.
    since: Instant,
    /// Whether all was read that it has written.
    pub(crate) is_closed: bool,
    /// Whether it was seen to that it is submitted again, if it should be.
    pub(crate) is_judged: bool,
    /// Its job, how far that has come, and its last life: if any of these is another, this is
    /// another end.
    of: (Option<(u32, ElementPhase)>, Option<u32>),
}

/// An element that was submitted again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Again {
    /// How many lives it had had then.
    pub(crate) lives: u32,
    /// How often in a row that has led nowhere.
    pub(crate) in_vain: u32,
    /// Whether it was to be, after that.
    pub(crate) is_worth_it: bool,
}

impl FollowedRun {
    /// Takes a run that was handed to Slurm, and goes on reading where somebody stopped.
    pub(crate) fn open(home: &Home, lock: RunLock) -> Result<Self, SlurmError> {
        let run = lock.run();
        let reader = Reader::open(home)?;
        let stored = stored_run(&reader, run)?;
        let folder = shared_folder(&reader, run)?;
        let total = u32::try_from(stored.counts.total()).unwrap_or(u32::MAX);
        let mut progress = Progress::new(run, total, &reader.outcomes(run)?);
        let open = reader.open_attempts(run)?;
        let numbers: BTreeSet<u32> = open.iter().map(|(number, _)| *number).collect();
        let elements = elements_of(&folder, &numbers)?;
        for (number, attempt) in open {
            let id = packhorse_model::TaskId::new(run, number);
            let command = reader.task(id)?.map(|(task, _)| task.spec.command);
            let since = attempt.started.unwrap_or(stored.started);
            progress.was_running(
                number,
                elements.get(&number).copied(),
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
            // What `resume` has changed is there, and not in the store.
            file: folder.read_run()?,
            started: stored.started,
            folder,
            progress,
            sent: 0,
            saved: Instant::now(),
            submitted: Vec::new(),
            elements: BTreeMap::new(),
            gone: BTreeMap::new(),
            again: BTreeMap::new(),
            has_ended: false,
            adopted: Vec::new(),
        })
    }

    pub(crate) fn id(&self) -> RunId {
        self.run
    }

    /// Its arrays, as they are now.
    pub(crate) fn jobs(&mut self) -> Vec<SubmittedJob> {
        // What cannot be read at the moment is as it was.
        if let Ok(jobs) = self.folder.jobs() {
            self.submitted = jobs;
        }
        self.submitted.clone()
    }

    /// When its files are to be looked at again.
    pub(crate) fn due(&self) -> Instant {
        self.files.due()
    }

    /// Whether an element has said that it is over since somebody last asked this.
    pub(crate) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_ended)
    }

    /// Looks for jobs that Slurm has, and that nobody has written down. Whether there are any.
    pub(crate) fn adopt(&mut self) -> Result<bool, SlurmError> {
        let jobs = adopt_unrecorded(&self.folder)?;
        if jobs.is_empty() {
            return Ok(false);
        }
        self.note_adopted(jobs);
        Ok(true)
    }

    /// Takes note of such jobs, which are written down by now.
    pub(crate) fn note_adopted(&mut self, jobs: Vec<SubmittedJob>) {
        let names: Vec<String> = jobs.iter().map(|job| job.job.to_string()).collect();
        self.adopted.extend(jobs);
        self.warn(format!(
            "Slurm has taken a job that was not known here: {}; it is followed, too",
            names.join(" ")
        ));
    }

    /// Such jobs that were found since somebody last asked this.
    pub(crate) fn take_adopted(&mut self) -> Vec<SubmittedJob> {
        std::mem::take(&mut self.adopted)
    }

    fn warn(&mut self, message: String) {
        let task = None;
        self.progress
            .events
            .push(Event { time: Timestamp::now(), kind: EventKind::Warning { task, message } });
    }

    /// Looks at files of outcomes. Returns what there is to show.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        looking: Looking<'_>,
    ) -> Result<Vec<Event>, SlurmError> {
        let (progress, has_ended) = (&mut self.progress, &mut self.has_ended);
        let looked = self.files.look(now, looking, |(element, _), news| match news {
            OutcomeNews::Event(event) => {
                *has_ended |= matches!(event.kind, EventKind::RunEnded(_));
                progress.note(element, *event);
            }
            OutcomeNews::Peak(peak) => progress.records.push(Record::Peak(peak)),
        });
        self.progress.record_metrics();
        self.send();
        looked?;
        if now > self.saved + SAVING && self.writer.committed() >= self.sent {
            self.saved = now;
            self.save()?;
        }
        Ok(std::mem::take(&mut self.progress.events))
    }

    /// The same for all of them when nothing of the run is alive: what is not there now never
    /// will be.
    pub(crate) fn look_at_last(&mut self, now: Instant) -> Result<Vec<Event>, SlurmError> {
        let mut events = self.look(now, Looking::Everything)?;
        let all = self.files.elements();
        events.extend(self.look(now, Looking::Gone(&all))?);
        Ok(events)
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
        write_private(&draft, json(&positions))?;
        Ok(fs::rename(draft, path)?)
    }

    /// Takes note of what Slurm says of its queue, about the jobs that it was last asked for.
    /// Returns what there is to show.
    pub(crate) fn note_queue(&mut self, queue: &[QueuedElement]) -> Result<Vec<Event>, SlurmError> {
        // Slurm forgets jobs a while after their end; what it said of them is so all the same.
        let mut elements = std::mem::take(&mut self.elements);
        elements.retain(|_, row| row.phase() == ElementPhase::Over);
        self.elements = latest_rows(elements, &self.submitted, queue);
        let now = Instant::now();
        let known: BTreeSet<u32> = self.submitted.iter().flat_map(SubmittedJob::each).collect();
        for element in known {
            if !self.is_gone(element) {
                self.gone.remove(&element);
                continue;
            }
            let row = self.elements.get(&element);
            let life = self.files.last_life(element).map(|(life, _)| life);
            let of = (row.map(|row| (row.job, row.phase())), life);
            if self.gone.get(&element).is_none_or(|gone| gone.of != of) {
                let new = GoneElement { since: now, is_closed: false, is_judged: false, of };
                self.gone.insert(element, new);
            }
        }
        let closed = self.close_gone(now);
        self.send();
        closed?;
        Ok(std::mem::take(&mut self.progress.events))
    }

    /// Whether an element does not run, and has run or never will.
    fn is_gone(&self, element: u32) -> bool {
        match self.elements.get(&element).map(QueuedElement::phase) {
            Some(ElementPhase::Running) => false,
            // Slurm has put it back, or somebody has submitted it again: it may have been cut
            // off without a word.
            Some(ElementPhase::Pending) => self.files.is_over(element) == Some(false),
            Some(ElementPhase::Over) | None => true,
        }
    }

    /// Closes what elements have taken with them that are gone for a while.
    fn close_gone(&mut self, now: Instant) -> Result<(), SlurmError> {
        let gone = self.gone.iter();
        let gone = gone.filter(|(_, gone)| !gone.is_closed && now >= gone.since + SETTLING);
        let gone: BTreeSet<u32> = gone.map(|(&element, _)| element).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // They may have gone on in a job that is not known, and what is read of them be of that.
        if self.adopt()? {
            return Ok(());
        }
        let looked = self.look(now, Looking::Gone(&gone));
        let trouble = match looked {
            Ok(events) => {
                self.progress.events = events;
                None
            }
            Err(error) => Some(error),
        };
        let mut ends = Vec::new();
        for element in gone {
            if trouble.is_some() && self.files.is_unreadable(element, now) {
                continue;
            }
            let life = self.files.last_life(element).map(|(life, _)| life);
            if let Some(gone) = self.gone.get_mut(&element) {
                gone.is_closed = true;
                gone.of.1 = life;
            }
            if self.files.is_over(element) == Some(true) {
                continue;
            }
            self.progress.element_gone(element, Timestamp::now());
            ends.extend(self.elements.get(&element).cloned());
        }
        self.tell_ends(ends);
        trouble.map_or(Ok(()), Err)
    }

    /// Whether an element is gone of which not all is read yet.
    pub(crate) fn has_gone(&self) -> bool {
        self.gone.values().any(|gone| !gone.is_closed)
    }

    /// Tells of elements that have ended without saying so themselves: of the first few with
    /// what they wrote, of the others how many.
    fn tell_ends(&mut self, mut rows: Vec<QueuedElement>) {
        let is_stopped = is_stopped(&self.folder);
        rows.retain(|row| match row.state.as_str() {
            "CANCELLED" => false,
            // It was to start nothing.
            "COMPLETED" => !is_stopped,
            _ => row.phase() == ElementPhase::Over,
        });
        for row in rows.iter().take(TOLD_JOBS) {
            let message = self.end_in_words(row);
            self.warn(message);
        }
        if let Some(message) = more_ends_in_words(rows.get(TOLD_JOBS..).unwrap_or_default()) {
            self.warn(message);
        }
    }

    /// How an element has ended, and the last that it wrote.
    fn end_in_words(&self, row: &QueuedElement) -> String {
        let job = row.name();
        let node = match row.node.as_str() {
            "" => String::new(),
            node => format!(" on {node}"),
        };
        let state = &row.state;
        let mut message = format!("job {job}{node} has ended: {state}");
        if let Some(text) = self.written_by(&job) {
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            let last = lines.len().saturating_sub(TOLD_LINES);
            for line in &lines[last..] {
                message += &format!("\n  {line}");
            }
        }
        message
    }

    /// What the script of an element wrote. Slurm is asked where that is only if it is not
    /// where it usually is.
    fn written_by(&self, job: &str) -> Option<Vec<u8>> {
        let usual = || fs::read(self.folder.file(&format!("slurm/{job}.out"))).ok();
        let asked = || output_file(job).and_then(|path| fs::read(path).ok());
        let slurm = self.file.spec.slurm.as_ref();
        if slurm.is_some_and(|slurm| slurm.output.is_some() || slurm.template.is_some()) {
            asked().or_else(usual)
        } else {
            usual().or_else(asked)
        }
    }

    /// Whether none of its elements waits or runs, as far as Slurm has said.
    pub(crate) fn is_idle(&self) -> bool {
        let mut elements = self.elements.values();
        elements.all(|row| row.phase() == ElementPhase::Over)
    }

    /// Takes note that elements were submitted again.
    pub(crate) fn begins_again(&mut self, element: u32) {
        self.elements.remove(&element);
        self.gone.remove(&element);
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

/// How many more have ended, and how. `None`: none.
fn more_ends_in_words(rows: &[QueuedElement]) -> Option<String> {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *states.entry(&row.state).or_default() += 1;
    }
    let states: Vec<String> =
        states.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    let jobs = match rows.len() {
        0 => return None,
        1 => "1 more job has".to_owned(),
        count => format!("{count} more jobs have"),
    };
    Some(format!("{jobs} ended: {}", states.join(", ")))
}

/// The folder of a run on Slurm.
pub(crate) fn shared_folder(reader: &Reader, run: RunId) -> Result<SharedFolder, SlurmError> {
    let spec = reader.run_spec(run)?.unwrap_or_default();
    let path = spec.slurm.and_then(|slurm| slurm.folder);
    let path = path.ok_or(SlurmError::NotOnSlurm(run))?;
    if !path.is_dir() {
        return Err(SlurmError::FolderGone { run, path });
    }
    Ok(SharedFolder::open(path))
}

/// How far outcomes were read before. If nobody knows, they are read again.
fn positions(home: &Home, run: RunId) -> BTreeMap<(u32, u32), FilePosition> {
    let text = fs::read_to_string(home.run_dir(run).join(POSITIONS));
    let read: Option<Vec<_>> = text.ok().and_then(|text| serde_json::from_str(&text).ok());
    read.unwrap_or_default().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::read_queue;

    #[test]
    fn jobs_that_end_together_are_counted() {
        let rows = read_queue("2|1|NODE_FAIL|x|n1\n2|2|FAILED|x|n1\n2|3|NODE_FAIL|x|n2\n");
        let told = |rows: &[QueuedElement]| more_ends_in_words(rows).unwrap_or_default();
        assert_eq!(told(&rows), "3 more jobs have ended: 1 FAILED, 2 NODE_FAIL");
        assert_eq!(told(&rows[..1]), "1 more job has ended: 1 NODE_FAIL");
        assert_eq!(more_ends_in_words(&[]), None);
    }
}
