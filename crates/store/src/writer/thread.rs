use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::database_file::DatabaseFile;
use super::queue::{Batch, Queue, QueueState};
use super::statements::Statements;
use crate::{Home, Record, StoreError, database};

/// The time from one commit to the next, while records keep coming. Nobody notices
/// that what is shown is so much older; but at 5 ms, tasks of a millisecond on as many
/// slots as cores run 3 % slower, because each wake-up comes between one of them and
/// the next.
const COMMIT_INTERVAL: Duration = Duration::from_millis(20);

/// How much less urgent the thread is than others: see nice(1).
const NICENESS: i32 = 10;

/// How long to wait after the first failure; every further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often to try again once the queue is stopped and nothing can be waited
/// for any more.
const LAST_TRIES: u32 = 3;

/// How often to check that the database's file is still in its place.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the thread works with.
struct Thread<'a> {
    queue: &'a Queue,
    home: &'a Home,
    /// What was taken from the queue and is not committed.
    batch: Batch,
    pause: Duration,
    tries_left: u32,
}

/// Why a connection is not used any more.
enum Closed {
    /// All is written, and no more will come.
    Stopped,
    /// The database has been put back into its place.
    Restored,
    /// The database is gone for good.
    Lost(StoreError),
}

/// Writes all that comes through the queue, until it is stopped. Whatever
/// fails, the connection is opened anew and the batch tried again.
pub(super) fn write(queue: &Queue, home: &Home) -> Result<(), StoreError> {
    // Writing can wait a little, and tasks should not wait for it: on a busy
    // machine it happens when a core is free.
    let me = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(me), NICENESS);
    let mut thread =
        Thread { queue, home, batch: Batch::default(), pause: FIRST_PAUSE, tries_left: LAST_TRIES };
    loop {
        let opened = database::open(home);
        queue.set_opened(opened.as_ref().map(|_| ()).map_err(StoreError::to_string));
        let error = match opened.and_then(|db| thread.serve(db)) {
            Ok(Closed::Stopped) => {
                queue.remove_journals();
                return Ok(());
            }
            Ok(Closed::Lost(error)) => return Err(error),
            Ok(Closed::Restored) => continue,
            Err(error) => error,
        };
        if !thread.tries_again_after(&error) {
            return thread.lost(&error);
        }
    }
}

impl Thread<'_> {
    /// Writes over one connection, until the queue is stopped or something
    /// fails.
    fn serve(&mut self, db: Connection) -> Result<Closed, StoreError> {
        let home = self.home;
        let file = DatabaseFile::of(home.db());
        let mut statements =
            Statements::prepare(&db).map_err(|source| home.sqlite_error(source))?;
        let mut checked = Instant::now();
        let mut pace = checked;
        loop {
            // A batch that is not empty here has failed before.
            let state = if self.batch.records.is_empty() {
                self.queue.gather(&mut self.batch, pace)
            } else {
                QueueState::Open
            };
            if !self.batch.records.is_empty() {
                let done = statements.commit(&self.batch.records);
                done.map_err(|refusal| refusal.of(home))?;
                self.queue.set_committed(&mut self.batch);
                self.pause = FIRST_PAUSE;
            }
            let now = Instant::now();
            if state == QueueState::Stopped || now - checked >= CHECK_INTERVAL {
                checked = now;
                if !file.is_in_place() {
                    drop(statements);
                    return Ok(self.restore(&db, &file));
                }
            }
            if state == QueueState::Stopped {
                drop(statements);
                database::close(db, home)?;
                return Ok(Closed::Stopped);
            }
            pace = now + COMMIT_INTERVAL;
        }
    }

    /// Tries to put the database back until that succeeds or the queue is
    /// stopped. The connection has the only copy: it is not let go before.
    fn restore(&mut self, db: &Connection, file: &DatabaseFile) -> Closed {
        loop {
            match file.restore(db) {
                Ok(()) => return Closed::Restored,
                Err(error) if self.tries_again_after(&error) => {}
                Err(error) => return Closed::Lost(error),
            }
        }
    }

    /// Says what is lost with the batch, if anything is.
    fn lost(&self, error: &StoreError) -> Result<(), StoreError> {
        let records = &self.batch.records;
        if records.is_empty() {
            return Ok(());
        }
        let runs: BTreeSet<_> = records.iter().filter_map(Record::run).collect();
        Err(StoreError::RecordsLost {
            runs: runs.into_iter().collect(),
            records: records.len(),
            reason: error.to_string(),
        })
    }

    /// Tells of the trouble and waits a while, longer every time. Not for
    /// ever: once the queue is stopped, only a few tries are left.
    fn tries_again_after(&mut self, error: &StoreError) -> bool {
        self.queue.set_trouble(&error.to_string());
        let again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        match self.queue.recover(&mut self.batch, again) {
            QueueState::Open => true,
            QueueState::Stopped if self.tries_left == 0 => false,
            QueueState::Stopped => {
                self.tries_left -= 1;
                true
            }
        }
    }
}
