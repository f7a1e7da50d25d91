//! How often the driver is asked: often while memory grows, seldom when it rests.

use std::time::Duration;

/// While something grows, or has just started or ended.
const FAST: Duration = Duration::from_millis(50);
/// When nothing has changed for long.
const SLOW: Duration = Duration::from_secs(2);

/// When to take the next sample.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    /// When the last sample was taken, or asked for.
    pub(super) last: Option<Duration>,
    soon: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: FAST, last: None, soon: true }
    }
}

impl Pace {
    /// Something started or ended: look at once, and often from now on.
    pub(crate) fn look_soon(&mut self) {
        self.interval = FAST;
        self.soon = true;
    }

    /// A sample came in. `youngest` is how long ago the last attempt started, if
    /// any runs: a program takes most of its memory early, and one that has not
    /// grown for long will hardly do so in the next moment.
    pub(crate) fn sampled(&mut self, at: Duration, grew: bool, youngest: Option<Duration>) {
        let at_rest = youngest.map_or(self.interval * 2, |age| age / 20);
        self.interval = if grew { FAST } else { at_rest.clamp(FAST, SLOW) };
        self.last = self.last.max(Some(at));
    }

    /// When the next sample is due.
    pub(crate) fn due(&self, now: Duration) -> Duration {
        match self.last {
            Some(last) if !self.soon => last + self.interval,
            _ => now,
        }
    }

    /// One has been asked for.
    pub(crate) fn asked(&mut self, now: Duration) {
        self.last = Some(now);
        self.soon = false;
    }

    /// The time between samples at present.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_slows_down_while_nothing_changes_and_hurries_when_something_does() {
        let mut pace = Pace::default();
        let now = Duration::from_secs(100);
        assert_eq!(pace.due(now), now);
        pace.asked(now);
        assert_eq!(pace.due(now), now + FAST, "not again before it is answered");
        for _ in 0..10 {
            pace.sampled(now, false, None);
        }
        assert_eq!(pace.due(now), now + SLOW);
        pace.sampled(now, true, None);
        assert_eq!(pace.due(now), now + FAST);
        pace.sampled(now, false, Some(Duration::from_secs(10)));
        assert_eq!(pace.due(now), now + Duration::from_millis(500));
        pace.look_soon();
        assert_eq!(pace.due(now), now);
    }
}
