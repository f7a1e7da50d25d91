//! Small changes that belong to no run, each made at once and by itself.

use rusqlite::{Connection, params};

use crate::columns::{self, code};
use crate::{Home, RunLock, StoreError, database};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget<'a> {
    /// Every peak of every command.
    All,
    /// The peaks of commands with this signature.
    Signature(&'a str),
}

impl Home {
    /// Forgets peaks. Returns how many are gone.
    pub fn forget(&self, what: Forget<'_>) -> Result<usize, StoreError> {
        self.edit_if_there(|db| match what {
            Forget::All => db.execute("DELETE FROM sample", []),
            Forget::Signature(signature) => {
                db.execute("DELETE FROM sample WHERE signature = ?1", [signature])
            }
        })
    }

    /// Puts a GPU back that was taken out. Returns whether it was out.
    pub fn restore(&self, device: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM drained WHERE device = ?1";
        let gone = self.edit_if_there(|db| db.execute(sql, [device]))?;
        Ok(gone > 0)
    }

    /// Ends a run of which nothing is left to do, if its own process could not record
    /// its end or that there is no more input.
    pub fn settle_run(&self, lock: &RunLock) -> Result<(), StoreError> {
        let run = lock.run();
        let sql = "UPDATE run SET input_complete = 1, ended = coalesce(ended, \
                   (SELECT max(ended) FROM attempt WHERE task BETWEEN ?2 AND ?3), started), \
                   exit = EXISTS (SELECT 1 FROM task WHERE id BETWEEN ?2 AND ?3 AND outcome > ?4) \
                   WHERE id = ?1";
        let (first, last) = columns::task_keys(run);
        let values = params![run.0, first, last, code::SUCCEEDED];
        self.edit(|db| db.execute(sql, values))?;
        Ok(())
    }

    /// Removes a run of which nothing has happened yet, and its folder.
    pub fn remove_run(&self, lock: &RunLock) -> Result<(), StoreError> {
        let run = lock.run();
        let (first, last) = columns::task_keys(run);
        self.edit(|db| {
            let all = db.unchecked_transaction()?;
            all.execute("DELETE FROM task WHERE id BETWEEN ?1 AND ?2", params![first, last])?;
            all.execute("DELETE FROM tally WHERE run = ?1", [run.0])?;
            all.execute("DELETE FROM run WHERE id = ?1", [run.0])?;
            all.commit()
        })?;
        Ok(fs_err::remove_dir_all(self.run_dir(run))?)
    }

    /// Takes `count` numbers from the counter of this name and returns the
    /// first of them. It counts from 1, and gives no number twice, to whichever
    /// process.
    pub fn next_ids(&self, name: &str, count: u32) -> Result<u64, StoreError> {
        let sql = "INSERT INTO counter (name, next) VALUES (?1, 1 + ?2) \
                   ON CONFLICT DO UPDATE SET next = next + ?2 RETURNING next - ?2";
        let first = self.edit(|db| db.query_one(sql, params![name, count], |row| row.get(0)))?;
        Ok(i64::cast_unsigned(first))
    }

    /// A change that has nothing to do without a database, and makes none.
    fn edit_if_there(
        &self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<usize>,
    ) -> Result<usize, StoreError> {
        if self.db().exists() { self.edit(change) } else { Ok(0) }
    }

    fn edit<T>(
        &self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let db = database::open(self)?;
        let done = change(&db).map_err(|source| self.sqlite_error(source))?;
        database::close(db, self)?;
        Ok(done)
    }
}
