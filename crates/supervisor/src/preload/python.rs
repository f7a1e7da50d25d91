//! One Python that has imported modules, or is about to.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group, pidfd_send_signal};

use super::key::PythonKey;
use crate::exit::ProcessEnd;
use crate::process_tree::MARK_SERVICE;
use crate::spawn::{AwaitExec, Inheritance, SpawnBuffer};

/// What it runs.
const SERVER: &str = concat!(include_str!("generators.py"), include_str!("server.py"));
/// Place for a task's marks in the environment that the kernel shows of its process.
const PLACE: usize = 128;
/// GPUs that nothing may touch before a task does.
const VISIBILITY: [&str; 3] =
    ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];
/// What is longer does not go through the socket, which only holds so much.
const LONGEST_MESSAGE: usize = 16 * 1024;
/// How many requests are sent and not answered at any time: as many as the socket holds.
pub(super) const MOST_IN_FLIGHT: usize = 8;
/// How much is kept of what it prints before or while it imports.
const SAID: usize = 4096;

/// A Python to fork attempts from.
pub(super) struct PreloadedPython {
    pub(super) key: PythonKey,
    pub(super) pid: Pid,
    /// Becomes readable when it ends.
    pub(super) handle: OwnedFd,
    pub(super) control: OwnedFd,
    /// What it prints while it imports.
    output: OwnedFd,
    /// It ends when this is closed.
    _lifeline: OwnedFd,
    /// It has imported its modules.
    pub(super) is_ready: bool,
    /// It takes no more requests: it has been killed.
    pub(super) is_ending: bool,
    /// How it ended, if somebody has reaped it.
    pub(super) end: Option<ProcessEnd>,
    /// The slots whose requests have not been sent.
    pub(super) queue: VecDeque<usize>,
    pub(super) in_flight: usize,
    /// When it was last asked for something, in requests.
    pub(super) last_used: u64,
    /// What came through the socket and is no message: the interpreter's own complaints.
    pub(super) said: Vec<u8>,
}

/// What it tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ready,
    /// A module could not be imported: why, and all that Python says about it.
    Failed {
        why: String,
        trace: Vec<u8>,
    },
    Forked {
        request: u64,
        pid: i32,
    },
    Unforked {
        request: u64,
        error: i32,
    },
    Notice(String),
    /// It was not for us.
    Text(Vec<u8>),
    /// There is no message now.
    Nothing,
    /// There is none any more.
    Closed,
}

impl Message {
    fn parse(bytes: &[u8]) -> Self {
        let mut words = bytes.split(|&byte| byte == 0);
        let mut text = || words.next().map(|word| String::from_utf8_lossy(word).into_owned());
        let kind = text().unwrap_or_default();
        let mut parse = || match kind.as_str() {
            "ready" => Some(Self::Ready),
            "failed" => {
                let (module, error) = (text()?, text()?);
                Some(Self::Failed {
                    why: format!("cannot preload {module}: {error}"),
                    trace: text()?.into_bytes(),
                })
            }
            "forked" => {
                Some(Self::Forked { request: text()?.parse().ok()?, pid: text()?.parse().ok()? })
            }
            "unforked" => Some(Self::Unforked {
                request: text()?.parse().ok()?,
                error: text()?.parse().ok()?,
            }),
            "notice" => Some(Self::Notice(text()?)),
            _ => None,
        };
        parse().unwrap_or_else(|| Self::Text(bytes.to_vec()))
    }
}

