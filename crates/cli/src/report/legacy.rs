use std::time::Instant;

use packhorse_model::{Event, EventKind};
use packhorse_session::{Observer, QueueView};

use super::Sink;
use crate::{terminal, wording};

/// The lines of the original `simple_gpu_scheduler`, byte for byte on standard
/// output, and what the original does not say on standard error.
pub struct Legacy {
    sink: Sink,
    on_terminal: bool,
    quiet: super::tally::Tally,
}

impl Legacy {
    /// Writes to standard output.
    pub fn new() -> Self {
        Self {
            sink: Sink::lines(),
            on_terminal: terminal::is_stdout(),
            quiet: super::tally::Tally::new(Instant::now()),
        }
    }
}

impl Observer for Legacy {
    fn event(&mut self, event: &Event) {
        self.quiet.event(event);
        match &event.kind {
            EventKind::Started { command, gpus, .. } => {
                let buffer = self.sink.buffer();
                buffer.extend_from_slice(b"Processing command `");
                match &**command {
                    // A terminal would obey what is in it.
                    command if self.on_terminal => {
                        buffer.extend_from_slice(wording::command(command).as_bytes());
                    }
                    packhorse_model::Command::Line(line) => buffer.extend_from_slice(line),
                    packhorse_model::Command::Words(_) => {}
                }
                buffer.extend_from_slice(b"` on gpu ");
                buffer.extend_from_slice(gpus.join(",").as_bytes());
                buffer.push(b'\n');
            }
            EventKind::RunEnded(summary) => {
                self.sink.flush();
                if summary.failed > 0 || summary.left > 0 {
                    for line in super::plain::closing_lines(event, &self.quiet) {
                        crate::complain(&line);
                    }
                }
            }
            EventKind::Warning { .. } | EventKind::Stopping { .. } => {
                if let Some((_, line)) = super::plain::line_of(event) {
                    self.sink.flush();
                    crate::complain(&line);
                }
            }
            EventKind::Finished(finished) => {
                if let Some(message) = &finished.message {
                    let command = wording::command(&finished.command);
                    crate::complain(&format!("{message}: {command}"));
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, _now: Instant, _queue: &dyn QueueView) -> Option<Instant> {
        self.sink.flush();
        None
    }
}
