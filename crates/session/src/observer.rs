use std::time::Instant;

use packhorse_engine::Engine;
use packhorse_model::Event;

/// What can be asked about the tasks that wait.
pub trait QueueView {
    /// Why the first in line waits, in words; nothing if nobody waits.
    fn why_first_waits(&self) -> Option<String>;
}

/// Shows a run, or follows it.
pub trait Observer {
    /// Takes note of something that happened.
    fn event(&mut self, event: &Event);

    /// Shows what it took note of. Called once per turn of the loop; returns when it wants
    /// to be called again though nothing happens. `queue` can tell why the first in line
    /// waits, for those who care to ask.
    fn show(&mut self, _now: Instant, _queue: &dyn QueueView) -> Option<Instant> {
        None
    }

    /// The terminal has another size.
    fn resized(&mut self) {}

    /// The program is stopped next, as by Ctrl-Z: the terminal is somebody else's then.
    fn suspended(&mut self) {}

    /// The program was stopped, and goes on. What it had drawn may be anywhere.
    fn continued(&mut self) {}
}

impl QueueView for Engine {
    fn why_first_waits(&self) -> Option<String> {
        self.why_first_waits()
    }
}

/// Nobody waits any more.
pub(crate) struct EmptyQueue;

impl QueueView for EmptyQueue {
    fn why_first_waits(&self) -> Option<String> {
        None
    }
}
