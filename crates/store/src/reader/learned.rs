use std::collections::BTreeMap;

use packhorse_model::{Bytes, RunId};

use super::Reader;
use crate::{Error, Sample, UnixMicros, columns};

/// What is known of one signature on one model of GPU, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// The shape of the commands.
    pub signature: String,
    /// The model of the GPU.
    pub model: String,
    /// How many samples there are.
    pub samples: u32,
    /// The highest peak among them.
    pub highest: Bytes,
    /// When the newest was taken.
    pub newest: UnixMicros,
}

/// A GPU that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Its UUID, or its id where it has none.
    pub device: String,
    /// What is wrong with it.
    pub reason: String,
    /// Since when.
    pub at: UnixMicros,
    /// The run that took it out.
    pub run: RunId,
}

impl Reader {
    /// What was seen of commands of this shape, for each model of GPU, newest
    /// first.
    pub fn samples(&self, signature: &str) -> Result<BTreeMap<String, Vec<Sample>>, Error> {
        let sql = "SELECT model, at, peak, error, duration, whence FROM sample \
                   WHERE signature = ?1 ORDER BY model, at DESC, task DESC, attempt DESC";
        let rows = self.all(sql, [signature], |row| {
            let duration: Option<i64> = row.get(4)?;
            let sample = Sample {
                at: UnixMicros(row.get(1)?),
                peak: columns::bytes(row.get(2)?),
                error: columns::bytes(row.get(3)?),
                duration: duration.map(columns::duration),
                whence: columns::whence(row.get(5)?),
            };
            Ok((row.get(0)?, sample))
        })?;
        let mut models = BTreeMap::<String, Vec<Sample>>::new();
        for (model, sample) in rows {
            models.entry(model).or_default().push(sample);
        }
        Ok(models)
    }

    /// Every signature with every model it was seen on, the most recently seen
    /// first.
    pub fn signatures(&self) -> Result<Vec<Learned>, Error> {
        let sql = "SELECT signature, model, count(*), max(peak), max(at) AS newest FROM sample \
                   GROUP BY signature, model ORDER BY newest DESC, signature, model";
        self.all(sql, [], |row| {
            Ok(Learned {
                signature: row.get(0)?,
                model: row.get(1)?,
                samples: row.get(2)?,
                highest: columns::bytes(row.get(3)?),
                newest: UnixMicros(row.get(4)?),
            })
        })
    }

    /// The GPUs that were taken out and not put back, first to last.
    pub fn drained(&self) -> Result<Vec<Drained>, Error> {
        let sql = "SELECT device, reason, at, run FROM drained ORDER BY at, device";
        self.all(sql, [], |row| {
            Ok(Drained {
                device: row.get(0)?,
                reason: row.get(1)?,
                at: UnixMicros(row.get(2)?),
                run: RunId(row.get(3)?),
            })
        })
    }
}
