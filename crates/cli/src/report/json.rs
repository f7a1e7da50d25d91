use std::time::Instant;

use packhorse_model::Event;
use packhorse_session::{Observer, QueueView};

use super::Sink;

/// One JSON object per event, exactly as events are: see docs/events.md.
pub struct Json(Sink);

impl Json {
    /// Writes to standard output.
    pub fn new() -> Self {
        Self(Sink::lines())
    }
}

impl Observer for Json {
    fn event(&mut self, event: &Event) {
        for event in self.0.pass(event, 0) {
            let buffer = self.0.buffer();
            // Nothing in an event can fail to be written, nor can a Vec.
            if serde_json::to_writer(&mut *buffer, &event).is_ok() {
                buffer.push(b'\n');
            }
        }
    }

    fn show(&mut self, now: Instant, _queue: &dyn QueueView) -> Option<Instant> {
        self.0.flush_now_and_then(now)
    }
}
