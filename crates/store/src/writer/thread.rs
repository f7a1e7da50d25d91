use std::time::{Duration, Instant};

use packhorse_model::RunId;
use rusqlite::Connection;

use super::queue::{Batch, Queue, Supply};
use super::removed::Place;
use super::slate::Slate;
use super::statements::{Refusal, Statements};
use crate::{Error, Home, database};

/// The time from one commit to the next, while records keep coming. A person
/// does not see that a line is so much younger than what it tells of; but at 5 ms,
/// tasks of a millisecond on as many slots as cores run 3 % slower, because each
/// waking up comes between one of them and the next.
const REST: Duration = Duration::from_millis(20);

/// How far the thread steps back behind others.
const NICENESS: i32 = 10;

/// How long to wait after the first failure; every further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often to try again once the queue is stopped and nothing can be waited
/// for any more.
const LAST_TRIES: u32 = 3;

/// How often to look whether the database's file is still in its place.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What the thread works with.
struct Thread<'a> {
    queue: &'a Queue,
    home: &'a Home,
    run: RunId,
    /// What was taken from the queue and is not committed.
    batch: Batch,
    pause: Duration,
    tries_left: u32,
}

/// Why a connection is not used any more.
enum End {
    /// All is written, and no more will come.
    Stopped,
    /// The database has been put back into its place.
    Restored,
    /// The database is gone for good.
    Lost(Error),
}

/// Writes all that comes through the queue, until it is stopped. Whatever
/// fails, the connection is opened anew and the batch tried again.
pub(super) fn write(queue: &Queue, home: &Home, run: RunId) -> Result<(), Error> {
    // Writing can wait a little, and tasks should not wait for it: on a busy
    // machine it takes the moments in which a core is free.
    let me = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(me), NICENESS);
    // Without it, as on a full disk, what is killed loses its last 20 ms.
    if let Ok(Some(slate)) = Slate::new(home, run) {
        queue.note_on(slate);
    }
    let mut thread = Thread {
        queue,
        home,
        run,
        batch: Batch::default(),
        pause: FIRST_PAUSE,
        tries_left: LAST_TRIES,
    };
    loop {
        let opened = database::open(home);
        queue.set_opened(opened.as_ref().map(|_| ()).map_err(Error::to_string));
        let error = match opened.and_then(|db| thread.serve(db)) {
            Ok(End::Stopped) => {
                queue.remove_slate();
                return Ok(());
            }
            Ok(End::Lost(error)) => return Err(error),
            Ok(End::Restored) => continue,
            Err(error) => error,
        };
        if !thread.tries_again_after(&error) {
            let records = thread.batch.records.len();
            return if records == 0 {
                Ok(())
            } else {
                let reason = error.to_string();
                Err(Error::Unwritten {
                    run,
                    records,
                    reason,
                })
            };
        }
    }
}

impl Thread<'_> {
    /// Writes over one connection, until the queue is stopped or something
    /// fails.
    fn serve(&mut self, db: Connection) -> Result<End, Error> {
        let failed = |source| Error::Sqlite {
            path: self.home.db(),
            source,
        };
        let file = Place::of(self.home.db());
        let mut statements = Statements::prepare(&db, self.run).map_err(failed)?;
        let mut looked = Instant::now();
        let mut pace = looked;
        loop {
            // A batch that is not empty here has failed before.
            let supply = if self.batch.records.is_empty() {
                self.queue.gather(&mut self.batch, pace)
            } else {
                Supply::Open
            };
            if !self.batch.records.is_empty() {
                let done = statements.commit(&self.batch.records);
                done.map_err(|refusal| match refusal {
                    Refusal::Sqlite(source) => failed(source),
                    Refusal::NumberTaken => Error::NumberTaken { run: self.run },
                })?;
                self.queue.set_committed(&mut self.batch);
                self.pause = FIRST_PAUSE;
            }
            let now = Instant::now();
            if supply == Supply::Ended || now - looked >= LOOK_AFTER {
                looked = now;
                if !file.holds() {
                    drop(statements);
                    return Ok(self.restore(&db, &file));
                }
            }
            if supply == Supply::Ended {
                drop(statements);
                database::close(db, self.home)?;
                return Ok(End::Stopped);
            }
            pace = now + REST;
        }
    }

    /// Tries to put the database back until that succeeds or the queue is
    /// stopped. The connection has the only copy: it is not let go before.
    fn restore(&mut self, db: &Connection, file: &Place) -> End {
        loop {
            match file.restore(db) {
                Ok(()) => return End::Restored,
                Err(error) if self.tries_again_after(&error) => {}
                Err(error) => return End::Lost(error),
            }
        }
    }

    /// Tells of the trouble and waits a while, longer every time. Not for
    /// ever: once the queue is stopped, only a few tries are left.
    fn tries_again_after(&mut self, error: &Error) -> bool {
        self.queue.set_trouble(&error.to_string());
        let again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        match self.queue.recover(&mut self.batch, again) {
            Supply::Open => true,
            Supply::Ended if self.tries_left == 0 => false,
            Supply::Ended => {
                self.tries_left -= 1;
                true
            }
        }
    }
}
