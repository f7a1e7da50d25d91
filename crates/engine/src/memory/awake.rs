//! Telling a driver's silence from our own sleep.

use std::time::Duration;

/// Whoever oversleeps by so much was stopped.
const OVERSLEPT: Duration = Duration::from_secs(2);

/// Whether we were awake: a process that is stopped for a while (Ctrl-Z, SIGSTOP, a
/// frozen group) finds questions unanswered that nobody could have answered it.
#[derive(Debug, Default)]
pub(super) struct Awake {
    /// When we meant to wake up.
    due: Option<Duration>,
    /// When we did after having been stopped.
    resumed: Option<Duration>,
}

impl Awake {
    /// We are awake.
    pub(super) fn turn(&mut self, now: Duration) {
        let due = self.due.take();
        if due.is_some_and(|due| due + OVERSLEPT <= now) {
            self.resumed = Some(now);
        }
    }

    /// We mean to be awake again by then.
    pub(super) fn sleep_until(&mut self, due: Duration) {
        self.due = Some(due);
    }

    /// Since when a question counts as asked that was asked at `since`.
    pub(super) fn asked(&self, since: Duration) -> Duration {
        self.resumed.map_or(since, |resumed| since.max(resumed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_while_we_were_stopped_does_not_count() {
        let start = Duration::from_secs(100);
        let second = Duration::from_secs(1);
        let mut awake = Awake::default();
        awake.sleep_until(start + second);
        awake.turn(start + second * 2);
        assert_eq!(awake.asked(start), start);
        awake.sleep_until(start + second * 3);
        awake.turn(start + second * 60);
        assert_eq!(awake.asked(start), start + second * 60);
        let later = start + second * 61;
        assert_eq!(awake.asked(later), later);
        // Nobody expected us to wake up before that.
        awake.turn(start + second * 600);
        assert_eq!(awake.asked(later), later);
    }
}
