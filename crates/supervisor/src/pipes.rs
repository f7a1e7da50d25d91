//! The two pipes through which an attempt's output comes.
//!
//! They outlive the attempt: when its process tree is proven empty nobody else
//! holds their writing ends, so the next attempt can have them. That saves
//! making, registering and closing two pipes for each start, and, because our
//! own copy of the writing end keeps the pipe from hanging up, a wake-up at
//! each end.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::epoll;
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};

use packhorse_model::Stream;

use crate::spawn::Stdio;

pub(crate) struct Pipes {
    stdout: OutputPipe,
    stderr: OutputPipe,
    pub(crate) stdio: Stdio,
}

struct OutputPipe {
    reader: OwnedFd,
    /// Kept open on purpose: see above.
    writer: OwnedFd,
    /// What the links in `/proc/PID/fd` of whoever holds an end look like.
    name: String,
}

impl OutputPipe {
    /// Makes the pipe and registers its reading end under a token.
    fn new(epoll: &OwnedFd, token: u64) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end: a child's writes should block like on any pipe.
        rustix::io::ioctl_fionbio(&reader, true)?;
        let data = epoll::EventData::new_u64(token);
        epoll::add(epoll, &reader, data, epoll::EventFlags::IN)?;
        let inode = rustix::fs::fstat(&writer)?.st_ino;
        Ok(Self { reader, writer, name: format!("pipe:[{inode}]") })
    }
}

impl Pipes {
    /// Makes the pipes and registers their reading ends under two tokens.
    pub(crate) fn new(
        epoll: &OwnedFd,
        input: BorrowedFd<'_>,
        [stdout, stderr]: [u64; 2],
    ) -> io::Result<Self> {
        let stdout = OutputPipe::new(epoll, stdout)?;
        let stderr = OutputPipe::new(epoll, stderr)?;
        let stdio = [input, stdout.writer.as_fd(), stderr.writer.as_fd()];
        Ok(Self { stdio: stdio.map(|end| Some(end.as_raw_fd())), stdout, stderr })
    }

    /// What the links in `/proc/PID/fd` of a process call them that holds an end.
    pub(crate) fn names(&self) -> [PathBuf; 2] {
        [&self.stdout.name, &self.stderr.name].map(PathBuf::from)
    }

    /// Reads what is there: `None` when the pipe is empty.
    pub(crate) fn read<'a>(&self, stream: Stream, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let reader = match stream {
            Stream::Stdout => &self.stdout.reader,
            Stream::Stderr => &self.stderr.reader,
        };
        let length = retry_on_intr(|| rustix::io::read(reader, &mut *buffer)).ok()?;
        (length > 0).then_some(&buffer[..length])
    }
}
