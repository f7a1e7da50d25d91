use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: microseconds since 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMicros(pub i64);

impl UnixMicros {
    /// This moment, by the system's clock.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// The time from `earlier` to here; nothing if the clock was set back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for UnixMicros {
    fn from(time: SystemTime) -> Self {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(micros(after)),
            Err(before) => Self(-micros(before.duration())),
        }
    }
}
