//! Reading tasks from the source, as long as the journal keeps up.

use std::os::fd::OwnedFd;
use std::time::Instant;

use packhorse_engine::Input;
use packhorse_proc::is_readable;
use rustix::event::epoll;
use rustix::io::Errno;

use super::{MOST_UNWRITTEN, SOURCE, Session, unwatch};
use crate::journal::wait_for_commit;
use crate::source::NextRead;
use crate::{SessionError, system};

/// Whether something to read is waited for.
pub(super) enum SourceWatch {
    /// Nothing is.
    Off,
    /// It is, by what the source's descriptor was: a copy, so that it can still be taken off
    /// when the source is closed.
    Waiting(OwnedFd),
    /// It is a file, which is always readable.
    AlwaysReadable,
}

impl Session<'_> {
    /// Whether the source makes tasks that the engine should have.
    pub(super) fn has_room(&self) -> bool {
        !self.source_over
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
            self.dispatch_answers();
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
        self.answers.push_back(Input::Tasks {
            run,
            tasks: read.tasks,
            // That nothing comes any more is known before the first of them starts.
            more: matches!(read.next, NextRead::AtOnce | NextRead::Never),
        });
        for (tasks, message) in read.rejected {
            self.answers.push_back(Input::Rejected { run, tasks, message: Some(message) });
        }
        if read.next == NextRead::Never {
            self.source_over = true;
            self.answers.push_back(Input::InputEnded(run));
        }
        (taken, read.next)
    }

    /// The source can be read.
    pub(super) fn read_source(&mut self) {
        if let SourceWatch::Off = self.source_watch {
            return;
        }
        let next = self.read_together(usize::MAX);
        if matches!(next, NextRead::OtherDescriptor | NextRead::Never) {
            // A new stream has another descriptor.
            self.unwatch_source();
        }
    }

    /// Takes what can be had without waiting.
    pub(super) fn read_what_arrived(&mut self) {
        if self.parts.source.descriptor().is_some_and(is_readable) {
            self.read_source();
        }
    }

    /// Whether input is left unread until the journal has caught up.
    pub(super) fn is_source_paused(&self) -> bool {
        !self.source_over
            && self.parts.source.descriptor().is_some()
            && matches!(self.source_watch, SourceWatch::Off)
    }

    /// Watches the source if it may be read now.
    pub(super) fn watch_source(&mut self) -> Result<(), SessionError> {
        let wanted = !self.source_over && self.parts.journal.unwritten() < MOST_UNWRITTEN;
        let descriptor = self.parts.source.descriptor().filter(|_| wanted);
        match (descriptor, &self.source_watch) {
            (Some(source), SourceWatch::Off) => {
                let copy = rustix::io::fcntl_dupfd_cloexec(source, 0)
                    .map_err(system("watch the input"))?;
                let data = epoll::EventData::new_u64(SOURCE);
                self.source_watch =
                    match epoll::add(&self.epoll, &copy, data, epoll::EventFlags::IN) {
                        Ok(()) => SourceWatch::Waiting(copy),
                        // A regular file, or /dev/null.
                        Err(Errno::PERM) => SourceWatch::AlwaysReadable,
                        Err(error) => return Err(system("watch the input")(error)),
                    };
            }
            (Some(_), _) => {}
            (None, _) => self.unwatch_source(),
        }
        Ok(())
    }

    pub(super) fn unwatch_source(&mut self) {
        let watch = std::mem::replace(&mut self.source_watch, SourceWatch::Off);
        if let SourceWatch::Waiting(watched) = watch {
            let _ = unwatch(&self.epoll, &watched);
        }
    }

    /// What can be had of the input without waiting goes to the journal, so that a later
    /// session finds it there. Whether there was any.
    pub(super) fn keep_some_input(&mut self, end: Instant) -> bool {
        let readable = self.parts.source.descriptor().is_some_and(is_readable);
        if self.source_over || !readable {
            return false;
        }
        if Instant::now() >= end {
            let message = "more commands are coming in than can be kept; the rest is left";
            self.answers.push_back(Input::Warning { task: None, message: message.to_owned() });
            self.closing = self.closing.map(|(run, _)| (run, None));
            return true;
        }
        while self.parts.journal.unwritten() > MOST_UNWRITTEN
            && self.parts.journal.trouble().is_none()
        {
            wait_for_commit(&*self.parts.journal);
        }
        // By now tasks are only written down. All of what has been read is taken: the
        // descriptor does not tell of it any more.
        while self.read_some(usize::MAX).1 == NextRead::AtOnce {}
        true
    }
}
