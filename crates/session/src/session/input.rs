//! Reading tasks from the source, as long as the journal keeps up.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use packhorse_engine::Input;
use rustix::event::epoll;

use super::{MOST_UNWRITTEN, Session, SourceState, Watched};
use crate::source::NextRead;
use crate::{SessionError, system};

impl Session<'_> {
    /// Whether the source makes tasks that the engine should have.
    pub(super) fn has_room(&self) -> bool {
        self.source == SourceState::Open
            && self.parts.source.descriptor().is_none()
            && self.engine.room(self.run) > 0
    }

    /// Takes tasks from a source that makes them when they are needed.
    pub(super) fn read_made_tasks(&mut self) {
        while self.has_room() {
            let room = self.engine.room(self.run);
            self.read_together(room);
        }
    }

    /// Takes what there is, to the end of what arrived together.
    pub(super) fn read_together(&mut self, room: usize) -> NextRead {
        let mut left = room;
        loop {
            let (taken, next) = self.read_some(left);
            left = left.saturating_sub(taken);
            self.feed_answers();
            if next != NextRead::AtOnce {
                return next;
            }
        }
    }

    /// Takes some of what there is, to be handled next; how many tasks, and how it goes on.
    pub(super) fn read_some(&mut self, room: usize) -> (usize, NextRead) {
        let run = self.run;
        let read = self.parts.source.read(room);
        let taken = read.tasks.len();
        let more = read.next == NextRead::AtOnce;
        let tasks = read.tasks;
        self.answers.push_back(Input::Tasks { run, tasks, more });
        let rejected = read.rejected.into_iter();
        self.answers
            .extend(rejected.map(|(tasks, message)| Input::Rejected {
                run,
                tasks,
                message,
            }));
        if read.next == NextRead::Never {
            self.source = SourceState::Over;
            self.answers.push_back(Input::InputEnded(run));
        }
        (taken, read.next)
    }

    /// The source can be read.
    pub(super) fn read_source(&mut self) {
        if self.watched_source.is_none() {
            return;
        }
        let next = self.read_together(usize::MAX);
        if matches!(next, NextRead::OtherDescriptor | NextRead::Never) {
            // A new stream has another descriptor.
            self.unwatch_source();
        }
    }

    /// Whether input is left unread until the journal has caught up.
    pub(super) fn is_source_paused(&self) -> bool {
        self.source == SourceState::Open
            && self.parts.source.descriptor().is_some()
            && self.watched_source.is_none()
    }

    /// Watches the source if it may be read now.
    pub(super) fn watch_source(&mut self) -> Result<(), SessionError> {
        let open = self.source == SourceState::Open;
        let wanted = open && self.parts.journal.unwritten() < MOST_UNWRITTEN;
        let descriptor = self.parts.source.descriptor().filter(|_| wanted);
        match (descriptor, &self.watched_source) {
            (Some(source), None) => {
                let copy = rustix::io::fcntl_dupfd_cloexec(source, 0)
                    .map_err(|error| system("watch the input")(error.into()))?;
                let data = epoll::EventData::new_u64(Watched::Source as u64);
                match epoll::add(&self.epoll, &copy, data, epoll::EventFlags::IN) {
                    Ok(()) => {}
                    // A regular file, or /dev/null.
                    Err(rustix::io::Errno::PERM) => self.always_readable = true,
                    Err(error) => return Err(system("watch the input")(error.into())),
                }
                self.watched_source = Some(copy);
            }
            (None, Some(_)) => self.unwatch_source(),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn unwatch_source(&mut self) {
        if let Some(watched) = self.watched_source.take()
            && !std::mem::take(&mut self.always_readable)
        {
            let _ = epoll::delete(&self.epoll, &watched);
        }
    }

    /// What can be had of the input without waiting goes to the journal, so that a later
    /// session finds it there. Whether there was any.
    pub(super) fn keep_some_input(&mut self, end: Instant) -> bool {
        let readable = self.parts.source.descriptor().is_some_and(is_readable);
        if self.source == SourceState::Over || !readable {
            return false;
        }
        if Instant::now() >= end {
            let message = "more commands are coming in than can be kept; the rest is left";
            self.answers.push_back(Input::Warning {
                task: None,
                message: message.to_owned(),
            });
            self.closing = self.closing.map(|(run, _)| (run, None));
            return true;
        }
        while self.parts.journal.unwritten() > MOST_UNWRITTEN
            && self.parts.journal.trouble().is_none()
        {
            let journal = &self.parts.journal.as_fd();
            let flags = rustix::event::PollFlags::IN;
            let mut bell = [rustix::event::PollFd::new(journal, flags)];
            let _ = rustix::event::poll(&mut bell, None);
            self.parts.journal.heard();
        }
        // By now tasks are only written down. All of what has been read is taken: the
        // descriptor does not tell of it any more.
        while self.read_some(usize::MAX).1 == NextRead::AtOnce {}
        true
    }
}

/// Whether a read would not block.
fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut poll = [rustix::event::PollFd::from_borrowed_fd(
        descriptor,
        rustix::event::PollFlags::IN,
    )];
    let at_once = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut poll, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
