//! Taking the rows of tasks that have succeeded out of their CSV file.
//!
//! The file is read and replaced as a whole, so that is done about once a second however
//! many tasks end, and when the run does. What a run that was killed has left in the file
//! is known from the store: the next session takes it out, or the next run of that file.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packhorse_intake::csv::{self, ConsumeError, Header};
use packhorse_model::{ConsumedRows, Event, EventKind, RunId, SourceSpec, Timestamp};
use packhorse_store::{Home, Reader, RunState, StoredRun, TaskFilter};

use crate::lookup::each_task;
use crate::observer::{Observer, QueueView};
use crate::{Notices, SessionError};

/// How long rows that are done may stay.
const PAUSE: Duration = Duration::from_secs(1);

/// Among so many runs, the newest, one of the same file is looked for.
const LOOK_BACK: u32 = 100;

/// The rows of a run whose tasks have succeeded.
pub struct ConsumedFile {
    saved: ConsumedRows,
    /// Tasks that have succeeded, and whose rows are still in the file.
    finished: Vec<u32>,
    /// Where it is written down whose rows were taken out: a row that the person puts back
    /// is for another run.
    record: Option<PathBuf>,
}

impl ConsumedFile {
    /// That of a run that begins.
    pub fn new(saved: ConsumedRows) -> Self {
        Self { saved, finished: Vec::new(), record: None }
    }

    /// That of a run that has gone on before: some of its rows may still be there.
    pub(crate) fn left_by(
        run: &StoredRun,
        mut saved: ConsumedRows,
        home: &Home,
        reader: &Reader,
    ) -> Result<Self, SessionError> {
        saved.path = run.cwd.join(saved.path);
        let mut rows = Self::new(saved);
        rows.write_down_for(home, run.id);
        let record = rows.record.as_deref().unwrap_or(Path::new(""));
        let before = fs_err::read_to_string(record).unwrap_or_default();
        let before: HashSet<u32> = before.lines().filter_map(|line| line.parse().ok()).collect();
        each_task(reader, run.id, TaskFilter::Succeeded, |listed| {
            rows.finished.push(listed.task.id.number);
            Ok::<_, SessionError>(())
        })?;
        rows.finished.retain(|number| !before.contains(number));
        Ok(rows)
    }

    fn write_down_for(&mut self, home: &Home, run: RunId) {
        self.record = Some(home.run_dir(run).join("consumed"));
    }

    /// Takes out what is done; how many rows that were.
    fn take_out(&mut self) -> Result<usize, ConsumeError> {
        if self.finished.is_empty() {
            return Ok(0);
        }
        let header = self.saved.header.parse().unwrap_or(Header::None);
        let rows = self.finished.iter();
        let rows = rows.filter_map(|&number| self.saved.rows.get(number as usize - 1));
        let taken = csv::consume(&self.saved.path, header, rows.map(|row| row.0.as_slice()))?;
        self.write_down();
        self.finished.clear();
        Ok(taken)
    }

    /// The same where there will not be another time; if it cannot be done, says why.
    pub(crate) fn take_out_at_last(&mut self) -> Result<usize, String> {
        let taken = self.take_out();
        self.finished.clear();
        taken.map_err(|error| {
            let path = self.saved.path.display();
            format!("finished rows stay in {path}: {error}")
        })
    }

    fn write_down(&self) {
        let Some(record) = &self.record else {
            return;
        };
        let numbers: Vec<String> = self.finished.iter().map(u32::to_string).collect();
        let lines = numbers.join("\n") + "\n";
        let mut options = fs_err::OpenOptions::new();
        let file = options.create(true).append(true).open(record);
        // Without it, a later session looks for these rows once more.
        let _ = file.and_then(|mut file| file.write_all(lines.as_bytes()));
    }
}

/// Takes out of a file what the last run that consumed it has left in it, because it was
/// killed or somebody had the file open.
pub fn consume_leftovers(path: &Path, notices: &mut Notices<'_>) -> Result<(), SessionError> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let path = fs_err::canonicalize(path)?;
    let last = reader.runs(LOOK_BACK)?.into_iter().find_map(|run| {
        let saved = consumed_by(&reader, &run)?;
        let of_run = fs_err::canonicalize(run.cwd.join(&saved.path)).ok()?;
        (of_run == path).then_some((run, saved))
    });
    let Some((run, saved)) = last.filter(|(run, _)| run.state != RunState::Running) else {
        return Ok(());
    };
    let (id, path) = (run.id, path.display());
    match ConsumedFile::left_by(&run, saved, &home, &reader)?.take_out_at_last() {
        Ok(0) => {}
        Ok(taken) => {
            let plural = if taken == 1 { "" } else { "s" };
            notices(&format!(
                "{taken} row{plural} that run {id} has finished already went out of {path}"
            ));
        }
        Err(message) => notices(&format!("warning: {message}")),
    }
    Ok(())
}

fn consumed_by(reader: &Reader, run: &StoredRun) -> Option<ConsumedRows> {
    // A run whose settings are damaged consumes nothing.
    let spec = reader.run_spec(run.id).ok().flatten();
    match spec.map(|spec| spec.source) {
        Some(SourceSpec::Csv { consume }) => consume,
        _ => None,
    }
}

/// Takes rows out of the file as their tasks succeed, if there are any to take.
pub fn consuming(inner: Box<dyn Observer>, rows: Option<ConsumedFile>) -> Box<dyn Observer> {
    match rows {
        Some(rows) => Box::new(Consuming { inner, rows, next: Instant::now() }),
        None => inner,
    }
}

struct Consuming {
    inner: Box<dyn Observer>,
    rows: ConsumedFile,
    /// Not before this is the file changed again.
    next: Instant,
}

impl Consuming {
    /// Takes out what is done, if it is time.
    fn take_out(&mut self, now: Instant) {
        if self.rows.finished.is_empty() || now < self.next {
            return;
        }
        match self.rows.take_out() {
            // Somebody has it open; there will be another time.
            Ok(_) | Err(ConsumeError::Busy { .. }) => {}
            Err(_) => self.take_out_at_last(),
        }
        self.next = Instant::now() + PAUSE;
    }

    fn take_out_at_last(&mut self) {
        if let Err(message) = self.rows.take_out_at_last() {
            self.inner.event(&Event {
                time: Timestamp::now(),
                kind: EventKind::Warning { task: None, message },
            });
        }
    }
}

impl Observer for Consuming {
    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Finished(result) if result.outcome.is_success() => {
                // Told only once the store has it, so nothing is lost here.
                self.rows.finished.push(result.task.number);
                self.take_out(Instant::now());
            }
            EventKind::RunStarted { run, .. } => {
                if let Ok(home) = Home::locate() {
                    self.rows.write_down_for(&home, *run);
                }
                self.take_out(Instant::now());
            }
            EventKind::RunEnded(_) => self.take_out_at_last(),
            _ => {}
        }
        self.inner.event(event);
    }

    fn show(&mut self, now: Instant, queue: &dyn QueueView) -> Option<Instant> {
        self.take_out(now);
        let again = self.inner.show(now, queue);
        let next = (!self.rows.finished.is_empty()).then_some(self.next);
        [again, next].into_iter().flatten().min()
    }

    fn resized(&mut self) {
        self.inner.resized();
    }

    fn suspended(&mut self) {
        self.inner.suspended();
    }

    fn continued(&mut self) {
        self.inner.continued();
    }
}

impl Drop for Consuming {
    /// A run that breaks off does not say that it has ended.
    fn drop(&mut self) {
        self.take_out_at_last();
    }
}
