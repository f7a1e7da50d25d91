//! A time axis of a given width.

use std::fmt::Write as _;
use std::time::Duration;

use crate::plan::DurationGuess;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Convenient distances between ticks: how many of a unit.
const STEPS: [(u64, &[u64]); 4] = [
    (1, &[1, 2, 5, 10, 15, 30]),
    (MINUTE, &[1, 2, 5, 10, 15, 30]),
    (HOUR, &[1, 2, 3, 6, 12]),
    (DAY, &[1, 2, 7, 14, 30, 90, 360]),
];

/// The columns that a tick and its label need.
const ROOM: usize = 9;

/// `columns` columns for the time from 0 to `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeAxis {
    pub(crate) end: Duration,
    pub(crate) columns: usize,
    /// What the labels count: if it is rounds, a second stands for one.
    pub(crate) guess: DurationGuess,
}

/// A time in one or two units, such as `1h30m`.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "m"), (MINUTE, "m", 1, "s")];
    if let Some((large, of, small, under)) = units.into_iter().find(|unit| seconds >= unit.0) {
        match seconds % large / small {
            0 => format!("{}{of}", seconds / large),
            rest => format!("{}{of}{rest}{under}", seconds / large),
        }
    } else if seconds >= 10 || time.subsec_millis() == 0 {
        format!("{seconds}s")
    } else {
        let tenths = time.as_millis() / 100;
        format!("{}.{}s", tenths / 10, tenths % 10)
    }
}

impl TimeAxis {
    /// The column of `time`; one past the last for the end.
    pub(crate) fn column(&self, time: Duration) -> usize {
        let end = self.end.as_nanos();
        if end == 0 {
            return 0;
        }
        let columns = self.columns as u128;
        let column = (time.as_nanos().saturating_mul(columns) / end).min(columns);
        usize::try_from(column).unwrap_or(self.columns)
    }

    /// The line of labels, each at its tick.
    pub(crate) fn labels(&self) -> String {
        let most = (self.columns / ROOM).max(1) as u64;
        let end = self.end.as_secs();
        let steps = STEPS.into_iter();
        let mut steps =
            steps.flat_map(|(unit, counts)| counts.iter().map(move |count| count * unit));
        let enough = |step: &u64| end / step < most;
        let step = steps.find(enough).unwrap_or(360 * DAY);
        let mut line = String::new();
        let mut used = 0;
        for tick in 0..most {
            let time = Duration::from_secs(tick * step);
            let column = self.column(time);
            if time > self.end || column >= self.columns {
                break;
            }
            let label = match self.guess {
                _ if tick == 0 => "0".to_owned(),
                DurationGuess::Rounds => time.as_secs().to_string(),
                _ => short(time),
            };
            let _ = write!(line, "{:gap$}{label}", "", gap = column - used);
            used = column + label.len();
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(seconds: u64, columns: usize) -> TimeAxis {
        TimeAxis { end: Duration::from_secs(seconds), columns, guess: DurationGuess::AllKnown }
    }

    #[test]
    fn times_are_short() {
        let shown = |millis: u64| short(Duration::from_millis(millis));
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(1_500), "1.5s");
        assert_eq!(shown(12_700), "12s");
        assert_eq!(shown(90_000), "1m30s");
        assert_eq!(shown(3_600_000), "1h");
        assert_eq!(shown(9_000_000), "2h30m");
        assert_eq!(shown(100 * 3_600_000), "4d4h");
    }

    #[test]
    fn labels_stand_at_their_ticks() {
        assert_eq!(axis(3600, 40).labels(), "0                   30m");
        assert_eq!(axis(40, 40).labels(), "0              15s            30s");
        assert_eq!(axis(0, 40).labels(), "0");
        assert_eq!(axis(100, 3).labels(), "0");
    }

    #[test]
    fn columns_cover_the_time_and_no_more() {
        let axis = axis(10, 20);
        let column = |seconds| axis.column(Duration::from_secs(seconds));
        assert_eq!([column(0), column(5), column(10), column(99)], [0, 10, 20, 20]);
    }
}
