//! The smallest door, the smallest executor and the smallest observer, in one run.
//! `docs/development.md` shows them.

#![expect(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use packhorse_engine::{AttemptEnd, ProcessEvent, StartAttempt, StopMode};
use packhorse_gpu::mps::Daemon;
use packhorse_intake::Colour;
use packhorse_model::{Command, Event, EventKind, Outcome, PoolSpec, RunSpec, TaskId, TaskSpec};
use packhorse_session::settings::Settings;
use packhorse_session::{Executor, Launch, NextRead, Observer, SourceRead, TaskSource};
use rustix::event::{EventfdFlags, eventfd};

/// A door: makes tasks when there is room for them.
struct Countdown(u32);

impl TaskSource for Countdown {
    fn read(&mut self, room: usize) -> SourceRead {
        let mut read = SourceRead::default();
        while self.0 > 0 && read.tasks.len() < room {
            let command = Command::Line(format!("echo {}", self.0).into_bytes());
            read.tasks.push((TaskSpec::new(command), Vec::new()));
            self.0 -= 1;
        }
        if self.0 == 0 {
            read.next = NextRead::Never;
        }
        read
    }

    fn unread(&self) -> u64 {
        self.0.into()
    }
}

/// An executor: starts nothing, and says that all went well.
struct Pretender {
    /// Readable when there is something to drain.
    bell: OwnedFd,
    ended: Vec<ProcessEvent>,
}

impl Executor for Pretender {
    fn start(&mut self, start: StartAttempt, _: Option<&Daemon>) -> Option<ProcessEvent> {
        let (task, attempt) = (start.task, start.attempt);
        self.ended.push(ProcessEvent::Ended(AttemptEnd {
            task,
            attempt,
            outcome: Outcome::Succeeded,
            message: None,
            took: Duration::ZERO,
        }));
        // It cannot be full: it is emptied whenever it is drained.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        Some(ProcessEvent::Started { task, attempt })
    }

    fn drain(&mut self, events: &mut Vec<ProcessEvent>) -> io::Result<()> {
        // Nothing to read is no error: then there is nothing to drain either.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        events.append(&mut self.ended);
        Ok(())
    }

    // What has ended already need not be stopped.
    fn stop(&mut self, _: TaskId, _: StopMode) {}
    fn abandon(&mut self, _: TaskId) {}
}

impl AsFd for Pretender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// An observer: counts what it is told.
#[derive(Default)]
struct Counter {
    started: u32,
    succeeded: u32,
}

impl Observer for Counter {
    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Started { .. } => self.started += 1,
            EventKind::Finished(result) if result.outcome.is_success() => self.succeeded += 1,
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let spec =
        RunSpec { pool: PoolSpec { slots: Some(2), ..PoolSpec::default() }, ..RunSpec::default() };
    let mut notices = |text: &str| println!("{text}");
    let settings = Settings::find(None, &mut notices)?;
    let launch = Launch::prepare(spec, Colour::Off, &settings, &mut notices)?;
    let launch = launch.with_executor(Box::new(Pretender {
        bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        ended: Vec::new(),
    }));
    let mut counter = Counter::default();
    let summary = launch.start(Box::new(Countdown(1000)), &mut counter, &mut notices)?;
    println!(
        "run {}: {} tasks started, {} succeeded",
        summary.run, counter.started, counter.succeeded
    );
    Ok(())
}
