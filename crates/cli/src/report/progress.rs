use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::{terminal, wording};

/// How far work has come that is done before anything else is shown: a line on standard
/// error, if that is a terminal, which goes away in the end.
///
/// ```text
///  ━━━━━━━─────────────  35% planning: 350000/1000000
/// ```
pub struct Progress {
    is_shown: bool,
    /// When to draw next.
    next: Instant,
    is_drawn: bool,
}

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time between two drawings.
const PAUSE: Duration = Duration::from_millis(100);

/// How many columns the bar has.
const BAR: usize = 20;

impl Progress {
    /// Work begins.
    pub fn new() -> Self {
        Self {
            is_shown: terminal::can_draw_stderr(),
            next: Instant::now() + PATIENCE,
            is_drawn: false,
        }
    }

    /// Shows how much is done, and of how much if that is known.
    pub fn show(&mut self, what: &str, done: usize, of: Option<usize>) {
        if !self.is_shown {
            return;
        }
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + PAUSE;
        self.is_drawn = true;
        let text = line(what, done, of);
        // An error of standard error cannot be reported.
        let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
    }

    /// Takes the line away, so that something else can be printed.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.next = Instant::now() + PATIENCE;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(what: &str, done: usize, of: Option<usize>) -> String {
    let Some(of) = of.filter(|of| *of > 0) else {
        return format!(" {what}: {}", wording::count(done as u64, "task"));
    };
    let full = done.min(of) * BAR / of;
    let bar = "━".repeat(full) + &"─".repeat(BAR - full);
    format!(" {bar} {:>3}% {what}: {done}/{of}", done.min(of) * 100 / of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is() {
        assert_eq!(line("reading", 1, None), " reading: 1 task");
        let half = format!(" {}{}  50% planning: 5/10", "━".repeat(10), "─".repeat(10));
        assert_eq!(line("planning", 5, Some(10)), half);
    }
}
