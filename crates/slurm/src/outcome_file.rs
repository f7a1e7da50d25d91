//! The file that one life of an element appends its events to: one writer, one write per
//! turn of the loop.

use std::cell::RefCell;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs_err::{File, OpenOptions};
use packhorse_model::{Event, EventKind, NewPeak, Outcome};
use packhorse_session::{Observer, QueueView};

use crate::SlurmError;
use crate::folder::{SharedFolder, json};

/// A network file system keeps what is written on its node until it is told not to. Others
/// see it at most so long later, and no sooner is it told again.
const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// So much is written at once, though the turn is not over.
const MUCH: usize = 1 << 20;

/// The outcome file of this life.
pub(crate) struct OutcomeFile {
    path: PathBuf,
    file: Arc<File>,
    buffer: Vec<u8>,
    /// What kept it from being written the last time.
    trouble: Option<String>,
    /// When other nodes were last told.
    synced: Instant,
    is_dirty: bool,
    sync: Option<SyncThread>,
    peaks: Option<File>,
    peaks_path: PathBuf,
}

/// Told to bring what was written to the other nodes: that may take a while.
struct SyncThread {
    bell: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl OutcomeFile {
    /// Makes the file of this life, which nobody else has. `None`: somebody has it.
    pub(crate) fn create(
        folder: &SharedFolder,
        element: u32,
        life: u32,
    ) -> Result<Option<Self>, SlurmError> {
        let path = folder.outcome_file(element, life);
        let file = match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Self {
            path,
            file: Arc::new(file),
            buffer: Vec::new(),
            trouble: None,
            synced: Instant::now(),
            is_dirty: false,
            sync: None,
            peaks: None,
            peaks_path: folder.outcomes().join(format!("{element}.{life}.peaks")),
        }))
    }

    /// Takes an event, to be written soon.
    pub(crate) fn add(&mut self, event: &Event) {
        // Nothing in an event can fail to be written, nor can a Vec.
        if serde_json::to_writer(&mut self.buffer, event).is_ok() {
            self.buffer.push(b'\n');
        }
        if self.buffer.len() > MUCH {
            self.write();
        }
    }

    /// Writes down what was learned.
    pub(crate) fn add_peak(&mut self, peak: &NewPeak) {
        // What is lost of it is learned again.
        if self.peaks.is_none() {
            self.peaks = File::create(&self.peaks_path).ok();
        }
        if let Some(file) = &mut self.peaks {
            let _ = file.write_all((json(peak) + "\n").as_bytes());
        }
    }

    /// Writes what was taken. If that fails, it is tried again the next time.
    fn write(&mut self) {
        while !self.buffer.is_empty() {
            match (&*self.file).write(&self.buffer) {
                Ok(length) => {
                    self.buffer.drain(..length);
                    self.is_dirty = true;
                    self.trouble = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let path = self.path.display();
                    self.trouble = Some(format!("{path} cannot be written: {error}"));
                    return;
                }
            }
        }
    }

    /// What kept it from being written the last time.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// Writes what was taken in this turn, and has the other nodes see it soon. Returns when
    /// to do so again.
    fn turn(&mut self, now: Instant) -> Option<Instant> {
        self.write();
        if !self.is_dirty {
            return self.trouble.as_ref().map(|_| now + SYNC_PAUSE);
        }
        let due = self.synced + SYNC_PAUSE;
        if due > now {
            return Some(due);
        }
        (self.synced, self.is_dirty) = (now, false);
        let file = &self.file;
        let sync = self.sync.get_or_insert_with(|| SyncThread::start(Arc::clone(file)));
        // If it is still at it, it looks again.
        let _ = sync.bell.try_send(());
        None
    }

    /// Writes all that is left, for everybody to see.
    pub(crate) fn finish(&mut self) -> Result<(), SlurmError> {
        self.write();
        if let Some(SyncThread { bell, thread }) = self.sync.take() {
            drop(bell);
            let _ = thread.join();
        }
        if let Some(peaks) = &self.peaks {
            let _ = peaks.sync_data();
        }
        match self.trouble.take() {
            Some(trouble) => Err(std::io::Error::other(trouble).into()),
            None => Ok(self.file.sync_data()?),
        }
    }
}

impl SyncThread {
    fn start(file: Arc<File>) -> Self {
        let (bell, rings): (SyncSender<()>, Receiver<()>) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            while rings.recv().is_ok() {
                // What goes wrong with it goes wrong with the next write, too.
                let _ = file.sync_data();
            }
        });
        Self { bell, thread }
    }
}

/// Appends what happens to the outcome file.
pub(crate) struct OutcomeWriter {
    pub(crate) file: Rc<RefCell<OutcomeFile>>,
    pub(crate) node: Arc<str>,
}

impl Observer for OutcomeWriter {
    fn event(&mut self, event: &Event) {
        let mut file = self.file.borrow_mut();
        match &event.kind {
            // What never started is as it was before.
            EventKind::Finished(result)
                if result.outcome == Outcome::Interrupted && result.attempts == 0 => {}
            // That it is over is said last: before, it may have to say why it does not go on.
            EventKind::RunEnded(_) => {}
            EventKind::Started { task, attempt, command, gpus, .. } => file.add(&Event {
                time: event.time,
                kind: EventKind::Started {
                    task: *task,
                    attempt: *attempt,
                    command: Arc::clone(command),
                    gpus: Arc::clone(gpus),
                    node: Some(Arc::clone(&self.node)),
                },
            }),
            _ => file.add(event),
        }
    }

    fn show(&mut self, now: Instant, _: &dyn QueueView) -> Option<Instant> {
        self.file.borrow_mut().turn(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_that_somebody_has_is_not_taken_and_not_skipped() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let make = || OutcomeFile::create(&folder, 3, 1).unwrap();
        assert!(make().is_some());
        // Whoever finds it taken reads first what is in it.
        assert!(make().is_none());
        assert!(!folder.outcome_file(3, 2).exists());
    }
}
