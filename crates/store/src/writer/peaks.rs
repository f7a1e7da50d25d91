use std::collections::HashSet;

use packhorse_model::RunId;
use rusqlite::{Connection, params};

use crate::peak::KEPT;
use crate::{Peak, columns};

/// The peaks of one batch. What is too old is taken out once for all of them.
pub(super) struct Peaks<'db, 'batch> {
    db: &'db Connection,
    run: RunId,
    touched: HashSet<(&'batch str, &'batch str)>,
}

impl<'db, 'batch> Peaks<'db, 'batch> {
    pub(super) fn new(db: &'db Connection, run: RunId) -> Self {
        Self {
            db,
            run,
            touched: HashSet::new(),
        }
    }

    pub(super) fn add(&mut self, peak: &'batch Peak) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO sample (signature, model, at, task, attempt, peak, \
                   error, duration, whence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let sample = &peak.sample;
        self.db.prepare_cached(sql)?.execute(params![
            peak.signature,
            peak.model,
            sample.at.0,
            columns::task_key(self.run, peak.task),
            peak.attempt,
            columns::bytes_column(sample.peak),
            columns::bytes_column(sample.error),
            sample.duration.map(columns::micros),
            columns::whence_code(sample.whence),
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