impl PreloadedPython {
    /// Starts one in a folder. It has a process group of its own, and sees no GPU.
    pub(super) fn start(
        key: PythonKey,
        folder: &Path,
        inheritance: &Inheritance,
        limit: Option<rustix::process::Rlimit>,
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let (heard, lifeline) = pipe_with(PipeFlags::CLOEXEC)?;
        let output = memfd_create("packhorse", MemfdFlags::CLOEXEC)?;
        let mut buffer = SpawnBuffer::new(inheritance);
        buffer.argv.add(&key.name);
        for option in &key.options {
            buffer.argv.add(option);
        }
        buffer.argv.add(b"-c");
        buffer.argv.add(SERVER.as_bytes());
        buffer.file = key.file.clone();
        buffer.folder = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok();
        for (name, value) in &key.variables {
            buffer.environment.add_bytes(name, value);
        }
        for name in VISIBILITY {
            buffer.environment.add_bytes(name.as_bytes(), b"");
        }
        let place = vec![b'-'; PLACE];
        buffer.environment.add_bytes(MARK_SERVICE.as_bytes(), &place);
        buffer.limit_descriptors(limit);
        let count = (key.modules.len() + 2).to_string();
        let order = [count.as_bytes(), key.search.as_os_str().as_bytes()];
        let modules = key.modules.iter().map(String::as_bytes);
        let variables = buffer.environment.all();
        let order: Vec<&[u8]> = order.into_iter().chain(modules).chain(variables).collect();
        let order = file_of(&order.join(&0))?;
        let descriptors = [heard.as_fd(), output.as_fd(), order.as_fd()];
        send(&control, b"hello", &descriptors)?;
        let stdio = [Some(theirs.as_raw_fd()); 3];
        // SAFETY: it is waited for until it has executed its program, and the buffer is
        // not used again.
        let child = unsafe { buffer.spawn(stdio, AwaitExec::Yes, true)? };
        let handle = child.handle.ok_or(Errno::CHILD)?;
        Ok(Self {
            key,
            pid: child.pid,
            handle,
            control,
            output,
            _lifeline: lifeline,
            is_ready: false,
            is_ending: false,
            end: None,
            queue: VecDeque::new(),
            in_flight: 0,
            last_used: 0,
            said: Vec::new(),
        })
    }

    /// Whether nobody waits for it.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0
    }

    /// Ends it, and what its modules have started. Those that it has forked go on: each has
    /// a group of its own.
    pub(super) fn kill(&mut self) {
        self.is_ending = true;
        // Nobody else has its number before it is reaped.
        if self.end.is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// The next thing that it has told.
    pub(super) fn hear(&self, buffer: &mut [u8]) -> Message {
        let mut hear = || recv(&self.control, &mut *buffer, RecvFlags::DONTWAIT);
        let heard = match hear() {
            // It has not read all that we wrote. What it wrote is still there.
            Err(Errno::CONNRESET) => hear(),
            other => other,
        };
        match heard {
            Ok((_, 0)) => Message::Closed,
            Ok((_, length)) => Message::parse(&buffer[..length.min(buffer.len())]),
            Err(_) => Message::Nothing,
        }
    }

    /// Asks for a fork. `WOULDBLOCK`: it has to answer others first.
    pub(super) fn request(
        &self,
        number: u64,
        task: &[u8],
        gate: BorrowedFd<'_>,
        stdio: [BorrowedFd<'_>; 3],
    ) -> io::Result<()> {
        let mut message = number.to_string().into_bytes();
        let [input, output, errors] = stdio;
        if task.len() < LONGEST_MESSAGE {
            message.push(0);
            message.extend_from_slice(task);
            return send(&self.control, &message, &[gate, input, output, errors]);
        }
        let file = file_of(task)?;
        let descriptors = [gate, input, output, errors, file.as_fd()];
        send(&self.control, &message, &descriptors)
    }

    /// The last of what it printed before it could tell us anything.
    pub(super) fn last_words(&self) -> Vec<u8> {
        let mut words = vec![0; SAID];
        let length = rustix::fs::fstat(&self.output).map_or(0, |stat| stat.st_size);
        let length = u64::try_from(length).unwrap_or_default();
        let start = length.saturating_sub(SAID as u64);
        let read = rustix::io::pread(&self.output, &mut words, start).unwrap_or_default();
        words.truncate(read);
        [&self.said, &words[..]].concat()
    }

    /// Keeps what it said without being asked.
    pub(super) fn note_text(&mut self, text: &[u8]) {
        let room = SAID.saturating_sub(self.said.len());
        self.said.extend_from_slice(&text[..text.len().min(room)]);
    }
}

/// A file in memory.
fn file_of(mut bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("packhorse", MemfdFlags::CLOEXEC)?;
    while !bytes.is_empty() {
        let length = rustix::io::write(&file, bytes)?;
        bytes = &bytes[length..];
    }
    Ok(file)
}

fn send(control: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(control, &[IoSlice::new(message)], &mut rights, flags)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_text() {
        assert_eq!(Message::parse(b"ready"), Message::Ready);
        let forked = Message::Forked { request: 7, pid: 8 };
        assert_eq!(Message::parse(b"forked\x007\x008"), forked);
        for text in [&b"forked\0x\08"[..], b"Fatal Python error", b"", b"failed\0a"] {
            assert_eq!(Message::parse(text), Message::Text(text.to_vec()));
        }
    }
}
