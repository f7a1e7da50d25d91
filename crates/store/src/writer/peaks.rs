use std::collections::HashSet;

use packhorse_model::NewPeak;
use rusqlite::{Connection, params};

use crate::columns;

/// How many peaks are kept for each signature and GPU model: the newest.
const KEPT: u32 = 64;

/// The peaks of one batch. What is too old is taken out once for all of them.
pub(super) struct Peaks<'db, 'batch> {
    db: &'db Connection,
    touched: HashSet<(&'batch str, &'batch str)>,
}

impl<'db, 'batch> Peaks<'db, 'batch> {
    pub(super) fn new(db: &'db Connection) -> Self {
        Self {
            db,
            touched: HashSet::new(),
        }
    }

    pub(super) fn add(&mut self, peak: &'batch NewPeak) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO sample (signature, model, at, task, attempt, peak, \
                   error, duration, whence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let learned = &peak.learned;
        self.db.prepare_cached(sql)?.execute(params![
            peak.signature,
            peak.model,
            learned.at.0,
            columns::task_key(peak.task),
            peak.attempt,
            columns::bytes_column(learned.peak),
            columns::bytes_column(learned.error),
            learned.duration.map(columns::micros),
            columns::origin_code(learned.origin),
        ])?;
        self.touched.insert((&peak.signature, &peak.model));
        Ok(())
    }

    /// Keeps the newest of each signature and model.
    pub(super) fn trim(self) -> rusqlite::Result<()> {
        let sql = "DELETE FROM sample WHERE signature = ?1 AND model = ?2 \
                   AND (at, task, attempt) <= (SELECT at, task, attempt FROM sample \
                   WHERE signature = ?1 AND model = ?2 \
                   ORDER BY at DESC, task DESC, attempt DESC LIMIT 1 OFFSET ?3)";
        for (signature, model) in self.touched {
            let mut trim = self.db.prepare_cached(sql)?;
            trim.execute(params![signature, model, KEPT])?;
        }
        Ok(())
    }
}
