//! The two pipes through which an attempt's output comes.
//!
//! They outlive the attempt: when its process tree is proven empty nobody else
//! holds their writing ends, so the next attempt can have them. That saves
//! making, registering and closing two pipes for each start, and, because our
//! own copy of the writing end keeps the pipe from hanging up, a wake-up at
//! each end.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use packhorse_model::Stream;
use packhorse_proc::ProcEntry;

use crate::process_tree::number;
use crate::spawn::Stdio;

pub(crate) struct Pipes {
    readers: [OwnedFd; 2],
    /// Kept open on purpose: see above.
    _writers: [OwnedFd; 2],
    pub(crate) stdio: Stdio,
    /// What the links in `/proc/PID/fd` of whoever holds an end look like.
    names: [String; 2],
}

impl Pipes {
    /// Makes the pipes and registers their reading ends under two tokens.
    pub(crate) fn new(
        epoll: &OwnedFd,
        input: BorrowedFd<'_>,
        tokens: [u64; 2],
    ) -> io::Result<Self> {
        let (out_reader, out_writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err_reader, err_writer) = pipe_with(PipeFlags::CLOEXEC)?;
        for (reader, token) in [(&out_reader, tokens[0]), (&err_reader, tokens[1])] {
            // Only our end: a child's writes should block like on any pipe.
            rustix::io::ioctl_fionbio(reader, true)?;
            epoll::add(
                epoll,
                reader,
                epoll::EventData::new_u64(token),
                epoll::EventFlags::IN,
            )?;
        }
        let stdio = [
            Some(input.as_raw_fd()),
            Some(out_writer.as_raw_fd()),
            Some(err_writer.as_raw_fd()),
        ];
        let name = |pipe: &OwnedFd| {
            let inode = rustix::fs::fstat(pipe).map(|stat| stat.st_ino);
            inode.map(|inode| format!("pipe:[{inode}]"))
        };
        let names = [name(&out_writer)?, name(&err_writer)?];
        Ok(Self {
            names,
            readers: [out_reader, err_reader],
            _writers: [out_writer, err_writer],
            stdio,
        })
    }

    /// Whether a process holds an end of one of them.
    pub(crate) fn is_held_by(&self, pid: Pid) -> bool {
        ProcEntry::of(number(pid)).holds(&self.names)
    }

    /// Reads what is there: `None` when the pipe is empty.
    pub(crate) fn read<'a>(&self, stream: Stream, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let reader = match stream {
            Stream::Stdout => &self.readers[0],
            Stream::Stderr => &self.readers[1],
        };
        loop {
            match rustix::io::read(reader, &mut *buffer) {
                Ok(0) => return None,
                Ok(length) => return Some(&buffer[..length]),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}
