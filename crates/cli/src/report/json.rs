use std::time::Instant;

use packhorse_model::Event;
use packhorse_session::{Observer, QueueView};

use super::Sink;
use super::output::{GatedEvent, OutputGate};

/// One JSON object per event, exactly as events are: see docs/events.md.
pub struct Json {
    sink: Sink,
    gate: OutputGate,
}

impl Json {
    /// Writes to standard output.
    pub fn new() -> Self {
        Self {
            sink: Sink::stdout(),
            gate: OutputGate::default(),
        }
    }

    fn write(&mut self, event: &Event) {
        let buffer = self.sink.buffer();
        // Nothing in an event can fail to be written, nor can a Vec.
        if serde_json::to_writer(&mut *buffer, event).is_ok() {
            buffer.push(b'\n');
        }
    }
}

impl Observer for Json {
    fn event(&mut self, event: &Event) {
        let room = self.sink.room(0);
        let GatedEvent { gap, event } = self.gate.pass(event, room);
        for event in gap.iter().chain(event) {
            self.write(event);
        }
    }

    fn show(&mut self, now: Instant, _queue: &dyn QueueView) -> Option<Instant> {
        self.sink.flush_now_and_then(now)
    }
}
