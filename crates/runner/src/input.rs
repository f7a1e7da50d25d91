//! Where the tasks of a run come from.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use fs_err::File;
use packhorse_intake::lines::{Lines, Separator};
use packhorse_model::Command;
use packhorse_store::NewTask;

/// Where the tasks of a run come from.
pub enum Input {
    /// Nowhere: they are in the store already.
    None,
    /// One command.
    One(Command),
    /// Tasks that were made before, numbered from 1.
    Made(Vec<NewTask>),
    /// Lines of files, pipes, a terminal.
    Lines {
        /// What to read, one after the other.
        sources: VecDeque<Source>,
        /// What separates commands.
        separator: Separator,
        /// How many commands the store has already.
        skip: u32,
    },
    /// Commands that are made when they are needed.
    Generated(Generator),
}

/// Something to read lines from.
#[derive(Debug)]
pub struct Source {
    /// Its name, for messages.
    pub name: String,
    /// The open file.
    pub file: File,
}

/// Makes the commands of a run by their place in it.
///
/// The same place always gives the same command: a later session goes on where
/// this one stopped.
pub struct Generator {
    /// How many there are.
    pub total: u32,
    /// Makes the command at a place, from 0.
    pub command: Box<dyn FnMut(u32) -> Command>,
}

/// The lines of several sources.
pub(crate) struct Reading {
    sources: VecDeque<Source>,
    pub(crate) lines: Lines,
    buffer: Vec<u8>,
}

/// What a read brought.
pub(crate) enum Progress {
    /// Something, perhaps whole lines.
    Some,
    /// The end of this source; another may follow.
    SourceEnded,
    /// Nothing more will come from it, because it cannot be read.
    Failed(String),
}

impl Reading {
    pub(crate) fn new(sources: VecDeque<Source>, separator: Separator) -> Self {
        Self {
            sources,
            lines: Lines::new(separator),
            buffer: vec![0; 64 * 1024],
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.sources.is_empty()
    }

    pub(crate) fn source_name(&self) -> &str {
        self.sources.front().map_or("input", |source| &source.name)
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.sources
            .front()
            .map(|source| source.file.file().as_fd())
    }

    /// Reads once. It may block, unless the descriptor was reported readable.
    pub(crate) fn read(&mut self) -> Progress {
        let Some(source) = self.sources.front() else {
            return Progress::SourceEnded;
        };
        loop {
            return match rustix::io::read(source.file.file(), &mut self.buffer[..]) {
                Ok(0) => {
                    self.lines.finish();
                    Progress::SourceEnded
                }
                Ok(length) => {
                    self.lines.push(&self.buffer[..length]);
                    Progress::Some
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => Progress::Some,
                Err(error) => {
                    self.lines.finish();
                    Progress::Failed(format!(
                        "cannot read {}: {}",
                        source.name,
                        std::io::Error::from(error)
                    ))
                }
            };
        }
    }

    /// Goes on to the next source, once all lines of this one were taken.
    pub(crate) fn next_source(&mut self) {
        self.sources.pop_front();
        self.lines.next_source();
    }

    /// Whether a read would not block.
    pub(crate) fn is_ready(&self) -> bool {
        let Some(descriptor) = self.descriptor() else {
            return false;
        };
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
}
