use std::collections::BTreeMap;

use packhorse_model::{Bytes, LearnedPeak, RunId, Timestamp};

use super::Reader;
use crate::{StoreError, columns};

/// What is known of one signature on one model of GPU, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedSignature {
    /// The signature of the commands.
    pub signature: String,
    /// The model of the GPU.
    pub model: String,
    /// How many peaks are known.
    pub peaks: u32,
    /// The highest of them.
    pub highest: Bytes,
    /// When the newest was seen.
    pub newest: Timestamp,
}

/// A GPU that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainedDevice {
    /// Its UUID, or its id where it has none.
    pub device: String,
    /// What is wrong with it.
    pub reason: String,
    /// Since when.
    pub at: Timestamp,
    /// The run that took it out.
    pub run: RunId,
}

impl Reader {
    /// The peaks of commands with this signature, for each model of GPU, newest
    /// first.
    pub fn peaks(&self, signature: &str) -> Result<BTreeMap<String, Vec<LearnedPeak>>, StoreError> {
        let sql = "SELECT model, at, peak, error, duration, whence FROM sample \
                   WHERE signature = ?1 ORDER BY model, at DESC, task DESC, attempt DESC";
        let rows = self.all(sql, [signature], |row| {
            let duration: Option<i64> = row.get(4)?;
            let peak = LearnedPeak {
                at: Timestamp(row.get(1)?),
                peak: columns::bytes(row.get(2)?),
                error: columns::bytes(row.get(3)?),
                duration: duration.map(columns::duration),
                origin: columns::origin(row.get(5)?),
            };
            Ok((row.get(0)?, peak))
        })?;
        let mut models = BTreeMap::<String, Vec<LearnedPeak>>::new();
        for (model, peak) in rows {
            models.entry(model).or_default().push(peak);
        }
        Ok(models)
    }

    /// The same for every signature that begins with this one and has details in brackets
    /// behind it, and for itself.
    pub fn family_peaks(
        &self,
        family: &str,
    ) -> Result<BTreeMap<String, BTreeMap<String, Vec<LearnedPeak>>>, StoreError> {
        // A range of the table's key: the backslash comes after the bracket.
        let sql = "SELECT DISTINCT signature FROM sample \
                   WHERE signature >= ?1 || ' [' AND signature < ?1 || ' \\'";
        let mut names: Vec<String> = self.all(sql, [family], |row| row.get(0))?;
        names.push(family.to_owned());
        let peaks = names.into_iter().map(|name| {
            let peaks = self.peaks(&name)?;
            Ok((name, peaks))
        });
        peaks.collect()
    }

    /// Every signature with every model it was seen on, the most recently seen
    /// first.
    pub fn signatures(&self) -> Result<Vec<LearnedSignature>, StoreError> {
        let sql = "SELECT signature, model, count(*), max(peak), max(at) AS newest FROM sample \
                   GROUP BY signature, model ORDER BY newest DESC, signature, model";
        self.all(sql, [], |row| {
            Ok(LearnedSignature {
                signature: row.get(0)?,
                model: row.get(1)?,
                peaks: row.get(2)?,
                highest: columns::bytes(row.get(3)?),
                newest: Timestamp(row.get(4)?),
            })
        })
    }

    /// The GPUs that were taken out and not put back, first to last.
    pub fn drained(&self) -> Result<Vec<DrainedDevice>, StoreError> {
        let sql = "SELECT device, reason, at, run FROM drained ORDER BY at, device";
        self.all(sql, [], |row| {
            Ok(DrainedDevice {
                device: row.get(0)?,
                reason: row.get(1)?,
                at: Timestamp(row.get(2)?),
                run: RunId(row.get(3)?),
            })
        })
    }
}
