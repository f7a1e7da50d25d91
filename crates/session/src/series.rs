use std::io;

use crate::AttemptLog;

/// How many values are kept, and half as many at least: more than a terminal has dots.
const MOST: usize = 1024;

/// The values of one metric, in the order in which an attempt printed them.
///
/// The log has all of them. Of many, evenly spread ones are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricSeries {
    /// Where each was measured, and the value.
    points: Vec<(f64, f64)>,
    /// Of so many, one is kept.
    stride: u64,
    count: u64,
    not_finite: u64,
    last: Option<(f64, f64)>,
    lowest: Option<(f64, f64)>,
    highest: Option<(f64, f64)>,
}

impl MetricSeries {
    /// Reads the values of a metric from a log. Where a line has no `step`, the values are
    /// counted, from 1.
    pub fn read(log: &AttemptLog, metric: &str) -> io::Result<Self> {
        let mut series = Self::default();
        log.open()?.each_metric(|line| {
            if let Some(&value) = line.values.get(metric) {
                series.add(line.step, value);
            }
        })?;
        Ok(series)
    }

    fn add(&mut self, step: Option<f64>, value: f64) {
        let number = self.count + self.not_finite + 1;
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.count += 1;
        #[expect(clippy::cast_precision_loss, reason = "for drawings")]
        let point = (step.unwrap_or(number as f64), value);
        if self.points.len() == MOST {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
        self.stride = self.stride.max(1);
        if (self.count - 1).is_multiple_of(self.stride) {
            self.points.push(point);
            self.last = None;
        } else {
            self.last = Some(point);
        }
        let better = |known: &Option<(f64, f64)>, is: fn(f64, f64) -> bool| {
            known.is_none_or(|(_, known)| is(value, known))
        };
        if better(&self.lowest, |new, known| new < known) {
            self.lowest = Some(point);
        }
        if better(&self.highest, |new, known| new > known) {
            self.highest = Some(point);
        }
    }

    /// Where values were measured, and the values: the first, the last and those between as
    /// far as they were kept.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.points.iter().copied().chain(self.last)
    }

    /// How many values were NaN or infinite. They are not among the points.
    pub fn not_finite(&self) -> u64 {
        self.not_finite
    }

    /// How many finite values there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lowest value, and where it was first measured.
    pub fn lowest(&self) -> Option<(f64, f64)> {
        self.lowest
    }

    /// The highest value, and where it was first measured.
    pub fn highest(&self) -> Option<(f64, f64)> {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_values_few_are_kept_and_the_best_is_known() {
        let mut series = MetricSeries::default();
        for n in 0..1_000_000 {
            let value = if n == 777_777 { -1.0 } else { f64::from(n) };
            series.add(Some(f64::from(n) / 10.0), value);
            assert!(series.points.len() <= MOST);
        }
        assert_eq!(series.count(), 1_000_000);
        assert_eq!(series.lowest(), Some((77_777.7, -1.0)));
        assert_eq!(series.highest(), Some((99_999.9, 999_999.0)));
        let points: Vec<(f64, f64)> = series.points().collect();
        assert!(points.len() > MOST / 2, "{}", points.len());
        assert_eq!(points.first(), Some(&(0.0, 0.0)));
        assert_eq!(points.last(), Some(&(99_999.9, 999_999.0)));
        // Evenly spread, but for the last one.
        let distances = points.windows(2).map(|two| two[1].0 - two[0].0);
        let distances: Vec<f64> = distances.take(points.len() - 2).collect();
        assert!(distances.iter().all(|it| (it - distances[0]).abs() < 1e-6));
    }

    #[test]
    fn values_without_a_step_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.1.log");
        let text = "packhorse: {\"loss\": 3}\nnoise\npackhorse: {\"acc\": 9}\n\
                    packhorse: {\"loss\": 2, \"step\": 40}\npackhorse: {\"loss\": 1}";
        fs_err::write(&path, text).unwrap();
        let series = MetricSeries::read(&AttemptLog::at(path), "loss").unwrap();
        let points: Vec<(f64, f64)> = series.points().collect();
        assert_eq!(points, [(1.0, 3.0), (40.0, 2.0), (3.0, 1.0)]);
    }
}
