//! The one thread that writes, and the queue to it.
//!
//! ```text
//!            queue empty                 a record comes
//!   ┌──▶ Pacing ─────────▶ Idle (blocked) ─────────┐
//!   │  (20 ms              no timer                ▼
//!   │   since the last) ──────────────────────▶ Writing ── fails ──▶ keeps its
//!   │            records have come                 │                records, waits
//!   └──────────────── committed ◀──────────────────┘                10 ms … 30 s
//! ```
//!
//! So a lone record is committed at once, and under load there is a commit
//! every 20 milliseconds with everything that has come meanwhile. The sender
//! wakes the thread only when it is idle, when a run begins, or when much is queued.

mod crash_journal;
mod database_file;
mod queue;
mod recovery;
mod statements;
mod thread;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::{Home, StoreError};
use queue::Queue;
pub(crate) use recovery::recover;

/// Writes records, of any number of runs, from a thread of its own.
///
/// A run begins with [`Record::NewRun`] or goes on with [`Record::RunResumed`]: only
/// then does it have a crash journal. It is over with [`Record::RunEnded`]; its
/// [`RunLock`](crate::RunLock) is to be held until that is committed.
///
/// As a file descriptor it is an eventfd that becomes readable after every
/// commit, and when trouble begins; the caller reads it, then asks
/// [`committed`](Self::committed) and [`trouble`](Self::trouble).
#[derive(Debug)]
pub struct Writer {
    queue: Arc<Queue>,
    home: Home,
    thread: WriterThread,
}

/// What the thread does.
type WriteAll = fn(&Queue, &Home) -> Result<(), StoreError>;

/// The thread that writes.
#[derive(Debug)]
enum WriterThread {
    Started(JoinHandle<Result<(), StoreError>>),
    /// Nobody waits for it any more.
    Over,
}

/// Says that the thread is over, also if it panics: somebody waits for that.
struct FinishedAtEnd(Arc<Queue>);

/// Why nothing is written any more after that.
const PANICKED: &str = "the thread that writes has panicked";

impl Drop for FinishedAtEnd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_unopened(PANICKED);
            self.0.set_trouble(PANICKED);
        }
        self.0.set_finished();
    }
}

/// What has been sent and not yet committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// How many records.
    pub records: usize,
    /// About how much memory they take.
    pub bytes: usize,
}

impl Writer {
    /// Starts the thread. It opens the database by itself: this returns at
    /// once, and records may be sent before it has.
    pub fn start(home: &Home) -> Result<Self, StoreError> {
        Self::start_with(home, thread::write)
    }

    fn start_with(home: &Home, write: WriteAll) -> Result<Self, StoreError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(std::io::Error::from)?;
        let queue = Arc::new(Queue::new(event));
        let (ours, home) = (Arc::clone(&queue), home.clone());
        let of_thread = home.clone();
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .stack_size(512 << 10)
            .spawn(move || {
                let finished = FinishedAtEnd(queue);
                write(&finished.0, &of_thread)
            });
        let thread = thread.map_err(|error| {
            let error = packhorse_proc::explain_start(error);
            let text = format!("cannot start a thread that stores results: {error}");
            std::io::Error::new(error.kind(), text)
        })?;
        Ok(Self { queue: ours, home, thread: WriterThread::Started(thread) })
    }

    /// Begins to write what is left, and says whether that is done in so much
    /// time. Nothing may be sent any more.
    pub fn ends_within(&self, time: Duration) -> bool {
        self.queue.stop();
        let end = Instant::now() + time;
        while !self.queue.is_finished() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let left = Timespec::try_from(left).ok();
            let mut event = [PollFd::new(self, PollFlags::IN)];
            let _ = poll(&mut event, left.as_ref());
            let mut counter = [0; 8];
            let _ = rustix::io::read(self, &mut counter);
        }
        true
    }

    /// Writes what is left and closes the database. The error tells how many
    /// records could not be written, and why.
    pub fn finish(&mut self) -> Result<(), StoreError> {
        self.queue.stop();
        let thread = std::mem::replace(&mut self.thread, WriterThread::Over);
        let WriterThread::Started(thread) = thread else {
            return Ok(());
        };
        thread.join().unwrap_or_else(|_| {
            Err(StoreError::RecordsLost {
                runs: Vec::new(),
                records: self.unwritten().records,
                reason: PANICKED.to_owned(),
            })
        })
    }
}

impl Writer {
    /// Waits for the thread no more: what it has not written when the program ends is
    /// lost. Says how much that is.
    pub fn abandon(&mut self) -> StoreError {
        self.thread = WriterThread::Over;
        StoreError::RecordsLost {
            runs: Vec::new(),
            records: self.unwritten().records,
            reason: self.trouble().unwrap_or_else(|| "it takes too long".to_owned()),
        }
    }
}

impl Drop for Writer {
    /// Without [`finish`](Self::finish), as when a caller gives up on an
    /// error: what is queued is still written, but failures are not reported.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::{Outcome, RunId, TaskId};

    use super::*;
    use crate::Record;

    #[test]
    fn a_thread_that_panics_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path().join("home")).unwrap();
        for opens in [false, true] {
            let panics: WriteAll = if opens {
                |queue, _| {
                    queue.set_opened(Ok(()));
                    panic!("on purpose")
                }
            } else {
                |_, _| panic!("on purpose")
            };
            let mut writer = Writer::start_with(&home, panics).unwrap();
            writer.send(Record::TaskFinished {
                task: TaskId::new(RunId(1), 1),
                outcome: Outcome::Skipped,
            });
            let ready = writer.ready();
            if !opens {
                let reason = ready.unwrap_err().to_string();
                assert!(reason.contains(PANICKED), "{reason}");
            }
            assert!(writer.ends_within(Duration::from_mins(1)));
            assert_eq!(writer.trouble().as_deref(), Some(PANICKED));
            let lost = writer.finish().unwrap_err().to_string();
            assert!(lost.contains(PANICKED), "{lost}");
        }
    }
}
